"""Laws of the stack: engines agree, lanes are independent, the same seed is the same run."""

from pathlib import Path
from typing import Any

import pytest
import torch

from shoal.agents.engine import glibc, kept_memory
from shoal.agents.stack import Stack
from shoal.data.tasks import Lane
from shoal.fleet.run import simulate
from tests.fleets import fleet

MODELS = ("mlp", "modular-mlp", "cnn", "modular-cnn")
# A candidate is kept if it is any better, so that lanes differ in their modules.
GROUPS: dict[str, Any] = {"learner": {"accept": 0.0}}


def same(one: Stack, other: Stack) -> None:
    """Every tensor of two stacks is equal, bit for bit."""
    assert one.lanes == other.lanes
    for name, tensor in one.tensors.items():
        torch.testing.assert_close(tensor, other.tensors[name], rtol=0, atol=0, equal_nan=True, msg=name)


@pytest.mark.parametrize("model", MODELS)
def test_loop_and_vmap_give_the_same_stack(model: str) -> None:
    loop, vmap = (simulate(fleet(model, machine={"engine": engine}, **GROUPS)) for engine in ("loop", "vmap"))
    if "alive" in loop.of("model"):
        assert loop.of("model")["alive"].equal(vmap.of("model")["alive"])
    for name, tensor in loop.params.items():
        torch.testing.assert_close(tensor, vmap.params[name], rtol=0, atol=1e-4, msg=name)
    torch.testing.assert_close(loop.accuracy, vmap.accuracy, rtol=0, atol=0.02, equal_nan=True)


@pytest.mark.parametrize("common", [False, True])
@pytest.mark.parametrize("model", MODELS)
def test_an_agent_does_not_depend_on_who_else_is_in_its_stack(model: str, common: bool) -> None:
    tasks = {"common": common}
    whole = fleet(model, seeds=2, tasks=tasks, **GROUPS)
    together = simulate(whole)
    for row in (1, len(whole.lanes) - 1):
        alone = simulate(fleet(model, [whole.lanes[row]], seeds=2, tasks=tasks, **GROUPS))
        same(together.take([row], [whole.lanes[row]]), alone)


@pytest.mark.parametrize("model", ["mlp", "modular-mlp"])
def test_with_an_odd_width_it_does_so_up_to_rounding(model: str) -> None:
    """The library's product of matrices that no vector fills depends, in the last bit, on where they lie in memory."""
    whole = fleet(model, net={"width": 13}, **GROUPS)
    alone = simulate(fleet(model, [whole.lanes[1]], net={"width": 13}, **GROUPS))
    together = simulate(whole).take([1], [whole.lanes[1]])
    for name, tensor in together.params.items():
        torch.testing.assert_close(tensor, alone.params[name], rtol=0, atol=1e-4, msg=name)


@pytest.mark.parametrize("model", MODELS)
def test_the_same_seed_is_the_same_run(model: str) -> None:
    same(simulate(fleet(model)), simulate(fleet(model)))


def test_another_seed_is_another_run() -> None:
    one, other = simulate(fleet("mlp")), simulate(fleet("mlp", seed=1))
    assert not torch.equal(one.params["module.weight"], other.params["module.weight"])


def test_dropout_takes_part() -> None:
    with_, without = simulate(fleet("mlp")), simulate(fleet("mlp", net={"dropout": 0.0}))
    assert not torch.equal(with_.params["module.weight"], without.params["module.weight"])


def test_a_common_start_is_learned_once_per_seed() -> None:
    stack = simulate(fleet("modular-mlp", seeds=2, tasks={"common": True}))
    seeds = [lane.seed for lane in stack.lanes]
    initial = stack.accuracy[:, :4]
    for lane, seed in enumerate(seeds):
        torch.testing.assert_close(initial[lane], initial[seeds.index(seed)], rtol=0, atol=0, equal_nan=True)
    assert not torch.equal(initial[0].nan_to_num(), initial[-1].nan_to_num())
    # What came after is each agent's own.
    assert not torch.equal(stack.params["head.weight"][0, 5], stack.params["head.weight"][1, 5])
    assert stack.lanes[0] == Lane(0, 0)


@pytest.mark.parametrize(("model", "agents"), [("mlp", 40), ("modular-mlp", 33), ("cnn", 1), ("modular-cnn", 2)])
def test_the_number_of_threads_changes_nothing(model: str, agents: int) -> None:
    few: dict[str, Any] = {"tasks": {"count": 5}, "learner": {"epochs": 2, "accept": 0.0}}
    one, two = (fleet(model, agents=agents, machine={"threads": threads}, **few) for threads in (1, 2))
    assert [len(made.pieces) for made in (one, two)] == [1, min(2, agents)]
    same(simulate(one), simulate(two))


@pytest.mark.skipif(glibc() is None, reason="only glibc can be told to keep memory")
def test_what_a_run_has_freed_goes_back_when_the_last_one_ends() -> None:
    def resident() -> int:
        (line,) = (one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmRSS"))
        return int(line.split()[1])

    with kept_memory():
        with kept_memory():
            torch.ones(2**26)  # 256 MB, freed at once
        held = resident()
    assert resident() < held - 200_000
