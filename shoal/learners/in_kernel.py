"""The backend that takes steps by the compiled kernel, and which backend a world has."""

from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.learners import orders as kernel
from shoal.learners.adam import adam
from shoal.learners.additions import additions_of, composed
from shoal.learners.batches import Pick
from shoal.learners.in_torch import Backend, InTorch, moved
from shoal.learners.step import Step, Tensors, count_steps


class InKernel:
    """The steps of all lanes in an epoch by the kernel, one after the other; what it does not know goes by torch.

    Where nothing is added to them and nobody looks in between (`watched`), several wait for each other: then the kernel
    takes them lane by lane, and a lane stays in a core's cache.
    """

    def __init__(self, world: World, stack: Stack, watched: bool = False) -> None:
        self.world, self.stack, self.additions = world, stack, additions_of(world)
        self.waiting: list[kernel.Described] = []
        self.taken: list[Pick] = []  # the minibatches of those that wait
        self.before: dict[tuple[object, ...], kernel.Described] = {}  # what was told of the batch before this one
        self.may_wait = not watched and world.settings.learner.optimiser == "adam"

    def take(self, step: Step) -> None:
        """One step, now or at the end."""
        whole = composed(self.world, self.stack, step, self.additions)
        if self.may_wait and whole is step and isinstance(step.batch, Pick):
            found = self.told(step, step.batch)
            if found is not None:
                self.waiting.append(found)
                self.taken.append(step.batch)
                return
        self.finish()
        moved(self, whole)

    def told(self, step: Step, pick: Pick) -> kernel.Described | None:
        """What the kernel is told of a step. Mostly it is that of the batch before in all but the batch and its masks:
        what is the same is not told again."""
        usage, masks = step.usage, step.usage.get("masks")
        same = (
            *(pick.deal, step.parts, step.task, step.cuts, step.active, step.present),
            *(one for one in usage.values() if one is not masks),
        )
        name = tuple(map(id, same))
        before = self.before.get(name)
        found = None if before is None else kernel.following(before, pick, masks)
        if found is None:
            found = kernel.described(self.world, self.stack, step)
        if found is not None:
            found.held.append(same)  # as long as it is held, nothing else has its name
            self.before[name] = found
        return found

    def finish(self) -> None:
        """Take the steps that wait."""
        if self.waiting:
            count_steps(self.stack, (pick.busy for pick in self.taken))
            kernel.run(self.world, self.stack, self.waiting, kernel.FORTH | kernel.MOVE)
            self.waiting, self.taken, self.before = [], [], {}

    def losses(self, step: Step) -> Tensors | None:
        """By the kernel, where it knows such a step."""
        plain = step._replace(batch=step.images, active=None, present=False)
        told = kernel.described(self.world, self.stack, plain)
        return None if told is None else kernel.gradients(self.world, self.stack, told, step.parts)

    def adam(self, step: Step, gradients: Tensors) -> None:
        take = kernel.adam if kernel.trained(step.parts, self.world.model) else adam
        take(self.world, self.stack, step.parts, gradients, step.active)


def undivided(world: World) -> bool:
    """Does the kernel take all steps of an epoch at once? Then it deals lanes to threads itself; of a stack that is cut
    into pieces it would be told piece by piece, by threads that wait for each other in Python."""
    learner = world.settings.learner
    return world.compiled and learner.plain and learner.optimiser == "adam" and not additions_of(world)


def backend(world: World, stack: Stack, watched: bool = False) -> Backend:
    """What takes the steps of a stack: the kernel or torch, as it was decided when the world was made."""
    return InKernel(world, stack, watched) if world.compiled else InTorch(world, stack)
