"""What learners and modes add to every step: functions of a step that give a step, one after the other."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from torch import Tensor

from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.learners.step import Frame, Part, Step, Tensors, Term

if TYPE_CHECKING:
    from shoal.learners.contract import Learner
    from shoal.sharing.contract import Sharing

# What one learner or mode makes of every step that is about to be taken: another term in the loss, another change of
# gradients, units that stand still, something to do behind it; or the same step.
Addition = Callable[[World, Stack, Step], Step]
Acts = Callable[[World, Stack, Mapping[str, Part]], bool]


def penalised(
    owner: str, acts: Acts, penalty: Callable[[Frame], Tensor], pull: Callable[[Frame], Tensors] | None = None
) -> Addition:
    """A `penalty` is added to one agent's loss, by what is kept under the name of its owner, where `acts` says so.

    If its gradient with respect to some of what trains, or to the first units of it, can be written down (of the rest
    it is zero), that is its `pull`: a step then does without autograd. It may read what trains, the batch and its
    state.
    """

    def added(world: World, stack: Stack, step: Step) -> Step:
        if not acts(world, stack, step.parts):
            return step
        return step._replace(terms=(*step.terms, Term(owner, penalty, pull, dict(stack.of(owner)))))

    return added


def bending(bends: Callable[[World, Stack, Mapping[str, Part], Tensors], Tensors]) -> Addition:
    """`bends` makes other gradients of those that were found, of all lanes."""

    def changed(world: World, stack: Stack, step: Step) -> Step:
        return step._replace(changes=(*step.changes, lambda found: bends(world, stack, step.parts, found)))

    return changed


def resting(rests: Callable[[World, Stack, Mapping[str, Part]], Tensors]) -> Addition:
    """`rests` says which units of the parts stand still, bool [L, units]."""
    return lambda world, stack, step: step.resting(rests(world, stack, step.parts))


def additions_of(world: World) -> list[Addition]:
    """All that is added in a world: by the learner, then by its modes in their order."""
    both: tuple[Learner | Sharing, ...] = (world.settings.learner, *world.settings.sharing)
    return [addition for one in both for addition in one.additions()]


def tangent(frame: Frame, pull: Tensors) -> Tensor:
    """A penalty with such a gradient, as far as a step can tell."""
    each_ = ((frame.free[name][: len(one)] * one.detach()).sum() for name, one in pull.items())
    return sum(each_, frame.batch.weight.new_zeros(()))


def once_kept(owner: str) -> Acts:
    """Where all that agents have in common trains, and something is kept under the name of an owner: from the end of a
    first task on."""
    return lambda world, stack, parts: len(stack.of(owner)) > 0 and trains_body(world, parts)


def trains_body(world: World, parts: Mapping[str, Part]) -> bool:
    """Is all that agents have in common trained? Where it is frozen there is nothing to hold back."""
    return all(name in parts and parts[name][0].start == 0 for name in world.model.body)


def common_units(world: World) -> dict[str, int]:
    """How many units of which tensors all tasks of an agent use: what agents have in common and, if there is one head
    for all tasks, that too."""
    one = world.settings.tasks.heads != "task"
    return {**world.model.body, **(dict.fromkeys(world.model.heads, 1) if one else {})}
