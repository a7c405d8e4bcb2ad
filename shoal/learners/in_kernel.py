"""The backend that takes steps by the compiled kernel, and which backend a world has."""

from collections.abc import Iterable
from itertools import chain

from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.learners import orders as kernel
from shoal.learners.adam import adam
from shoal.learners.additions import additions_of
from shoal.learners.batches import Pick
from shoal.learners.in_torch import InTorch
from shoal.learners.step import Step, Tensors, count_steps


class InKernel(InTorch):
    """The steps of all lanes in an epoch by the kernel; what it does not know goes by torch.

    Where nothing is added to them, they wait for each other: then the kernel takes all of a lane before those of the
    next, and a lane stays in a core's cache.
    """

    def take(self, steps: Iterable[Step]) -> None:
        if self.world.settings.learner.optimiser != "adam" or additions_of(self.world):
            super().take(steps)
            return
        waiting: list[tuple[kernel.Described, Pick]] = []
        before: dict[tuple[int, ...], kernel.Described] = {}
        for step in chain(steps, (None,)):
            told, pick = None, step and step.batch
            if step and isinstance(pick, Pick):
                # Mostly it is that of the batch before in all but the batch and its masks: what is the same is not told
                # again. As long as it is held, nothing else has its name.
                masks = step.usage.get("masks")
                rest = (one for one in step.usage.values() if one is not masks)
                same = pick.deal, step.parts, step.task, step.cuts, step.active, step.present, *rest
                name = tuple(map(id, same))
                told = kernel.following(before[name], pick, masks) if name in before else None
                told = told or kernel.described(self.world, self.stack, step)
                if told:
                    told.held.append(same)
                    before[name] = told
                    waiting.append((told, pick))
                    continue
            if waiting:
                count_steps(self.stack, (pick.busy for _, pick in waiting))
                kernel.run(self.world, self.stack, [told for told, _ in waiting], kernel.FORTH | kernel.MOVE)
                waiting = []
            if step:
                super().take([step])

    def losses(self, step: Step) -> Tensors | None:
        """By the kernel, where it knows such a step."""
        told = kernel.described(self.world, self.stack, step._replace(active=None, present=False))
        return None if told is None else kernel.gradients(self.world, self.stack, told, step.parts)

    def adam(self, step: Step, gradients: Tensors) -> None:
        take = kernel.adam if kernel.trained(step.parts, self.world.model) else adam
        take(self.world, self.stack, step.parts, gradients, step.active)


def undivided(world: World) -> bool:
    """Does the kernel take all steps of an epoch at once? Then it deals lanes to threads itself; of a stack that is cut
    into pieces it would be told piece by piece, by threads that wait for each other in Python."""
    learner = world.settings.learner
    return world.compiled and learner.plain and learner.optimiser == "adam" and not additions_of(world)


def backend(world: World, stack: Stack) -> InTorch:
    """What takes the steps of a stack: the kernel or torch, as it was decided when the world was made."""
    return (InKernel if world.compiled else InTorch)(world, stack)
