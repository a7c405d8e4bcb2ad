"""Promise: ranks by hand, learning again against the run itself and the obvious way, the command and its files."""

import csv
import json
import shutil
from dataclasses import replace
from math import isnan, nan, sqrt
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
import torch
from safetensors.torch import save
from torch.nn import functional as F

from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.errors import SettingsError
from shoal.fleet.run import simulate
from shoal.learners.candidates import alive
from shoal.rng import key
from shoal.runs import checkpoints
from shoal.runs.about import FORMAT
from shoal.sharing import promises
from shoal.sharing.modmod import ModMod
from shoal_paper.transfer.measure import (
    Found,
    Route,
    Trial,
    before,
    delivered,
    offered,
    rank,
    routes_of,
    scored,
    spearman,
)
from shoal_paper.transfer.picture import number, picture
from tests.command import DIGITS, TINY, Done, call
from tests.fleets import fleet

SVG = "{http://www.w3.org/2000/svg}"
ALL = {"accept": -1}  # every candidate is kept


def quiet(done: int, total: int) -> None:
    pass


# Ranks


@pytest.mark.parametrize(
    ("x", "y", "rho"),
    [
        ([1, 2, 3], [10, 20, 1000], 1.0),
        ([1, 2, 3], [3, 2, 1], -1.0),
        ([1, 2, 3, 4], [2, 1, 4, 3], 0.6),  # 1 - 6 * 4 / (4 * 15)
        ([0, 0, 1], [5, 7, 9], sqrt(3) / 2),  # ranks 0.5, 0.5, 2 and 0, 1, 2
        ([1, 1, 2, 3], [1, 2, 3, 4], 3 / sqrt(10)),  # ranks 0.5, 0.5, 2, 3 and 0, 1, 2, 3
        ([1, 1, 2, 2], [1, 2, 1, 2], 0.0),
        ([1, 1, 2, 2], [0, 0, 0, 4], 1 / sqrt(3)),  # ranks 0.5, 0.5, 2.5, 2.5 and 1, 1, 1, 3
        ([-3, 0.1 + 0.2, 0.3], [1, 2, 2], 1.0),  # what rounding alone sets apart is equal
        ([1, 1, 1], [1, 2, 3], nan),
        ([1, 2, 3], [4, 4, 4], nan),
        ([1], [2], nan),
        ([], [], nan),
    ],
)
def test_rank_correlation_by_hand(x: list[float], y: list[float], rho: float) -> None:
    assert spearman(x, y) == pytest.approx(rho, abs=1e-12, nan_ok=True)
    assert spearman(y, x) == pytest.approx(rho, abs=1e-12, nan_ok=True)


def trials(*rows: tuple[int, float, float]) -> tuple[Trial, ...]:
    """Trials of (receiver, score, gain in points), each with a sender of its own."""
    return tuple(
        Trial(Route(agent, 5, 10 + at, 4), {"iou": score}, 0.5 + gain / 100, 0.5)
        for at, (agent, score, gain) in enumerate(rows)
    )


def test_a_receiver_ranks_its_own_offers_alone() -> None:
    # Within each task the score is right; across tasks it is wrong. The third has one offer, the fourth equal ones.
    made = trials((0, 1, 30), (0, 2, 40), (1, 3, 10), (1, 4, 20), (2, 9, 0), (3, 5, 1), (3, 5, 2), (3, nan, 50))
    found = rank("iou", made)
    assert found.within == 1.0
    assert (found.tasks, found.pairs, found.left) == (2, 7, 1)
    assert found.rho < -0.5
    none = rank("iou", trials((0, nan, 1)))
    assert isnan(none.rho)
    assert isnan(none.within)
    assert none[2:] == (0, 0, 1)


# Pairs and gains


def test_pairs_are_tasks_and_earlier_modules_of_others() -> None:
    world = fleet("modular-mlp", agents=2, tasks={"count": 7}, learner={"epochs": 1, **ALL})
    stack = simulate(world)
    alive(stack)[0, 5] = False  # agent 0's task 5
    assert routes_of(world, stack) == [
        Route(0, 5, 1, 4), Route(0, 6, 1, 4), Route(0, 6, 1, 5), Route(1, 5, 0, 4), Route(1, 6, 0, 4)
    ]  # fmt: skip


