"""The way back by hand is the way that autograd goes, in every use of a net."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as tree

from shoal.agents.world import World
from shoal.fleet.run import simulate
from shoal.learners import der, in_torch, loss, rehearsal
from shoal.learners.batches import Batch
from shoal.learners.in_torch import Backend, autograd, by_hand, objective
from shoal.learners.step import Part, Step
from shoal.models import dropout
from shoal.models.by_hand import log_softmax_back, softmax_back
from shoal.rng import key
from tests.fleets import fleet

FEW: dict[str, Any] = {
    "tasks": {"count": 5, "train": 10, "validation": 5},
    "learner": {"epochs": 2},
    "agents": 2,
    "machine": {"kernel": "torch"},  # where steps are compiled, the way by hand is not gone
}
UNEVEN = {"count": 3, "scenario": "dirichlet", "classes": 4, "initial": 1}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "a monolithic net": ("mlp", {}),
    "without dropout": ("mlp", {"net": {"width": 16, "dropout": 0.0}}),
    "with a head that grows": ("mlp", {"tasks": {**FEW["tasks"], "heads": "grow"}}),
    "with tasks of different sizes": ("mlp", {"tasks": UNEVEN}),
    "that learns new tasks alone": ("mlp", {"learner": {"epochs": 2, "method": "none"}}),
    "a plain net": ("plain-mlp", {"tasks": {**FEW["tasks"], "initial": 2}}),
    "plain, without dropout": ("plain-mlp", {"net": {"width": 16, "depth": 2, "dropout": 0.0}}),
    "plain, with a head that grows": ("plain-mlp", {"tasks": {**FEW["tasks"], "heads": "grow"}}),
    "a modular net": ("modular-mlp", {}),
    "modular, without dropout": ("modular-mlp", {"net": {"width": 16, "dropout": 0.0}}),
    "modular, dropout everywhere": ("modular-mlp", {"net": {"width": 16, "dropout_basis": True, "dropout": 0.3}}),
    "modular, hidden slots keep their share": ("modular-mlp", {"learner": {"epochs": 2, "hidden": "keep"}}),
    "modular, room for candidates": (
        "modular-mlp",
        {"tasks": {**FEW["tasks"], "count": 6}, "sharing": [{"mode": "modmod", "extra_random": True}]},
    ),
    "modular, with tasks of different sizes": ("modular-mlp", {"tasks": UNEVEN}),
}
# How far a gradient may be from autograd's, in units of its tensor's largest.
NEAR = {torch.float32: 3e-6, torch.float64: 1e-13}


def cast(thing: Any, dtype: torch.dtype) -> Any:
    """Tensors of floats as others."""
    return tree.tree_map_only(Tensor, lambda one: one.to(dtype) if one.is_floating_point() else one, thing)


@pytest.mark.parametrize("case", CASES)
def test_it_finds_what_autograd_finds(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, changes = CASES[case]
    seen = set()

    def both(world: World, stack: Any, step: Step) -> Any:
        parts = step.parts
        for dtype, near in NEAR.items():
            if dtype == torch.float64 and model == "plain-mlp":
                continue  # modules of torch read floats
            rows = SimpleNamespace(params=cast(dict(stack.params), dtype))
            batch, usage = cast((step.images, step.usage), dtype)
            found = by_hand(world, rows, step._replace(batch=batch, usage=usage))  # type: ignore[arg-type]
            function = partial(objective, world.model, step, False, True)
            wanted = autograd(world, rows, function, (batch, usage, []), parts, step.cuts)  # type: ignore[arg-type]
            assert found is not None
            assert found.keys() == wanted.keys()
            for name, one in wanted.items():
                assert found[name].dtype == dtype
                assert found[name].shape == one.shape
                torch.testing.assert_close(found[name], one, rtol=0, atol=near * max(1e-3, float(one.abs().max())))
        seen.add((step.task, *parts))
        return by_hand(world, stack, step)

    monkeypatch.setattr(in_torch, "by_hand", both)
    simulate(fleet(model, **{**FEW, **changes}))
    assert len(seen) > 1  # the initial tasks, and later ones


@pytest.mark.parametrize("model", ["mlp", "plain-mlp"])
@pytest.mark.parametrize("heads", ["task", "grow"])
def test_memories_that_are_to_be_answered_as_before_pull_as_autograd_says(
    model: str, heads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_hand, seen = rehearsal.repeated, []

    def both(*given: Any) -> Any:
        with monkeypatch.context() as without:
            without.setattr(rehearsal, "forth", lambda *_: None)
            wanted = by_hand(*given)
        found = by_hand(*given)
        assert found.keys() == wanted.keys()
        for name, one in wanted.items():
            torch.testing.assert_close(found[name], one, rtol=0, atol=3e-6 * max(1e-3, float(one.abs().max())))
        seen.append(max(float(one.abs().max()) for one in wanted.values()))
        return found

    monkeypatch.setattr(der, "repeated", both)
    learner = {"epochs": 2, "method": "derpp", "memory": 4, "replayed": 6}
    simulate(fleet(model, **{**FEW, "learner": learner, "tasks": {**FEW["tasks"], "heads": heads}}))
    assert max(seen) > 0


def test_frozen_layers_and_heads_get_no_gradient() -> None:
    made = fleet("mlp", **FEW)
    rng = torch.Generator().manual_seed(0)
    params = {name: torch.stack([one, -one]) for name, one in made.model.start(key(0, "weights")).items()}
    x, y = torch.randn(2, 7, 16, generator=rng), torch.randint(0, 2, (2, 7), generator=rng)
    batch = Batch(x, y, torch.ones(2, 7), torch.full((2, 7), 3))
    stack: Any = SimpleNamespace(params=params)
    whole: dict[str, Part] = {name: (slice(0, one.shape[1]),) for name, one in params.items()}
    every = by_hand(made, stack, Step(batch, whole, 3, {}))
    assert every is not None
    for parts in (
        {"module.weight": (slice(1, 3),), "module.bias": (slice(1, 3),)},
        {"head.weight": (slice(2, 5),), "head.bias": (slice(2, 5),)},
    ):
        some = by_hand(made, stack, Step(batch, parts, 3, {}))
        assert some is not None
        assert some.keys() == parts.keys()
        for name, one in some.items():
            assert torch.equal(one, every[name][:, parts[name][0]])


def test_the_pull_on_numbers_and_on_labels_is_the_gradient_of_the_loss() -> None:
    rng = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 5, 3, generator=rng, dtype=torch.float64, requires_grad=True)
    weight = torch.tensor([[1, 1, 0, 1, 0], [0, 0, 0, 0, 0]]).double()
    for y in (torch.randn(2, 5, 3, generator=rng, dtype=torch.float64), torch.randint(0, 3, (2, 5), generator=rng)):
        every = torch.stack([loss.errors(*pair) for pair in zip(logits, y, strict=True)])
        mean = ((every * weight).sum(1) / weight.sum(1).clamp(min=1)).sum()
        (wanted,) = torch.autograd.grad(mean, logits)
        share = weight / weight.sum(1, keepdim=True).clamp(min=1)
        torch.testing.assert_close(loss.pull(logits.detach(), y, share), wanted)


def test_a_torch_without_its_private_softmax_goes_back_the_same_way(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = torch.Generator().manual_seed(0)
    pull, read = (torch.randn(2, 5, 3, generator=rng, dtype=torch.float64) for _ in range(2))
    given = (softmax_back, read.softmax(1)), (log_softmax_back, read.log_softmax(1))
    wanted = [way(pull, soft, 1) for way, soft in given]
    assert all(one.any() for one in wanted)
    for name in ("_softmax_backward_data", "_log_softmax_backward_data"):
        monkeypatch.delattr(torch, name)
    for (way, soft), one in zip(given, wanted, strict=True):
        torch.testing.assert_close(way(pull, soft, 1), one)


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

    def both(by: Backend, step: Step) -> Any:
        function = partial(objective, by.world.model, step, False, True)
        arguments = step.images, dropout.drawn(step.usage), [term.state for term in step.terms]
        wanted = autograd(by.world, by.stack, function, arguments, step.parts, step.cuts)
        found = apart(by, step)
        for name, one in wanted.items():
            torch.testing.assert_close(found[name], one, rtol=0, atol=3e-6 * max(1e-3, float(one.abs().max())))
        seen.append(len(step.terms))
        return found

    monkeypatch.setattr(in_torch, "gradients", both)
    simulate(fleet("mlp", **{**FEW, **changes}))
    assert max(seen) == 1
