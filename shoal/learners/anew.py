"""A fresh net for every agent in the middle of its stream."""

from shoal.agents.stack import MODEL, Stack, drawn
from shoal.agents.world import World
from shoal.rng import key


def anew(world: World, stack: Stack, word: str) -> None:
    """Draw all weights again, and forget what the optimiser knew of the old ones."""
    for row, lane in enumerate(stack.lanes):
        rng = key(*lane, word, stack.task)
        for owner, fresh in (
            (stack.params, drawn(world, *lane, word, stack.task, rng=rng)),
            (stack.of(MODEL), world.model.keeps(rng)),
        ):
            for name, tensor in fresh.items():
                owner[name][row] = tensor.to(world.device)
    stack.forget_moments()
    stack.moved[:] = True