@pytest.mark.parametrize("common", [False, True])
def test_learning_again_ends_where_the_run_did(common: bool) -> None:
    """Where modules never change later, all that a run did after the initial tasks can be done again exactly."""
    world = fleet(
        "modular-mlp",
        tasks={"count": 7, "common": common},
        learner={"adaptation": "never", "epochs": 6, **ALL},
        sharing=[{"mode": "modmod", "min_similarity": -1.0}],
    )
    stack = simulate(world)
    routes = routes_of(world, stack)
    found = delivered(world, stack, routes, 6, quiet)
    taken = [
        route
        for route in routes
        if stack.of("modular")["origin"][route.agent, route.task].tolist() == [route.sender, route.source]
    ]
    assert len(taken) == 6
    for route in taken:
        assert found[route][0] == pytest.approx(float(stack.of("modular")["trial"][route.agent, route.task, 0]))
    alone = fleet("modular-mlp", tasks=world.settings.tasks.model_dump(), learner=world.settings.learner.model_dump())
    stack = simulate(alone)
    found = delivered(alone, stack, routes, 6, quiet)
    for route in routes:
        assert found[route][1] == pytest.approx(float(stack.of("modular")["trial"][route.agent, route.task, 0]))
    assert len({fresh for _, fresh in found.values()}) > 2


def by_hand(world: World, stack: Stack, route: Route, epochs: int, batch: int) -> float:
    """The accuracy with a received module, for one agent without dropout, the slow and obvious way."""
    agent, task, basis = route.agent, route.task, 4
    slot, source = basis + task - 4, basis + route.source - 4
    sent = stack.params
    mine, theirs = world.streams[agent][task].classes, world.streams[route.sender][route.source].classes
    head, bias = torch.zeros_like(sent["head.weight"][agent, task]), torch.zeros(len(mine))
    for at, one in enumerate(mine):
        if one in theirs:
            head[at] = sent["head.weight"][route.sender, route.source][theirs.index(one)]
            bias[at] = sent["head.bias"][route.sender, route.source][theirs.index(one)]
    logits = torch.zeros(slot + 1, stack.params["structure"].shape[-1])
    logits[:basis] = sent["structure"][route.sender, route.source, :basis]
    logits[slot] = sent["structure"][route.sender, route.source, source]
    weight, offset = (sent[f"module.{name}"][route.sender, source].clone() for name in ("weight", "bias"))
    own = [slot for slot in range(slot) if alive(stack)[agent, slot]]
    modules = [(stack.params["module.weight"][agent, one], stack.params["module.bias"][agent, one]) for one in own]

    def net(x: torch.Tensor, shown: bool) -> torch.Tensor:
        used = [*own, slot] if shown else own
        for depth in range(logits.shape[1]):
            shares = logits[used, depth].softmax(0)
            held = [*modules, (weight, offset)] if shown else modules
            outputs = [share * torch.relu(x @ w.T + b) for share, (w, b) in zip(shares, held, strict=True)]
            x = torch.stack(outputs).sum(0)
        return x @ head.T + bias

    trained = [weight, offset, logits, head, bias]
    for tensor in trained:
        tensor.requires_grad_()
    adam = torch.optim.Adam(trained, lr=world.settings.learner.rate)
    x, y = world.inputs[world.train.rows[agent, task]], world.train.labels[agent, task]
    for epoch in range(epochs):
        order = key(0, agent, "batches", "assimilate", task, epoch).permutation(len(x))
        for some in np.split(order, range(batch, len(x), batch)):
            for shown in (True, False):
                adam.zero_grad()
                F.cross_entropy(net(x[some], shown), y[some]).backward()
                adam.step()
    size = int(world.validation.sizes[agent, task])
    x, y = world.inputs[world.validation.rows[agent, task]][:size], world.validation.labels[agent, task][:size]
    return float((net(x, shown=True).argmax(1) == y).double().mean())


def test_learning_again_is_what_it_is_by_hand() -> None:
    world = fleet("modular-mlp", agents=2, tasks={"count": 7}, net={"dropout": 0.0}, learner=ALL)
    stack = simulate(world)
    routes = routes_of(world, stack)
    found = delivered(world, stack, routes, 5, quiet)
    for route in routes:
        assert found[route][0] == pytest.approx(by_hand(world, stack, route, 5, 16)), route
    assert len({received for received, _ in found.values()}) > 2


