"""What learners and modes add to every step."""

import pytest
import torch
from torch import Tensor

from shoal.agents.stack import start
from shoal.errors import SettingsError
from shoal.learners.additions import Addition, additions_of, bending, penalised, resting
from shoal.learners.batches import batches, generators, pool
from shoal.learners.contract import Learner
from shoal.learners.in_kernel import backend
from shoal.learners.none import Nothing
from shoal.learners.step import Frame, Step, Tensors
from tests.fleets import fleet


def nothing(frame: Frame) -> Tensor:
    return 0 * frame.free["head.bias"].sum()


class Several(Nothing):
    """A learner that adds a penalty, a change and a rest, and another change."""

    method: str = "several"  # type: ignore[assignment]

    def additions(self) -> tuple[Addition, ...]:
        def double(found: Tensors) -> Tensors:
            return {name: 2 * one for name, one in found.items()}

        return (
            penalised(self.owner, lambda *_: True, nothing),
            bending(lambda world, stack, parts, found: double(found)),
            resting(lambda world, stack, parts: {"head.bias": torch.ones(len(stack.lanes), 3, dtype=torch.bool)}),
            bending(lambda world, stack, parts, found: {name: one + 1 for name, one in found.items()}),
            penalised(self.owner, lambda *_: False, nothing),
        )


@pytest.mark.parametrize("kernel", ["auto", "torch"])
def test_additions_are_composed_in_order_and_units_that_rest_stay(kernel: str) -> None:
    world = fleet("mlp", machine={"kernel": kernel}, tasks={"count": 3, "initial": 1})
    learner = Several.model_construct(**dict(world.settings.learner))
    object.__setattr__(world, "settings", world.settings.model_copy(update={"learner": learner}))
    stack = start(world)
    batch = next(batches(pool(world, stack, 0, past=False), generators(stack, "test"), 16))
    parts = {name: (slice(0, one.shape[1]),) for name, one in stack.params.items()}
    plain = Step(batch, parts, 0, {})
    step = plain
    for addition in additions_of(world):
        step = addition(world, stack, step)
    assert not plain.terms
    assert not plain.changes
    assert (len(step.terms), len(step.changes)) == (1, 2)
    found = {"a": torch.tensor([3.0])}
    for change in step.changes:
        found = change(found)
    assert found["a"].item() == 7.0
    before = {name: one.clone() for name, one in stack.params.items()}
    backend(world, stack).take([plain])
    assert {name for name, one in stack.params.items() if torch.equal(one, before[name])} == {"head.bias"}


def test_a_penalty_that_no_addition_names_is_refused() -> None:
    with pytest.raises(SettingsError, match="`Forgotten` has `penalty`, but no `additions` that name it"):

        class Forgotten(Learner):
            method: str = "forgotten"

            def penalty(self, frame: Frame) -> Tensor:
                return nothing(frame)
