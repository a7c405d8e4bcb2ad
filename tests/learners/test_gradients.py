"""Gradients that are not asked of autograd are those that it finds."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from shoal.agents.world import World
from shoal.fleet.run import simulate
from shoal.learners import der, in_torch, rehearsal
from shoal.learners.batches import Batch
from shoal.learners.in_torch import InTorch, autograd, objective
from shoal.learners.step import Step, together
from shoal.models import dropout, heads
from shoal.models.contract import Model
from tests.fleets import fleet

FEW: dict[str, Any] = {
    "tasks": {"count": 5, "train": 10, "validation": 5},
    "learner": {"epochs": 2},
    "agents": 2,
}


def distance(model: Model, parts: Any, free: Any, fixed: Any, batch: Batch, usage: Any, said: Tensor) -> Tensor:
    """One agent's mean over images and outputs that count of the squared distance between logits and `said` [B, K]."""
    params = together(model, parts, free, fixed)
    known, usage = heads.parted(usage)
    gap = (model.logits(params, batch.x, batch.task, training=True, **usage) - said).square()
    counts = batch.weight[:, None].expand_as(gap)
    if known is not None:
        counts = counts * known[batch.task]
    found: Tensor = (gap * counts).sum() / counts.sum().clamp(min=1)
    return found


@pytest.mark.parametrize("kernel", ["torch", "auto"])
@pytest.mark.parametrize("model", ["mlp", "plain-mlp"])
@pytest.mark.parametrize("way", ["task", "grow"])
def test_memories_that_are_to_be_answered_as_before_pull_as_autograd_says(
    model: str, way: str, kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, seen = rehearsal.repeated, []

    def both(world: World, stack: Any, parts: Any, batch: Batch, usage: Any, said: Tensor) -> Any:
        function = partial(distance, world.model, parts)
        wanted = autograd(world, stack, function, (batch, dropout.drawn(usage), said), parts, {})
        found = own(world, stack, parts, batch, usage, said)
        assert found.keys() == wanted.keys()
        for name, one in wanted.items():
            torch.testing.assert_close(found[name], one, rtol=0, atol=1e-5 * max(1e-3, float(one.abs().max())))
        seen.append(max(float(one.abs().max()) for one in wanted.values()))
        return found

    monkeypatch.setattr(der, "repeated", both)
    learner = {"epochs": 2, "method": "derpp", "memory": 4, "replayed": 6}
    machine = {"kernel": kernel}
    simulate(fleet(model, **{**FEW, "machine": machine, "learner": learner, "tasks": {**FEW["tasks"], "heads": way}}))
    assert max(seen) > 0


@pytest.mark.parametrize(
    "changes",
    [
        {"learner": {"epochs": 2, "method": "ewc"}},
        {"learner": {"epochs": 2, "method": "lwf"}},
        {"sharing": [{"mode": "fedprox", "every": 1}]},
        {"sharing": [{"mode": "fedcurv", "every": 1, "samples": 8, "scaling": "task"}]},
    ],
)
def test_what_is_added_to_the_loss_is_added_to_its_gradient(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    apart, seen = in_torch.gradients, []

    def both(by: InTorch, step: Step) -> Any:
        function = partial(objective, by.world.model, step, False, True)
        arguments = step.images, dropout.drawn(step.usage), [term.state for term in step.terms]
        wanted = autograd(by.world, by.stack, function, arguments, step.parts, step.cuts)
        found = apart(by, step)
        for name, one in wanted.items():
            torch.testing.assert_close(found[name], one, rtol=0, atol=1e-5 * max(1e-3, float(one.abs().max())))
        seen.append(len(step.terms))
        return found

    monkeypatch.setattr(in_torch, "gradients", both)
    simulate(fleet("mlp", **{**FEW, "machine": {"kernel": "auto"}, **changes}))
    assert max(seen) == 1
