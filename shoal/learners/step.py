"""A step is a value: what trains on what. A backend (`in_kernel`, `in_torch`) takes it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from shoal.agents.stack import MODEL, RECORD, STEPS, Stack
from shoal.agents.world import World
from shoal.data.tasks import NAMED
from shoal.learners.batches import Batch, Pick
from shoal.models.contract import Model, Usage
from shoal.models.contract import Part as Part
from shoal.models.params import Params

Tensors = dict[str, Tensor]
Change = Callable[[Tensors], Tensors]  # what is made of the gradients of all lanes before they are used


class Frame(NamedTuple):
    """One agent in the middle of a step: all that an addition to its loss may read."""

    model: Model
    params: Params  # all parameters; where more tasks may come, of heads those of tasks that have begun
    free: Tensors  # those that train
    usage: Usage
    batch: Batch
    state: Tensors  # what the one who adds keeps for this agent
    known: Tensor | None = None  # which outputs of each task's head count, bool [T, K]; None: all


class Term(NamedTuple):
    """What is added to the loss of every agent."""

    owner: str
    penalty: Callable[[Frame], Tensor]  # of one agent
    pull: Callable[[Frame], Tensors] | None  # the gradient of it, where that is written down
    state: Tensors  # what the one who adds keeps, of all lanes


class Step(NamedTuple):
    """One step of every lane on the `parts` of its parameters; the rest is frozen.

    `active` [L, units of the part] narrows that to some units of some lanes, `present` to the heads that have an image
    in the batch, or in what is `also` learned: no other is touched, not even by its moments.
    """

    batch: Batch | Pick
    parts: Mapping[str, Part]
    task: int | None  # of the whole batch, the same in all lanes; None: every image is of its own
    usage: Usage
    cuts: Mapping[str, Part] = {}  # which part of each tensor is read at all
    active: Mapping[str, Tensor] | None = None
    present: bool = False
    also: Batch | None = None
    terms: tuple[Term, ...] = ()  # what is added to the loss,
    changes: tuple[Change, ...] = ()  # what is made of the gradients, one after the other,
    after: tuple[Callable[[], None], ...] = ()  # and what comes when weights have moved
    number: int = 0  # of the step in its epoch

    @property
    def images(self) -> Batch:
        """The batch, picked out."""
        return self.batch.batch if isinstance(self.batch, Pick) else self.batch

    def resting(self, still: Mapping[str, Tensor]) -> "Step":
        """The same step, in which some more units [L, units of the part] stand still."""
        if not still:
            return self
        active = dict(self.active or {})
        return self._replace(active=active | {name: ~one & active.get(name, ~one) for name, one in still.items()})


def begun(world: World, stack: Stack) -> int:
    """Of how many tasks heads are computed. Where more tasks may come, of those that have begun: how a product is
    summed depends on its size, and what an agent learns must not depend on how many tasks there will be."""
    tasks = world.settings.tasks
    return max(stack.task + 1, tasks.initial) if tasks.scenario == NAMED else tasks.count


def used(world: World, stack: Stack, step: Step) -> Tensor:
    """Which heads have an image in a step: bool [L, heads]."""
    count = torch.zeros_like(stack.of(STEPS)[world.model.heads[0]], dtype=torch.float32)
    for batch in (step.images, step.also):
        if batch is not None:
            count.scatter_add_(1, batch.task.clamp(max=count.shape[1] - 1), batch.weight)
    return count > 0


def count_steps(stack: Stack, steps: Iterable[Tensor]) -> None:
    """Note which lanes take each of some steps, bool [L] each, where seconds are counted."""
    if (taken := stack.of(RECORD).get("steps")) is not None:
        taken += torch.stack(list(steps)).sum(0).to(taken.device)


@contextmanager
def unwritten(stack: Stack, idle: Tensor) -> Iterator[None]:
    """What nets of `idle` lanes [L] keep, such as running statistics, stays as it is, although their padding runs."""
    before = {name: tensor[idle].clone() for name, tensor in stack.of(MODEL).items()} if idle.any() else {}
    yield
    for name, tensor in before.items():
        stack.of(MODEL)[name][idle] = tensor


def together(model: Model, parts: Mapping[str, Part], free: Tensors, fixed: Tensors) -> Params:
    """One agent's parameters, trained and frozen."""
    joined: dict[str, Tensor | list[Tensor]] = dict(fixed)
    for name, tensor in free.items():
        units = parts[name][0]
        around = (fixed[name][: units.start], tensor, fixed[name][units.stop :])
        pieces = [piece for piece in around if len(piece)]
        # In pieces where the model can take it, so that no gradient is computed for what is frozen.
        joined[name] = pieces if name in model.pieced else pieces[0] if len(pieces) == 1 else torch.cat(pieces)
    return joined


def read(stack: Stack, cuts: Mapping[str, Part]) -> Tensors:
    """All parameters that a step may read."""
    return {name: view(tensor, cuts.get(name, ())) for name, tensor in stack.params.items()}


def read_parts(stack: Stack, parts: Mapping[str, Part]) -> Tensors:
    """The parts of the parameters that train."""
    return {name: view(stack.params[name], part) for name, part in parts.items()}


def view(tensor: Tensor, part: Part) -> Tensor:
    return tensor[(slice(None), *part)]