def test_a_module_of_the_very_same_task_gains_more_than_a_strangers() -> None:
    """Agent 1's task 4 has the classes of agent 0's task 5, in another order; agent 2's has none of them."""
    same, strange, scores = [], [], []
    for seed in (34, 55, 99, 159):
        world = fleet(
            "modular-mlp",
            seed=seed,
            tasks={"common": True, "train": 32},
            net={"width": 32, "depth": 2, "dropout": 0.0},
            learner={**ALL, "epochs": 15, "rate": 0.01},
        )
        mine, theirs, others = (set(world.streams[agent][task].classes) for agent, task in ((0, 5), (1, 4), (2, 4)))
        assert mine == theirs
        assert not mine & others
        stack = simulate(world)
        routes = [Route(0, 5, 1, 4), Route(0, 5, 2, 4)]
        assert scored(world, stack, "iou", routes) == ([1.0, 0.0], "")
        scores.append(scored(world, stack, "leep", routes)[0])
        found = delivered(world, stack, routes, 1, quiet)
        same.append(found[routes[0]][0] - found[routes[0]][1])
        strange.append(found[routes[1]][0] - found[routes[1]][1])
    assert np.mean(same) > np.mean(strange) + 0.1
    assert min(same) >= 0
    assert all(one > other for one, other in scores)


def test_a_pair_alone_is_as_among_all_and_nothing_is_changed() -> None:
    world = fleet("modular-mlp", agents=3, learner=ALL)
    stack = simulate(world)
    kept = {name: tensor.clone() for name, tensor in stack.tensors.items()}
    routes = routes_of(world, stack)
    all_ = delivered(world, stack, routes, 2, quiet)
    told: list[tuple[int, int]] = []
    assert delivered(world, stack, routes[-1:], 2, lambda *done: told.append(done))[routes[-1]] == all_[routes[-1]]
    assert told == [(2, 2)]
    scored(world, stack, "logme", routes)
    for name, tensor in stack.tensors.items():
        assert torch.equal(tensor.nan_to_num(), kept[name].nan_to_num()), name


def test_what_has_come_for_a_task_since_is_not_there_before_it() -> None:
    world = fleet("modular-mlp", learner=ALL, sharing=[{"mode": "recv", "every": 2}])
    stack = simulate(world)
    assert stack.of("received")["fill"][:, 5].any()
    past = before(world, stack, 5)
    assert not past.of("received")["fill"].any()
    assert not alive(past)[:, 5:].any()
    assert alive(past)[:, :5].all()
    assert (past.params["structure"][:, 5] == 1).all()
    assert not any(tensor.any() for tensor in past.of("mean").values())


def test_an_offer_is_what_a_sender_would_send() -> None:
    world = fleet("modular-mlp", learner=ALL, tasks={"common": True})
    stack = simulate(world)
    parts = offered(world, stack, Route(0, 5, 2, 4)).parts
    assert torch.equal(parts["module.weight"], stack.params["module.weight"][2, 4])
    assert torch.equal(parts["head.weight"], stack.params["head.weight"][2, 4])
    assert parts.keys() == ModMod().expects(world, "modules", world.lanes[2]).keys()


def test_convolutions_and_spare_slots_can_be_learned_again_too() -> None:
    world = fleet("modular-cnn", learner=ALL, sharing=[{"mode": "modmod", "extra_random": True}])
    stack = simulate(world)
    routes = routes_of(world, stack)
    assert len(routes) == 2
    assert all(0 <= one <= 1 for pair in delivered(world, stack, routes, 2, quiet).values() for one in pair)
    assert np.isfinite(scored(world, stack, "leep", routes)[0]).all()


def test_a_task_of_one_class_in_validation_is_left_out() -> None:
    world = fleet("modular-mlp", learner=ALL)
    stack = simulate(world)
    streams = list(world.streams)
    tasks = list(streams[1])
    tasks[5] = replace(tasks[5], validation=tasks[5].validation[tasks[5].labels(world.bank, tasks[5].validation) == 0])
    streams[1] = type(streams[1])(tuple(tasks))
    world = replace(world, streams=tuple(streams))
    routes = routes_of(world, stack)
    scores, why = scored(world, stack, "leep", routes)
    assert [isnan(score) for score in scores] == [route.agent == 1 for route in routes]
    assert "leep of a task with one class says nothing" in why
    assert not any(map(isnan, scored(world, stack, "iou", routes)[0]))


