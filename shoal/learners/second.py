"""Second nets, which learn beside those of agents, from other weights."""

from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.learners.fisher import snapshot
from shoal.learners.step import Tensors


def second_learned(world: World, stack: Stack, weights: Tensors, epochs: int) -> Tensors:
    """What nets of all lanes have in common, [L, units, ...] by name, when they have learned from such weights for so
    many epochs as the agents' own will, at the most to the end of the task; with a new Adam, and without what modes
    add."""
    learner, made = world.settings.learner, stack.take(range(len(stack.lanes)), stack.lanes)
    for name, tensor in weights.items():
        made.params[name][:, : tensor.shape[1]] = tensor
    for mode in world.settings.sharing:
        made.states.pop(mode.owner, None)
    made.forget_moments()
    if stack.epoch == 0:
        learner.begin(world, made)
    for epoch in range(stack.epoch, min(stack.epoch + epochs, learner.epochs)):
        made.epoch = epoch
        learner.epoch(world, made, epoch)
    return snapshot(world, made)
