"""Tables in pages come from CSVs, and the families that make some of these."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from shoal.configure.reading import read, resolve
from shoal.errors import UserError
from shoal.settings.groups import Settings
from shoal.study.cells import read_csv, write_csv
from shoal_paper import (
    adaptation,
    confounds,
    draws,
    dropout,
    grid,
    heads,
    leak,
    memory,
    mixed,
    reduced,
    tables,
    weights,
)
from shoal_paper.table1 import redrawn, settings
from tests.command import ROOT, call

pytestmark = pytest.mark.usefixtures("nowhere")

SMALL: dict[str, Any] = {
    "dataset": "digits",
    "tasks": {"count": 6, "train": 16, "validation": 8},
    "learner": {"epochs": 4, "batch": 16, "memory": 8, "rate": 0.03},
    "machine": {"threads": 1},
}
PAGE = "# A page\n\n<!-- table {} -->\nwhatever was here\n<!-- end of table -->\n\nWords.\n"


def made(page: str, name: str) -> list[str]:
    """The lines of a table in a page."""
    inside = page.partition(f"<!-- table {name} -->\n")[2].partition("<!-- end of table -->")[0]
    return inside.splitlines()


def test_gains_of_the_grid_are_over_agents_alone_with_the_same_learner(monkeypatch: pytest.MonkeyPatch) -> None:
    def small(dataset: str, net: str, learner: str, sharing: list[dict[str, Any]], seeds: int) -> Settings:
        own = {**SMALL["learner"], "method": learner}
        often = [{**mode, "every": 2} for mode in sharing]
        shape = {"width": 8, "depth": 2}
        raw = {"model": net, "agents": 2, "seeds": seeds, "net": shape, "sharing": often, "learner": own}
        return resolve({**SMALL, **raw})

    monkeypatch.setattr(grid, "made", small)
    monkeypatch.setattr(grid, "LEARNERS", ("none", "replay"))
    words = ("--dataset", "mnist", "--model", "monolithic", "--method", "fedavg")  # agents alone come along
    done = call("reproduce", "grid", *words, "--seeds", "2", "--out", "out")
    assert done.code == 0, done.err
    rows = {(row["learner"], row["method"]): row for row in read_csv(Path("out/grid.csv"))}
    assert rows.keys() == {(learner, method) for learner in ("none", "replay") for method in ("none", "fedavg")}
    for learner in ("none", "replay"):
        alone, shares = rows[learner, "none"], rows[learner, "fedavg"]
        gap = shares["final_accuracy"] - alone["final_accuracy"]
        assert shares["final_accuracy_difference"] == pytest.approx(gap, abs=2e-3)
        assert alone["final_accuracy_difference"] is None
        assert shares["bytes_per_link_task"] > 0
    Path("out/page.md").write_text(PAGE.format("grid"))
    page = tables.fill(Path("out/page.md"), Path("out"))
    assert page is not None
    head, _, first, second = made(page.read_text(), "grid")
    assert head == "| dataset | learner | alone, % | data | fedavg | fedavg int8 | modules | masks |"
    assert (first.startswith("| mnist | none | "), second.startswith("| mnist | replay | ")) == (True, True)
    (drawn,) = Path("out/figures").glob("grid-fair*.svg")
    assert "replay" in drawn.read_text()


def test_both_tests_of_the_grid_are_corrected_for_all_that_their_table_has() -> None:
    """Of two datasets the one in which images help one learner by far more in every seed has the least p that eight
    seeds can give, twice."""
    rows = [
        {"dataset": dataset, "learner": learner, "method": method, "seed": seed, "final_accuracy": level}
        for dataset, most in (("mnist", 9.0), ("combined", 1.0))
        for at, learner in enumerate(grid.LEARNERS)
        for method, more in (("none", 0.0), ("data", 1.0 if at else most), ("fedavg", 0.0))
        for seed in range(8)
        for level in [90.0 + more + (seed - 3.5) * (method == "data") / 50]
    ]
    head, _, mnist, combined = tables.by_order(rows)
    assert head.endswith("| learner x sharing |")
    assert mnist.endswith(f"| p {2 / 128:.3f} |")
    assert combined.endswith("| p 1.000 |")
    alone = tables.by_order([row for row in rows if row["seed"] == 0])
    assert "<0.001" not in "".join(alone), "one seed shows nothing"


def test_dropout_is_on_or_off_for_everyone_and_gains_are_over_agents_alone_with_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def small(dataset: str, model: str, method: str, protocol: str, seeds: int, net: Any) -> Settings:
        modes = [{"mode": "recv", "every": 2}] if method == "data" else []
        shape = {"width": 8, "depth": 2, **net}
        raw = {"model": "mlp", "protocol": protocol, "agents": 2, "seeds": seeds, "net": shape, "sharing": modes}
        return resolve({**SMALL, **raw})

    monkeypatch.setattr(dropout, "settings", small)
    done = call("reproduce", "dropout", "--dataset", "mnist", "--model", "monolithic", "--seeds", "2", "--out", "out")
    assert done.code == 0, done.err
    rows = read_csv(Path("out/dropout.csv"))
    assert [(row["dropout"], row["method"]) for row in rows] == [
        (0, "vanilla"),
        (0.5, "vanilla"),
        (0, "data"),
        (0.5, "data"),
    ]
    for alone, shares in (rows[::2], rows[1::2]):
        assert alone["final_accuracy_difference"] is None
        gap = shares["final_accuracy"] - alone["final_accuracy"]
        assert shares["final_accuracy_difference"] == pytest.approx(gap, abs=2e-3)
    Path("out/page.md").write_text(PAGE.format("dropout"))
    page = tables.fill(Path("out/page.md"), Path("out"))
    assert page is not None
    head, _, first, *_ = made(page.read_text(), "dropout")
    assert head == "|  | alone, dropout 0.5 | Recv, dropout 0.5 | alone, dropout 0 | Recv, dropout 0 |"
    cells = [cell.strip() for cell in first.strip("|").split("|")]
    assert cells[0] == "monolithic mnist"
    assert cells[4].startswith(f"{rows[2]['final_accuracy']:.2f} ± ")
    assert page.read_text().startswith("# A page\n\n<!-- table dropout -->\n|")
    assert page.read_text().endswith("|\n<!-- end of table -->\n\nWords.\n")


def test_images_of_others_stand_beside_more_of_ones_own() -> None:
    """Agents alone have 90 and 91, with 64 own images half a point more, with images of others one and two."""
    alone = [{"memory": 64, "dataset": "mnist", "seed": at, "final_accuracy": 90.5 + at, "auc": 80.0} for at in (0, 1)]
    table1 = [
        {"protocol": "fair", "model": "monolithic", "dataset": "mnist", "method": method, "seed": at, "auc": 80.0}
        | {"final_accuracy": 90.0 + at + more * (1 + at)}
        for method, more in (("vanilla", 0.0), ("data", 1.0))
        for at in (0, 1)
    ]
    found = memory.gains(alone, table1)
    assert [found["mnist", kind]["final_accuracy"].mean for kind in (64, "data", "data over 64")] == [0.5, 1.5, 1.0]
    head, _, line = tables.by_memory(alone, table1)
    assert head == "|  | 64 own images | images of others | images less 64 |"
    assert line.startswith("| mnist | +0.50 ± 0.00 (p 1.000) / +0.00 ± 0.00 (p 1.000) | +1.50 ± 0.50 (p 1.000)")
    (cell, most) = memory.cells("mnist", "monolithic", "fair", 8)
    usual = resolve({**cell.settings.model_dump(), "learner": {**cell.settings.learner.model_dump(), "memory": 32}})
    assert usual.identity() == settings("mnist", "monolithic", "vanilla", "fair", 8).identity()
    assert most.settings.learner.memory == most.settings.tasks.train * most.settings.tasks.classes
    assert not memory.cells("mnist", "modular", "fair", 8)


def test_the_leak_is_measured_against_the_same_run_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def small(dataset: str, model: str, method: str, protocol: str, seeds: int, mode: Any) -> Settings:
        modes = [{"mode": "recv", "every": 1, **mode}]
        shape = {"width": 8, "depth": 2}
        raw = {"model": "mlp", "protocol": protocol, "agents": 3, "seeds": seeds, "net": shape, "sharing": modes}
        return resolve({**SMALL, **raw})

    looked, shared = list[str](), leak.shared

    def look(fleet: Settings) -> float:
        looked.append(fleet.machine.data)
        return shared(fleet)

    monkeypatch.setattr(leak, "settings", small)
    monkeypatch.setattr(leak, "shared", look)
    words = ("--dataset", "mnist", "--model", "monolithic", "--seeds", "2", "--out", "out", "--data", "there")
    done = call("reproduce", "leak", *words)
    assert done.code == 0, done.err
    assert looked == ["there"] * 2  # the table looks at the data where the runs found it
    drop, keep = read_csv(Path("out/leak.csv"))
    assert (drop["own_validation"], keep["own_validation"]) == ("drop", "keep")
    assert drop["final_accuracy_difference"] is None
    gap = keep["final_accuracy"] - drop["final_accuracy"]
    assert keep["final_accuracy_difference"] == pytest.approx(gap, abs=2e-3)
    assert 0 < keep["shared"] == drop["shared"] < 100
    fleet = leak.cell("mnist", "monolithic", "keep", 2).settings
    assert leak.shared(redrawn(fleet, "fleet")) == 0  # a fleet that splits once


def test_agents_that_share_modules_are_set_beside_agents_alone_that_adapt_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def small(dataset: str, model: str, method: str, protocol: str, seeds: int, learner: Any) -> Settings:
        modes = {"vanilla": [], "modmod": ["modmod"], "hybrid": ["modmod", "fedavg"]}[method]
        sharing = [{"mode": mode, **({"every": 2} if mode == "fedavg" else {})} for mode in modes]
        raw = {"model": "modular-mlp", "agents": 2, "seeds": seeds, "net": {"width": 8, "depth": 2}, "sharing": sharing}
        return resolve({**SMALL, **raw, "learner": {**SMALL["learner"], **learner}})

    monkeypatch.setattr(adaptation, "settings", small)
    done = call("reproduce", "adaptation", "--seeds", "2", "--out", "out")
    assert done.code == 0, done.err
    rows = {(row["method"], row["adaptation"]): row for row in read_csv(Path("out/adaptation.csv"))}
    assert rows.keys() == set(adaptation.RUN)
    vanilla = rows["vanilla", "last"]
    for (method, when), row in rows.items():
        for end, base in (("", rows["vanilla", when]), ("_vanilla", vanilla)):
            found, gap = row[f"final_accuracy_difference{end}"], row["final_accuracy"] - base["final_accuracy"]
            assert found is None if row is base else found == pytest.approx(gap, abs=2e-3), (method, when, end)
    head, _, first, *_ = reduced.adapted(list(rows.values()))
    assert head.count("|") == first.count("|")
    assert first.startswith(f"| vanilla | yes | {vanilla['final_accuracy']:.2f} ± ")


def test_gains_stand_over_agents_alone_whose_heads_begin_at_zero_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def small(dataset: str, model: str, method: str, protocol: str, seeds: int, net: Any) -> Settings:
        sharing = {"vanilla": [], "data": [{"mode": "recv", "every": 2}], "modmod": [{"mode": "modmod"}]}[method]
        shape = {"width": 8, "depth": 2, **net}
        raw = {"model": "modular-mlp", "agents": 2, "seeds": seeds, "net": shape, "sharing": sharing}
        return resolve({**SMALL, **raw})

    monkeypatch.setattr(heads, "settings", small)
    done = call("reproduce", "heads", "--dataset", "mnist", "--seeds", "2", "--out", "out")
    assert done.code == 0, done.err
    every = read_csv(Path("out/heads.csv"))
    rows = {(row["method"], row["head"]): row for row in every}
    assert list(rows) == [(method, head) for method in heads.METHODS for head in heads.HEADS]
    assert rows["vanilla", "random"]["final_accuracy"] != rows["vanilla", "zero"]["final_accuracy"]
    for row in every:
        for end, head in (("", "zero"), ("_vanilla", "random")):
            base, found = rows["vanilla", head], row[f"auc_difference{end}"]
            assert found is None if row is base else found == pytest.approx(row["auc"] - base["auc"], abs=2e-3)
    shutil.rmtree(next(Path("out").glob(f"*{rows['vanilla', 'zero']['identity']}")))
    done = call(
        "reproduce", "heads", "--dataset", "mnist", "--seeds", "2", "--out", "out", "--finished", "--tables", "x"
    )
    assert done.code == 0, done.err
    assert {row["auc_difference"] for row in read_csv(Path("x/heads.csv"))} == {None}  # without the control
    lines = tables.by_head(every)
    assert lines[2].startswith(f"| mnist | vanilla | random | {every[0]['final_accuracy']:.2f} ± ")
    assert len({line.count("|") for line in lines}) == 1


def test_modules_stand_beside_images_under_both_scopes_and_both_kinds_of_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    def small(dataset: str, model: str, method: str, protocol: str, seeds: int, net: Any) -> Settings:
        recv, modmod = {"mode": "recv", "every": 2}, {"mode": "modmod"}
        sharing = {"vanilla": [], "data": [recv], "modmod": [modmod], "hybrid": [recv, modmod]}[method]
        shape = {"width": 8, "depth": 2, **net}
        raw = {"model": "modular-mlp", "agents": 2, "seeds": seeds, "net": shape, "sharing": sharing}
        return resolve({**SMALL, **raw})

    monkeypatch.setattr(confounds, "settings", small)
    done = call("reproduce", "confounds", "--dataset", "mnist", "--seeds", "2", "--out", "out")
    assert done.code == 0, done.err
    rows = {(row["method"], row["scope"], row["head"]): row for row in read_csv(Path("out/confounds.csv"))}
    assert len(rows) == 12
    for (method, scope, head), row in rows.items():
        alone = rows["vanilla", None, head]
        assert row is alone or row["auc_difference"] == pytest.approx(row["auc"] - alone["auc"], abs=2e-3)
        for other in confounds.SCOPES:
            base, found = rows["data", other, head], row[f"auc_difference_{other}"]
            if method == "modmod" or (method == "hybrid" and scope == other):
                assert found == pytest.approx(row["auc"] - base["auc"], abs=2e-3)
            else:
                assert found is None


def test_reductions_that_were_tried_are_a_line_each() -> None:
    one = {"width": 16, "train": 64, "epochs": 10, "batch": 16, "rate": 0.002, "seconds": 37.0}
    rows = [
        {**one, "model": "cnn", "validation_accuracy": 40.49},
        {**one, "model": "cnn", "epochs": 32, "validation_accuracy": 49.9},
        {**one, "model": "modular-cnn", "epochs": 32, "validation_accuracy": 48.0},
    ]
    assert reduced.tried(rows)[2:] == [
        "| 16 | 64 | 10 | 16 | 0.002 | 40.5 (37 s) |  |",
        "| 16 | 64 | 32 | 16 | 0.002 | 49.9 (37 s) | 48.0 (37 s) |",
    ]


def test_weights_are_changed_and_tasks_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def small(dataset: str, model: str, method: str, protocol: str, seeds: int) -> Settings:
        raw = {"model": "mlp", "protocol": protocol, "agents": 2, "seeds": seeds, "net": {"width": 8, "depth": 2}}
        return resolve({**SMALL, **raw})

    monkeypatch.setattr(weights, "settings", small)
    words = ("--dataset", "kmnist", "--model", "monolithic", "--method", "vanilla", "--seeds", "2", "--out", "out")
    done = call("reproduce", "weights", *words)
    assert done.code == 0, done.err
    (row,) = read_csv(Path("out/weights.csv"))
    assert row["final_accuracy_difference"] == pytest.approx(
        row["final_accuracy_again"] - row["final_accuracy"], abs=2e-3
    )
    assert row["final_accuracy_difference"] != 0
    assert row["final_accuracy_se_weights"] == pytest.approx(row["final_accuracy_difference_se"] / 2**0.5, abs=2e-3)
    said = " ".join(draws.luck([row]))
    assert f"monolithic vanilla on kmnist {row['final_accuracy']:.2f} and {row['final_accuracy_again']:.2f}" in said


def test_a_mixed_fleet_has_a_row_for_each_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    def small(file: Path, words: list[str]) -> Settings:
        tiny = ["tasks.count=6", "tasks.train=8", "tasks.validation=8", "learner.epochs=3", "net.width=8"]
        rhythm = [] if "sharing=none" in words else ["sharing.recv.every=1"]
        return read(file, [*words, "dataset=digits", "learner.batch=16", "learner.memory=4", *tiny, *rhythm])

    monkeypatch.setattr(mixed, "read", small)
    done = call("reproduce", "mixed", "--seeds", "1", "--out", "out")
    assert done.code == 0, done.err
    rows = read_csv(Path("out/mixed.csv"))
    assert {row["kind"] for row in rows} == {None, "rest", "shallow", "monolithic"}
    assert [row["final_accuracy_difference"] is None for row in rows] == [row["method"] == "vanilla" for row in rows]
    lines = tables.by_kind(rows)
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| monolithic", "| rest", "| shallow", "| all"]


def test_parts_of_modules_are_set_side_by_side() -> None:
    rows = [
        {"parts": parts, "routes": group, "pairs": 4, "gain": gain, "gain_se": error, "floats": 512, "bytes": 2048}
        for parts, gain, error in (("module", 1.5, 0.25), ("module+head", -0.5, None))
        for group in ("all", "none in common")
    ]
    assert tables.by_part(rows) == [
        "| received | all (4 routes) | none in common (4 routes) | floats | bytes |",
        "| --- | --- | --- | --- | --- |",
        "| module | +1.50 ± 0.25 | +1.50 ± 0.25 | 512 | 2,048 |",
        "| module + head | -0.50 | -0.50 | 512 | 2,048 |",
    ]


def test_codecs_are_set_beside_whole_models() -> None:
    rows = [
        {"method": name, "final_accuracy": 92.0, "final_accuracy_se": 0.25, "bytes_per_link_task": sent,
         "of_fedavg": share, "to_fedavg": gap, "to_fedavg_se": error}
        for name, sent, share, gap, error in (
            ("vanilla", 0, 0.0, 0.125, 0.5), ("fedavg", 2000.0, 1.0, 0.0, 0.0), ("int8", 500.0, 0.25, -0.125, 0.0625)
        )
    ]  # fmt: skip
    assert tables.by_codec(rows)[2:] == [
        "| agents alone | 92.00 ± 0.25 | 0.12 ± 0.50 | 0 |  |",
        "| fedavg | 92.00 ± 0.25 |  | 2,000 | 100.0 % |",
        "| int8 | 92.00 ± 0.25 | -0.12 ± 0.06 | 500 | 25.0 % |",
    ]


def test_dictionaries_have_a_line_for_each_number_of_images_and_a_column_for_each_network() -> None:
    rows = [
        {"images": images, "tasks": "even", "network": network, "final": 95.0, "final_se": 0.25, "single": 94.5,
         "single_sd": 0.75, "gain": 0.5, "gain_se": 0.125}
        for images in (4, 10) for network in ("alone", "ring")
    ]  # fmt: skip
    cell = "95.00 ± 0.25 (+0.50 ± 0.12)"
    assert tables.by_network(rows) == [
        "| images per class | single fits | alone | ring |",
        "| --- | --- | --- | --- |",
        *(f"| {images}, even | 94.50 ± 0.75 | {cell} | {cell} |" for images in (4, 10)),
    ]


def test_masks_and_heads_are_set_side_by_side() -> None:
    row = {"case": "masks as bits", "own": 99.0, "own_se": 0.5, "while_learned": 98.0, "zero_shot": 80.25}
    row |= {"zero_shot_se": None, "mapped": None, "free": None, "bytes_per_link": 2900}
    assert tables.by_backbone([row])[2] == "| masks as bits | 99.00 ± 0.50 | 98.00 | 80.25 |  |  | 2,900 |"


def test_modes_have_a_line_each_with_what_they_cost() -> None:
    row = {"sharing": "push", "final_accuracy": 83.54, "final_accuracy_se_seeds": 2.81, "auc_normalised": 76.83}
    row |= {"auc_normalised_se_seeds": None, "bytes_per_link_task": 3247.875}
    ends = ("", "_se", "_p")
    row |= {f"final_accuracy_difference{end}": one for end, one in zip(ends, (3.5, 0.5, 0.02), strict=True)}
    row |= {f"auc_normalised_difference{end}": one for end, one in zip(ends, (1.0, 0.9, 0.3), strict=True)}
    none = {**row, "sharing": "none", **{name: None for name in row if "_difference" in name}}
    assert tables.by_mode([none, row])[2:] == [
        "| none | 83.5 ± 2.8 |  | 76.8 |  | 3,248 |",
        "| push | 83.5 ± 2.8 | +3.50 ± 0.50 (p 0.040) | 76.8 | +1.00 ± 0.90 (p 0.300) | 3,248 |",
    ]


def test_of_fedweit_a_table_has_one_experiment_with_the_drift_that_was_chosen() -> None:
    rows = [
        {"experiment": experiment, "case": case, "drift": drift, "final": 77.25, "final_se": 2.5, "forgetting": -0.5,
         "while_learned": 60.25, "while_learned_se": None, "bytes_per_link_task": 127683, "part_bytes": 7523,
         "chosen": chosen}
        for experiment, case, drift, chosen in (
            ("digits", "replay alone", None, "yes"), ("digits", "decomposed alone", 1.0, None),
            ("digits", "decomposed alone", 10.0, "yes"), ("mnist", "replay alone", None, "yes"),
        )
    ]  # fmt: skip
    numbers = "77.25 ± 2.50 | -0.50 | 60.25 | 127,683 | 7,523 |"
    head, _, *lines = tables.by_case("digits")(rows)
    assert head.startswith("| digits | final accuracy, % | ")
    assert lines == [f"| replay alone | {numbers}", f"| decomposed alone (drift 10) | {numbers}"]


def test_gains_of_the_papers_modes_are_of_rows_that_all_datasets_have() -> None:
    def row(dataset: str, method: str, gain: float | None, **more: Any) -> dict[str, Any]:
        gains = {f"{name}_gain{end}": gain for name in ("final_accuracy", "auc") for end in ("", "_se")}
        head = {"protocol": "paper", "draw": "authors", "seeds": 8, "dataset": dataset, "model": "modular"}
        return {**head, "method": method, "bytes_per_link_task": 10830.1, **gains, **more}

    every = ("mnist", "kmnist", "fashionmnist", "combined")
    rows = [row(dataset, method, gain) for dataset in every for method, gain in (("vanilla", None), ("modmod", 0.5))]
    rows += [row("mnist", "fedavg", 1.5), row("mnist", "modmod", 9.5, draw="agent", seeds=2)]
    rows += [row(dataset, "modmod", 9.5, protocol="fair") for dataset in every]
    cells = " | ".join(["+0.50 ± 0.50 / +0.50 ± 0.50"] * 4)
    assert tables.by_gain(rows)[2:] == [f"| modular modmod | {cells} | 10,830 |"]


def test_rules_are_a_column_each_where_averaging_has_a_gain() -> None:
    rows = [
        {"protocol": protocol, "model": "mlp", "mode": mode, "defence": rule, "lie": lie, "liars": liars,
         "accuracy": accuracy}
        for protocol, mode, rule, lie, liars, accuracy in (
            ("alike", "alone", None, None, 0, 85.9), ("alike", "fedavg", "mean", None, 0, 91.31),
            ("alike", "fedavg", "median", None, 0, 91.07), ("alike", "fedavg", "mean", "sign-flip", 1, 79.09),
            ("short", "fedavg", "median", "sign-flip", 1, 81.21),
        )
    ]  # fmt: skip
    head, _, nobody, first, *_ = tables.by_rule(rows)
    assert (head, nobody, first) == (
        "| liars of 8 | mean | median |",
        "| nobody | 91.3 | 91.1 |",
        "| 1: sign-flip | 79.1 | - |",
    )


def test_what_a_part_adds_is_what_is_lost_without_it() -> None:
    rows = [
        {"parts": parts, "routes": "all", "seeds": 4, "lost": lost, "lost_se": error}
        for parts, lost, error in (
            ("structure+head", 1.5, 0.25),
            ("module+head", -0.5, 1.0),
            ("module+structure", 1, None),
        )
    ]
    assert tables.by_loss("it adds", tables.OTHERS)(rows)[2:] == [
        "| module | +1.50 ± 0.25 (p 0.019) |",  # 0.009, times the two that have a p
        "| structure | -0.50 ± 1.00 (p 0.651) |",
        "| head | +1.00 (p -) |",
    ]


def test_readme_says_what_of_the_gain_of_modules_needs_no_sharing() -> None:
    more = {"all": (1.82, 0.38), "a class in common": (4.71, 0.88), "none in common": (0.01, 0.32)}
    parts = [
        {"parts": "zero head", "routes": routes, "seeds": 4, "lost": lost, "lost_se": error}
        for routes, (lost, error) in more.items()
    ]
    made = tables.TABLES["parts-zero"].make(parts)
    assert made[2].endswith("| +1.82 ± 0.38 (p 0.038) | +4.71 ± 0.88 (p 0.038) | +0.01 ± 0.32 (p 0.977) |")


def test_scores_are_a_column_each_with_errors_over_seeds() -> None:
    rows = [
        {"metric": name, "seeds": 4, "pairs": 2400, "rho": rho, "rho_se": 0.01, "within": within, "within_se": None,
         "gain": 5.1, "gain_se": 0.4}
        for name, rho, within in (("iou", 0.19, 0.33), ("leep", 0.33, 0.62))
    ]  # fmt: skip
    assert tables.by_score(rows) == [
        "|  | iou | leep |",
        "| --- | --- | --- |",
        "| all pairs | 0.19 ± 0.01 (p <0.001) | 0.33 ± 0.01 (p <0.001) |",
        "| within a task | 0.33 (p -) | 0.62 (p -) |",
    ]
    (words,) = tables.scored(rows)
    assert words.startswith("4 seeds, 2,400 pairs in all: ")
    assert " gains +5.10 ± 0.40 points over a fresh start" in words


def test_a_table_that_nobody_makes_and_one_without_its_csv(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no table `nonsense`; allowed: compression, dropout, "):
        tables.filled(PAGE.format("nonsense"), tmp_path)
    assert made(tables.filled(PAGE.format("mixed"), tmp_path), "mixed") == ["Not measured yet: there is no mixed.csv."]
    (tmp_path / "plain.md").write_text("no marks")
    assert tables.fill(tmp_path / "plain.md", tmp_path) is None


def test_report_makes_the_tables_of_pages_anew(tmp_path: Path) -> None:
    docs = ROOT / "docs"
    for name in ("table1", "seeds"):
        write_csv(tmp_path / f"{name}.csv", read_csv(docs / "results" / f"{name}.csv"))
    (tmp_path / "page.md").write_text(PAGE.format("parts"))
    done = call("reproduce", "report", "--tables", tmp_path, "--figures", tmp_path / "figures")
    assert done.code == 0, done.err
    assert "Not measured yet" in (tmp_path / "page.md").read_text()


def test_pages_of_the_site_show_the_tables_of_the_csvs_that_they_link_to() -> None:
    docs = ROOT / "docs"
    named = [found for page in docs.glob("*.md") for found in tables.SHOWN.finditer(page.read_text())]
    assert len(named) > 25
    for link in named:
        assert link[0].endswith(f"(results/{tables.TABLES[link[1]].file}.csv)"), link[0]
        assert tables.lines_named(link[1], docs / "results"), link[0]
    page = tables.shown("Before.\n\n[table dropout](results/dropout.csv)\n\nAfter.\n", docs / "results")
    assert page.startswith("Before.\n\n|  | alone, dropout 0.5 | ")
    assert page.endswith(" |\n\nAfter.\n")
    assert not [name for name in docs.glob("*.md") if tables.MARKED.search(name.read_text())]


def test_pages_with_their_tables_can_be_had_without_the_site(tmp_path: Path) -> None:
    written = tables.write_shown(ROOT / "docs", ROOT / "docs" / "results", tmp_path)
    assert {file.name for file in written} == {"results.md"}
    for file in written:
        text = file.read_text()
        assert not tables.SHOWN.search(text)
        for link in re.findall(r"\]\((?!http)([^)#\s]+)", text):
            there = tmp_path / link
            assert there.exists() or "docs/reference/" in str(there.resolve()), f"{file.name} links to {link}"