# Picture


def made(**changes: Any) -> Found:
    rows = ((0, 0.0, 30.0), (0, 1.0, -40.0), (1, 0.5, 10.0), (1, nan, 0.0))
    return replace(Found(3, 20, ("iou",), trials(*rows), {"iou": "it is so"}), **changes)


def test_a_picture_has_a_cell_for_each_pair_in_each_panel_and_a_dot_for_each_score() -> None:
    svg = ET.fromstring(picture(made(), 'a <b> & "c" \0 ü'))
    assert svg.tag == f"{SVG}svg"
    assert svg.attrib["role"] == "img"
    assert (svg[0].tag, svg[0].text) == (f"{SVG}title", 'a <b> & "c" ? ü')
    assert svg[1].tag == f"{SVG}desc"
    assert "4 pairs" in (svg[1].text or "")
    panels = svg.findall(f"{SVG}g")
    assert len(panels) == 2
    for panel in panels:
        cells = [rect for rect in panel.findall(f"{SVG}rect") if rect.find(f"{SVG}title") is not None]
        assert len(cells) == 4
    assert [len(panel.findall(f"{SVG}circle")) for panel in panels] == [3, 0]
    titles = [text.text for text in svg.iter(f"{SVG}title")]
    assert "10:4 to 0:5, iou 0.00" in titles
    assert "13:4 to 1:5, iou undefined" in titles
    assert "11:4 to 0:5, gain -40" in titles
    words = [text.text or "" for text in svg.iter(f"{SVG}text")]
    assert "blank: no score (1 pair)" in words
    assert {"0:5", "1:5", "10:4", "0.00", "1.00"} <= set(words)
    assert any(word.startswith("gain: rho -1.00, within a task -1.00") for word in words)
    width, height = float(svg.attrib["width"]), float(svg.attrib["height"])
    assert all(0 < float(text.get("x", 1)) < width for text in svg.iter(f"{SVG}text"))
    assert height > 300


def test_a_picture_needs_nothing_else_and_is_for_light_and_dark_pages() -> None:
    text = picture(made(), "title")
    assert text == picture(made(), "title")
    assert "prefers-color-scheme: dark" in text
    assert text.count("http") == 1  # the name space
    assert "nan" not in text


@pytest.mark.parametrize("rows", [((0, 1.0, 0.0),), ((0, nan, 5.0), (1, nan, 5.0)), ((0, 1.0, 2.0), (0, 1.0, 2.0))])
def test_a_picture_of_constants_is_a_picture(rows: tuple[tuple[int, float, float], ...]) -> None:
    text = picture(made(trials=trials(*rows)), "title")
    ET.fromstring(text)
    assert "nan" not in text
    assert "rho undefined" in text


def test_a_picture_of_a_large_fleet_names_agents_alone() -> None:
    many = tuple(
        Trial(Route(a, t, b, u), {"iou": 0.5}, 0.5, 0.25) for a in range(20) for b in range(20) if a != b
        for t in range(5, 10) for u in range(4, t)
    )  # fmt: skip
    svg = ET.fromstring(picture(made(trials=many), "title"))
    words = [text.text or "" for text in svg.iter(f"{SVG}text")]
    assert words.count("19") == 4
    assert not any(word.startswith("19:") for word in words)
    assert float(svg.attrib["width"]) < 1400


