"""Which part of what is received helps: parts by hand, all of them as in `transfer`, the command."""

import csv
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from shoal.fleet.run import simulate
from shoal_paper.transfer import measure, parts
from tests.command import call
from tests.fleets import fleet
from tests.reproduce.test_transfer import ALL, quiet


def test_all_parts_together_are_what_a_received_module_brings() -> None:
    """With all three parts, and with none, accuracies are those that `shoal transfer` finds."""
    world = fleet("modular-mlp", learner=ALL, tasks={"common": True})
    stack = simulate(world)
    routes = measure.routes_of(world, stack)[:3]
    want = measure.delivered(world, stack, routes, 2, quiet)
    found = list(parts.learned_again(world, stack, routes, 2, quiet))
    assert len(found) == 8 * len(routes)
    whole = {one.route: (one.received, one.fresh) for one in found if one.chosen == parts.PARTS}
    assert whole == want
    for one in found:
        mine, theirs = world.streams[one.route.agent][one.route.task], world.streams[one.route.sender][one.route.source]
        assert one.common == bool(set(mine.classes) & set(theirs.classes))


def test_without_a_class_in_common_a_received_head_is_a_zero_one() -> None:
    """Nothing of the sender's head is used then, so that the control ends where the head alone does."""
    world = fleet("modular-mlp", learner=ALL, tasks={"common": True})
    stack = simulate(world)
    routes = measure.routes_of(world, stack)
    found = {(one.route, one.chosen): one for one in parts.learned_again(world, stack, routes, 2, quiet)}
    apart = [route for route in routes if not found[route, parts.CONTROL].common]
    assert apart
    for route in apart:
        assert found[route, ("head",)].received == found[route, parts.CONTROL].received
    assert {one.points for (_, chosen), one in found.items() if chosen == parts.CONTROL} != {0.0}


def test_parts_of_blocks_of_ones_own_have_their_own_names() -> None:
    offer = {"module.a": torch.zeros(2), "module.b": torch.zeros(3), "structure": torch.zeros(4)}
    world = fleet("modular-mlp", tasks={"common": True})
    model = SimpleNamespace(block=SimpleNamespace(names=("module.a", "module.b")), heads=world.model.heads)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "modular", lambda world: model)
        assert parts.taken(world, offer, ("module",)).keys() == {"module.a", "module.b"}


def test_a_seed_without_such_routes_is_left_out() -> None:
    route = measure.Route(*range(len(measure.Route._fields)))
    sizes = dict.fromkeys((*parts.CHOICES, parts.CONTROL), parts.Size(1, 4))

    def of(seed: int, **gains: float) -> parts.Parts:
        found = tuple(
            parts.Gain(route, common == "common", chosen, gain, 0.0)
            for chosen in sizes
            for common, gain in gains.items()
        )
        return parts.Parts(seed, 1, found, sizes)

    table = parts.table([of(0, common=0.1, other=0.2), of(1, other=0.4)])
    rows = {row["routes"]: row for row in table.to_dicts() if row["parts"] == "module"}
    assert (rows["a class in common"]["seeds"], rows["none in common"]["seeds"]) == (1, 2)
    assert rows["a class in common"]["gain"] == pytest.approx(10)
    assert rows["a class in common"]["gain_se"] is None
    assert rows["none in common"]["gain"] == pytest.approx(30)
    assert rows["none in common"]["lost"] == 0  # all choices gain the same here


def test_what_is_lost_against_all_parts_is_paired_over_seeds() -> None:
    route = measure.Route(*range(len(measure.Route._fields)))
    sizes = dict.fromkeys((*parts.CHOICES, parts.CONTROL), parts.Size(1, 4))

    def of(seed: int, whole: float, less: float) -> parts.Parts:
        gains = [(chosen, whole if chosen == parts.PARTS else whole - less) for chosen in sizes]
        return parts.Parts(seed, 1, tuple(parts.Gain(route, True, chosen, gain, 0.0) for chosen, gain in gains), sizes)

    table = parts.table([of(0, 0.1, 0.02), of(1, 0.5, 0.04)])
    rows = {row["parts"]: row for row in table.to_dicts() if row["routes"] == "all"}
    assert rows["module"]["gain_se"] == pytest.approx(19)  # seeds differ more than choices
    assert rows["module"]["lost"] == pytest.approx(3)
    assert rows["module"]["lost_se"] == pytest.approx(1)
    assert rows["module+structure+head"]["lost"] == 0


def test_the_command_writes_a_row_for_every_choice_of_parts(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "parts.csv"
    done = call("transfer", run, "--parts", "--epochs", 1, "--out", file)
    assert done.code == 0, done.err
    rows = list(csv.DictReader(file.read_text().splitlines()))
    assert len(rows) == 24
    sizes = {row["parts"]: int(row["bytes"]) for row in rows}
    assert sizes["module"] < sizes["module+structure"] < sizes["module+structure+head"]
    floats = {row["parts"]: int(row["floats"]) for row in rows}
    assert floats["module"] + floats["structure"] + floats["head"] == floats["module+structure+head"]
    done = call("transfer", run, "--parts", "--epochs", 1, "--routes", 1, "--out", file)
    assert done.code == 0, done.err
    few = list(csv.DictReader(file.read_text().splitlines()))
    assert {row["pairs"] for row in few if row["routes"] == "all"} == {"1"} != {row["pairs"] for row in rows[:1]}
    wrong = call("transfer", run, "--parts", "--out", tmp_path / "parts.txt")
    assert wrong.code == 2
    assert ".csv" in wrong.err


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.command import DIGITS, TINY

    folder: Path = tmp_path_factory.mktemp("parts") / "run"
    done = call("run", DIGITS, *TINY, "sharing=modmod", "learner.accept=-1", "--out", folder)
    assert done.code == 0, done.err
    return folder