# The command


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two seeds, 10 and 11, with a module for every task."""
    folder = tmp_path_factory.mktemp("finished") / "fish"
    done = call("run", DIGITS, *TINY, "tasks.count=7", "learner.accept=-1", "--out", folder)
    assert done.code == 0, done.err
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def refused(done: Done, *parts: str) -> None:
    """Exit code 2, nothing on stdout or disk, and on stderr one sentence that has all `parts`."""
    assert (done.code, done.out) == (2, ""), done
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1, done.err
    for part in parts:
        assert part in done.err, done.err
    assert not [path for path in Path().iterdir() if path.suffix in (".svg", ".csv")]


def test_the_command_writes_a_picture_and_a_table_and_leaves_the_run_alone(finished: Path) -> None:
    kept = contents(finished)
    done = call("transfer", finished, "--epochs", 2)
    assert (done.code, done.err) == (0, "written to fish-transfer.svg and fish-transfer.csv\n")
    assert sorted(path.name for path in Path().iterdir()) == ["fish-transfer.csv", "fish-transfer.svg"]
    assert contents(finished) == kept
    lines = done.out.splitlines()
    assert lines[0].split() == [
        "metric",
        "rho,",
        "all",
        "pairs",
        "rho,",
        "within",
        "a",
        "task",
        "tasks",
        "pairs",
        "left",
        "out",
    ]
    assert lines[1].split()[0] == "iou"
    assert lines[1].split()[-2:] == ["6", "0"]
    assert lines[2].startswith("seed 10, 6 pairs: after 2 epochs a received module gains ")
    ET.parse("fish-transfer.svg")
    again = call("transfer", finished, "--epochs", 2, "--out", "again.svg")
    assert again.out == done.out
    for ending in ("svg", "csv"):
        assert Path(f"again.{ending}").read_bytes() == Path(f"fish-transfer.{ending}").read_bytes()


def test_the_table_has_every_pair_and_json_says_what_it_shows(finished: Path) -> None:
    words = ("--metric", "leep", "--metric", "iou", "--metric", "leep", "--epochs", 1, "--seed", 11)
    done = call("transfer", finished, *words, "--out", "x.svg", "--json")
    assert done.code == 0, done.err
    said = json.loads(done.out)
    assert (said["seed"], said["epochs"], said["pairs"], said["receivers"]) == (11, 1, 6, 4)
    assert (said["out"], said["csv"]) == ("x.svg", "x.csv")
    assert list(said["metrics"]) == ["leep", "iou"]
    with Path("x.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == [
        "seed", "agent", "task", "sender", "source", "leep", "iou", "received", "fresh", "gain"
    ]  # fmt: skip
    assert [tuple(int(row[name]) for name in Route._fields) for row in rows] == [
        (0, 5, 1, 4), (0, 6, 1, 4), (0, 6, 1, 5), (1, 5, 0, 4), (1, 6, 0, 4), (1, 6, 0, 5)
    ]  # fmt: skip
    for row in rows:
        assert row["seed"] == "11"
        assert float(row["gain"]) == pytest.approx(float(row["received"]) - float(row["fresh"]))
        assert 0 <= float(row["iou"]) <= 1
        assert float(row["leep"] or -1) <= 0
    assert said["gain"] == pytest.approx(np.mean([float(row["gain"]) for row in rows]))
    one = said["metrics"]["iou"]
    rho = spearman([float(row["iou"]) for row in rows], [float(row["gain"]) for row in rows])
    assert one["rho"] == (None if isnan(rho) else pytest.approx(rho))
    assert one["pairs"] + one["left"] == 6


def test_several_seeds_have_a_picture_each_and_their_mean(finished: Path) -> None:
    done = call("transfer", finished, "--epochs", 1, "--seed", 11, "--seed", 10, "--seed", 11)
    assert done.code == 0, done.err
    assert sorted(path.name for path in Path().glob("*.svg")) == ["fish-transfer-10.svg", "fish-transfer-11.svg"]
    single = []
    for seed in (10, 11):
        alone = call("transfer", finished, "--epochs", 1, "--seed", seed, "--json", "--out", "alone.svg")
        single.append(json.loads(alone.out)["gain"])
        assert Path("alone.csv").read_bytes() == Path(f"fish-transfer-{seed}.csv").read_bytes()
    mean, error = np.mean(single), abs(single[0] - single[1]) / 2
    assert done.out.splitlines()[-1] == (
        f"mean of 2 seeds ± standard error; a received module gains {number(mean, '+.2f')} ± {number(error, '.2f')} "
        "points over a fresh one"
    )
    (row,) = csv.DictReader(Path("fish-transfer-means.csv").read_text().splitlines())
    assert (row["metric"], row["seeds"], row["pairs"]) == ("iou", "2", "12")
    assert [float(row["gain"]), float(row["gain_se"])] == pytest.approx([mean, error], abs=1e-3)


def test_several_seeds_as_json_end_with_their_means_and_wrong_ones_come_first(finished: Path) -> None:
    refused(call("transfer", finished, "--seed", 10, "--seed", 99), "has no seed 99")
    assert not list(Path().iterdir())
    done = call("transfer", finished, "--epochs", 1, "--seed", 10, "--seed", 11, "--json")
    one, two, means = (json.loads(line) for line in done.out.splitlines())
    assert (one["seed"], two["seed"], means["seeds"]) == (10, 11, 2)
    assert means["gain"] == pytest.approx([(one["gain"] + two["gain"]) / 2, abs(one["gain"] - two["gain"]) / 2])


def test_what_is_left_out_is_counted(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any) -> None:
        raise SettingsError("this says nothing")

    monkeypatch.setattr(promises, "seen", refuse)
    done = call("transfer", finished, "--epochs", 1)
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[1].split() == ["iou", "undefined", "undefined", "0", "0", "6"]
    assert lines[3] == "left out because this says nothing"
    assert json.loads(call("transfer", finished, "--epochs", 1, "--json").out)["metrics"]["iou"]["rho"] is None
    assert Path("fish-transfer.csv").read_text().splitlines()[1].startswith("10,0,5,1,4,,")


def test_what_cannot_be_shown_is_said_in_one_sentence(finished: Path) -> None:
    refused(call("transfer", "nowhere"), "nowhere is not a run directory")
    refused(call("transfer", finished, "--metric", "leap"), "unknown metric `leap`; did you mean `leep`?", "otce")
    refused(call("transfer", finished, "--metric", "zzz"), "unknown metric `zzz`; allowed: iou, leep")
    refused(call("transfer", finished, "--seed", 12), "has no seed 12, it has seeds 10 to 11; give one")
    refused(call("transfer", finished, "--out", "x.png"), "the picture cannot be x.png")
    refused(call("transfer", finished, "--out", "gone/x.svg"), "cannot write gone/x.svg: there is no folder gone")
    Path("x.svg").mkdir()
    done = call("transfer", finished, "--epochs", 1, "--out", "x.svg")
    assert (done.code, done.out) == (2, "")
    assert "cannot write x.svg: it is a folder" in done.err


def test_a_run_that_cannot_be_used_is_said_in_one_sentence(finished: Path) -> None:
    again = "make it again with `shoal run run/settings.toml`"
    shutil.copytree(finished, "run", ignore=shutil.ignore_patterns("manifest.json"))
    run = Path("run")
    (run / "about.json").write_text((run / "about.json").read_text().replace(f'"format": {FORMAT}', '"format": 1'))
    refused(call("transfer", run), f"run has format 1, this shoal reads the checkpoints of format {FORMAT}", again)
    shutil.copy(finished / "about.json", run)
    content = (run / "checkpoint.safetensors").read_bytes()
    (run / "checkpoint.safetensors").write_bytes(content[:-1])
    refused(call("transfer", run), "checkpoint.safetensors is damaged", "make the run again with")
    held = checkpoints.opened(finished / "checkpoint.safetensors", torch.device("cpu"))
    forged = {**held.tensors, "memory/y": torch.full_like(held.tensors["memory/y"], 10**6)}
    said = {**held.about, "digest": checkpoints.digest(held.about, forged)}
    (run / "checkpoint.safetensors").write_bytes(save(forged, said))
    refused(call("transfer", run), "checkpoint.safetensors is damaged", "`memory/y` has 1e+06")
    (run / "checkpoint.safetensors").unlink()
    refused(call("transfer", run), "checkpoint.safetensors is missing", again)
    (run / "summary.json").unlink()
    refused(call("transfer", run), "run is not finished; go on with `shoal resume run`")


def test_nets_without_modules_or_without_a_kept_one_have_nothing_to_show() -> None:
    words = ("run", DIGITS, *TINY, "learner.epochs=1", "--seeds", 1, "--out")
    assert call(*words, "whole", "model=mlp").code == 0
    refused(
        call("transfer", "whole"), 'whole has no modules: its model is `mlp`; give a run with model = "modular-mlp"'
    )
    assert call(*words, "bare", "learner.accept=9").code == 0
    refused(call("transfer", "bare"), "bare has no modules to compare: in seed 10 no agent kept one")
    refused(call("transfer", "bare", "--seed", 11), "bare has no seed 11, it has seed 10 alone")
