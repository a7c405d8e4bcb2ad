"""Fleets of several kinds: agents with other nets or learners than the rest, each kind in a stack of its own."""

import json
from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from shoal import data
from shoal.agents import received
from shoal.agents.evaluate import others
from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.agents.worlds import world, worlds
from shoal.configure.reading import override, read, resolve
from shoal.data.tasks import Lane
from shoal.errors import SettingsError
from shoal.fleet.run import simulate, train
from shoal.letters.ledger import Ledger
from shoal.letters.mail import ACCEPTED, OVER_BUDGET
from shoal.models.families import family
from shoal.models.table import GROWTH
from shoal.runs.record import Record
from shoal.settings.groups import Settings
from shoal.settings.writing import toml
from shoal.sharing.contract import Sharing
from shoal.sharing.modes import MODES
from tests.command import call
from tests.fleets import last_saved, plain, same, tables_of, total

RAW: dict[str, Any] = {
    "dataset": "digits",
    "agents": 4,
    "tasks": {"count": 3, "classes": 4, "initial": 1, "train": 6, "validation": 4, "common": False},
    "net": {"width": 16},
    "learner": {"epochs": 2, "batch": 16, "memory": 4, "rate": 3e-3, "accept": -1.0},
}
# The same fleet in two stacks and in three: nothing about its agents differs.
SPLITS = (
    [{"name": "odd", "agents": [3, 1]}],
    [{"name": "first", "agents": [0]}, {"name": "others", "agents": [2, 3]}],
)
FLAT = {"name": "flat", "agents": [2, 3], "model": "mlp"}


def settings_of(mode: str | None, kinds: Sequence[dict[str, Any]] = (), **changes: Any) -> Settings:
    raw = {**RAW, "sharing": tables_of(mode, 1) if mode else [], "kinds": list(kinds)}
    for name, value in changes.items():
        raw[name] = {**raw.get(name, {}), **value} if isinstance(value, dict) else value
    return resolve(plain(raw))  # settings of growth are for modular nets


def fleet(mode: str | None, kinds: Sequence[dict[str, Any]] = (), **changes: Any) -> tuple[World, ...]:
    return worlds(settings_of(mode, kinds, **changes), data.load("digits"))


@cache
def whole(model: str, mode: str | None) -> tuple[World, Stack]:
    """A fleet in one stack, at its end. Nobody may change it."""
    (one,) = fleet(mode, model=model)
    return one, simulate(one)


def kind_of(parts: Sequence[World], ledger: Ledger, end: str) -> np.ndarray:
    """In which stack the sender or receiver of each message is."""
    home = {lane.agent: at for at, part in enumerate(parts) for lane in part.lanes}
    return np.array([home[agent] for agent in ledger.column(end).tolist()])


def row_of(parts: Sequence[World], agent: int) -> int:
    """Where an agent of the first seed is in its stack."""
    return next(part.row[Lane(0, agent)] for part in parts if Lane(0, agent) in part.row)


def crossing(parts: Sequence[World], ledger: Ledger) -> np.ndarray:
    """Which messages go from one stack to another."""
    found: np.ndarray = kind_of(parts, ledger, "sender") != kind_of(parts, ledger, "receiver")
    return found


def same_as_one(one: World, want: Stack, parts: Sequence[World], found: Sequence[Stack]) -> None:
    """Several stacks hold what the one holds, and their ledger is the same, row for row."""
    assert sorted(lane for part in parts for lane in part.lanes) == sorted(one.lanes)
    for part, stack in zip(parts, found, strict=True):
        rows = want.take([one.row[lane] for lane in part.lanes], part.lanes)
        same(stack, rows)
        assert stack.ledger is found[0].ledger
    assert np.array_equal(found[0].ledger.rows, want.ledger.rows)
    assert found[0].ledger.words == want.ledger.words
    assert found[0].ledger.uses == want.ledger.uses


# A fleet in several stacks


@pytest.mark.parametrize("mode", ["recv", "fedavg"])
def test_a_fleet_cut_into_stacks_with_a_common_start_and_links_with_limits_ends_as_in_one(mode: str) -> None:
    """A kind has a joint agent of its own; where kinds do not differ, these do not either."""
    limits = {"graph": "complete", "budget": 1000, "every": 2}
    changes: dict[str, Any] = {"tasks": {"common": True}, "network": limits, "learner": {"epochs": 4}, "seeds": 2}
    (one,) = fleet(mode, **changes)
    parts = fleet(mode, SPLITS[1], **changes)
    found = train(parts)
    same_as_one(one, simulate(one), parts, found)
    assert len(set(found[0].ledger.column("verdict").tolist())) > 1


def test_zero_shot_on_others_tasks_asks_about_agents_of_all_kinds() -> None:
    one, want = whole("modular-mlp", None)
    parts = fleet(None, SPLITS[1], model="modular-mlp")
    found = others(list(zip(parts, train(parts), strict=True)))
    assert found == others([(one, want)])
    assert {(row.lane.agent, row.other) for row in found} > {(0, 2), (2, 0), (1, 3)}


def test_zero_shot_on_more_tasks_than_wanted_is_on_some_of_them() -> None:
    """The same in every run, and as accurate on each as where all are asked about."""
    (one,) = fleet(None, model="mlp")
    (stack,) = train([one])
    every = others([(one, stack)])
    most = max(Counter(row.lane for row in every).values())
    for wanted in (1, 2, most):
        tasks = one.settings.tasks.model_copy(update={"strangers": wanted})
        few = replace(one, settings=one.settings.model_copy(update={"tasks": tasks}))
        found = others([(few, stack)])
        assert found == others([(few, stack)])
        assert found == [row for row in every if row in found]
        full = Counter(row.lane for row in every)
        assert Counter(row.lane for row in found) == {lane: min(wanted, count) for lane, count in full.items()}
    assert most > 2


def test_the_number_of_threads_changes_nothing() -> None:
    """Pieces of all stacks go side by side: small stacks share the threads that one large stack would have."""
    one, two = (train(fleet("recv", [FLAT], machine={"threads": threads})) for threads in (1, 3))
    for stack, other in zip(one, two, strict=True):
        same(stack, other)


# Kinds that differ


def test_modules_go_between_nets_of_any_depth_with_head_and_structure_only_among_the_same() -> None:
    deep, flat = {"name": "deep", "agents": [1, 3], "net": {"depth": 5}}, {**FLAT, "agents": [0]}
    parts = fleet("modmod", [deep, flat], agents=5, model="modular-mlp", tasks={"common": True})
    stacks = train(parts)
    ledger = stacks[0].ledger
    modules = ledger.column("kind") == "modules"
    senders, receivers = (ledger.column(end)[modules] for end in ("sender", "receiver"))
    pairs = {(a, b) for a in (1, 2, 3, 4) for b in (1, 2, 3, 4) if a != b}  # agent 0 has no modules
    assert set(zip(senders.tolist(), receivers.tolist(), strict=True)) == pairs
    assert (ledger.column("verdict") == ACCEPTED).all()
    same_net = np.isin(senders, (1, 3)) == np.isin(receivers, (1, 3))
    module, head, structure = 16 * 16 + 16 + 2, 4 * 16 + 4 + 4, {True: 5 * 5, False: 5 * 4}
    whole = {module + head + structure[deep] for deep in (True, False)}
    assert set(ledger.column("floats")[modules][~same_net].tolist()) == {module}
    assert set(ledger.column("floats")[modules][same_net].tolist()) == whole
    homes = {lane.agent: stack for part, stack in zip(parts, stacks, strict=True) for lane in part.lanes}
    offered = {agent: homes[agent].of("modmod")["offers"][row_of(parts, agent)] for agent in range(5)}
    assert offered[0].isnan().all()
    assert all((offered[agent][..., 0] >= 0).any() for agent in (1, 2, 3, 4))


def test_modules_whose_shapes_fit_nobody_are_refused_before_anything_runs() -> None:
    with pytest.raises(SettingsError, match="no two agents that could exchange by `modmod` are connected"):
        settings_of("modmod", [{"name": "wide", "agents": [1], "net": {"width": 32}}], agents=2)
    wide = [{"name": f"kind{agent}", "agents": [agent], "net": {"width": 16 + 2 * agent}} for agent in (1, 2, 3)]
    with pytest.raises(SettingsError, match=r"agents of modular nets of the same kind of module and net\.width"):
        settings_of("modmod", wide)


def test_agents_that_share_nothing_learn_as_in_a_fleet_of_their_kind() -> None:
    parts = fleet(None, [FLAT, {"name": "deep", "agents": [1], "net": {"depth": 5}, "learner": {"rate": 1e-3}}])
    for part, stack in zip(parts, train(parts), strict=True):
        same(stack, simulate(world(part.settings, part.bank, part.lanes)))


@pytest.mark.parametrize("mode", ["recv", "simp", "uniform"])
def test_images_go_between_agents_of_any_nets(mode: str) -> None:
    parts = fleet(mode, [FLAT | {"net": {"width": 8}}])
    found = train(parts)
    ledger = found[0].ledger
    assert (ledger.column("verdict") == ACCEPTED).all()
    sent = (ledger.column("kind") != "question") & (ledger.column("items") > 0)
    ways = set(zip(kind_of(parts, ledger, "sender")[sent], kind_of(parts, ledger, "receiver")[sent], strict=True))
    assert ways == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert [stack.of(received.OWNER)["x"].shape[-1] for stack in found] == [
        16,
        8,
    ]  # as the receiver's own net reads them
    alone = train(fleet(None, [FLAT | {"net": {"width": 8}}]))
    for stack, lonely in zip(found, alone, strict=True):
        assert (stack.of(received.OWNER)["fill"].sum(1) > 0).all()
        assert not torch.equal(stack.params["module.weight"], lonely.params["module.weight"])


@pytest.mark.parametrize("mode", ["fedavg", "fedcurv"])
def test_models_go_between_agents_of_the_same_net_only(mode: str) -> None:
    parts = fleet(mode, [FLAT])
    found = train(parts)
    ends = zip(found[0].ledger.column("sender").tolist(), found[0].ledger.column("receiver").tolist(), strict=True)
    assert set(ends) == {(0, 1), (1, 0), (2, 3), (3, 2)}
    for part, stack in zip(parts, found, strict=True):
        same(stack, simulate(world(part.settings, part.bank, part.lanes)))
    # A kind that learns otherwise, but has the same net, can average.
    slow = train(fleet(mode, [{"name": "slow", "agents": [2, 3], "learner": {"rate": 1e-3}}]))
    assert len(slow[0].ledger) == 3 * len(found[0].ledger)


def test_without_a_budget_between_kinds_each_is_as_without_the_other() -> None:
    links = [{"sender": a, "receiver": b, "budget": 0} for a in range(4) for b in range(4) if (a < 2) != (b < 2)]
    parts = fleet("recv", [FLAT], network={"graph": "complete", "edges": links})
    found = train(parts)
    ledger = found[0].ledger
    across = crossing(parts, ledger)
    assert across.sum() > 0
    assert set(ledger.column("verdict")[across].tolist()) == {OVER_BUDGET}
    assert set(ledger.column("verdict")[~across].tolist()) == {ACCEPTED}
    apart = [simulate(world(part.settings, part.bank, part.lanes)) for part in parts]
    for stack, want in zip(found, apart, strict=True):
        same(stack, want)
    assert total(found[0]) == sum(map(total, apart)) > 0


def test_a_receiver_is_told_who_has_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """And judges by its own world: what agents of one kind accept from a sender, those of another may refuse."""
    heard: set[tuple[int, str]] = set()
    honest = MODES["uniform"].expects

    def noting(self: Sharing, world: World, kind: str, sender: Lane) -> Any:
        heard.add((sender.agent, world.settings.model))
        return {} if sender.agent == 0 and world.settings.model == "mlp" else honest(self, world, kind, sender)

    monkeypatch.setattr(MODES["uniform"], "expects", noting)
    ledger = train(fleet("uniform", [FLAT]))[0].ledger
    assert heard == {(agent, model) for agent in (0, 2) for model in ("mlp", "modular-mlp")}  # one of each kind
    rows = zip(*(ledger.column(name).tolist() for name in ("sender", "receiver", "verdict")), strict=True)
    assert {(a, b) for a, b, verdict in rows if verdict != ACCEPTED} == {(a, b) for a in (0, 1) for b in (2, 3)}


@pytest.mark.parametrize("common", [True, False])
def test_stopped_anywhere_a_mixed_fleet_ends_as_unbroken(common: bool, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"tasks": {"common": common}, "network": {"graph": "complete", "every": 2}}
    parts = fleet("recv", [FLAT, {"name": "deep", "agents": [0], "net": {"depth": 3}}], **changes)
    states: list[tuple[Stack, ...]] = []
    ends = train(parts, watch=lambda moment: states.append(deepcopy(moment.stacks)))
    assert len(ends[0].ledger)
    for state in states:
        record = Record(tmp_path, parts[0].fleet)
        record.save(state)
        saved = last_saved(record)
        assert saved is not None
        assert saved[0].ledger.uses == state[0].ledger.uses
        for stack, want in zip(train(parts, saved), ends, strict=True):
            same(stack, want)
            assert stack.ledger.uses == want.ledger.uses
            assert np.array_equal(stack.ledger.rows, want.ledger.rows)


# Settings


def test_a_kind_has_the_fleets_settings_where_it_is_silent() -> None:
    settings = settings_of("recv", [{"name": "deep", "agents": [3, 1], "net": {"depth": 5}, "learner": {"rate": 0.1}}])
    assert settings.members() == {"rest": (0, 2), "deep": (1, 3)}
    plain, deep = settings.of("rest"), settings.of("deep")
    assert plain == settings_of("recv")
    assert (deep.net.depth, deep.net.width, deep.learner.rate, deep.learner.batch) == (5, 16, 0.1, 16)
    assert deep == settings_of("recv", net={"depth": 5}, learner={"rate": 0.1})


def test_the_protocol_fills_what_a_kind_does_not_say_by_its_model() -> None:
    kinds = [{"name": "flat", "agents": [1], "model": "mlp"}, {"name": "eyes", "agents": [2], "model": "cnn"}]
    settings = resolve({"protocol": "paper", "dataset": "mnist", "kinds": kinds})
    assert [settings.of(name).learner.fresh_adam for name in settings.members()] == [True, False, False]
    assert [getattr(settings.of(name).net, "dropout_basis", None) for name in settings.members()] == [False, None, None]
    said = resolve({"protocol": "paper", "dataset": "mnist", "kinds": kinds, "learner": {"fresh_adam": True}})
    assert [said.of(name).learner.fresh_adam for name in said.members()] == [True, True, True]


def test_written_settings_are_the_same_when_read(tmp_path: Path) -> None:
    kinds = [{"name": "flat", "agents": [1], "model": "mlp"}, {"name": "eyes", "agents": [2], "model": "cnn"}]
    settings = resolve({"protocol": "paper", "dataset": "mnist", "kinds": kinds, "sharing": "recv"})
    (tmp_path / "settings.toml").write_text(toml(settings))
    assert read(tmp_path / "settings.toml") == settings
    assert read(tmp_path / "settings.toml").identity() == settings.identity()
    assert resolve(settings.model_dump()) == settings
    longer = read(tmp_path / "settings.toml", ["learner.epochs=20", "kinds.eyes.net.width=9", "kinds.flat.model=cnn"])
    assert {longer.of(name).learner.epochs for name in longer.members()} == {20}
    assert (longer.of("eyes").net.width, longer.of("flat").model) == (9, "cnn")


def test_without_kinds_a_run_has_the_name_it_always_had() -> None:
    before = {"draw": "agent", "validation": 50}
    assert resolve({"tasks": before}).identity() == "5fb48098"
    assert resolve({"sharing": "recv", "kinds": [], "tasks": before}).identity() == "e3cbc400"
    assert settings_of(None, SPLITS[0]).identity() != settings_of(None).identity()


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        ("deep", "`kinds` cannot be 'deep'; write a [[kinds]] table with name and agents for each kind"),
        ([{"name": "a"}], "`kinds[0].agents` is missing"),
        ([{"agents": [1]}], "`kinds[0].name` is missing"),
        ([{"name": "a b", "agents": [1]}], "`kinds[0].name` cannot be 'a b'; allowed: a unique name without spaces"),
        ([{"name": "rest", "agents": [1]}], "`kinds[0].name` cannot be 'rest', which is what agents of no kind"),
        (
            [{"name": "a", "agents": [1]}, {"name": "a", "agents": [2]}],
            "`kinds[1].name` cannot be 'a', which is another kind's name",
        ),
        ([{"name": "a", "agents": []}], "`kinds[0].agents` cannot be (); allowed: a list of agents"),
        ([{"name": "a", "agents": [-1]}], "`kinds[0].agents.0` cannot be -1"),
        ([{"name": "a", "agents": [4]}], "`kinds[0].agents` has agent 4, but with agents = 4 the last agent is 3"),
        ([{"name": "a", "agents": [1, 1]}], "`kinds[0].agents` has agent 1, which is listed twice"),
        (
            [{"name": "a", "agents": [1]}, {"name": "b", "agents": [0, 1]}],
            "`kinds[1].agents` has agent 1, which is of kind `a` already; list every agent once",
        ),
        ([{"name": "a", "agents": [1], "modle": "mlp"}], "unknown setting `kinds[0].modle`; did you mean"),
        ([{"name": "a", "agents": [1], "model": "mpl"}], "there is no model `mpl`; did you mean `mlp`?"),
        (
            [{"name": "a", "agents": [1], "net": {"depht": 3}}],
            "unknown setting `kinds[0].net.depht`; did you mean `kinds[0].net.depth`?",
        ),
        ([{"name": "a", "agents": [1], "net": {"depth": 0}}], "`kinds[0].net.depth` cannot be 0; allowed: a whole"),
        ([{"name": "a", "agents": [1], "net": 3}], "`kinds[0].net` is a group of settings, got 3"),
        (
            [{"name": "a", "agents": [1], "learner": {"epochs": 3}}],
            "`kinds[0].learner.epochs` cannot be 3, because learner.epochs = 2 and all agents have one clock",
        ),
        (
            [{"name": "a", "agents": [1], "learner": {"memory": 99}}],
            "kinds.a.learner.memory = 99 is more than the 24 training rows of a task",
        ),
        (
            [{"name": "a", "agents": [0, 2], "net": {"depth": 3}}],
            "no two agents that could exchange by `fedavg` are connected: it goes between agents of the same model",
        ),
    ],
)
def test_kinds_that_cannot_be_get_a_sentence(kinds: Any, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        resolve({**RAW, "kinds": kinds, "sharing": [{"mode": "fedavg", "every": 1}], "network": "ring"})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_words_for_a_kind_that_is_not_there_get_a_sentence() -> None:
    for words, message in (("kinds.a.model=mlp", "no kinds are described"), ("kinds.a=3", "say kinds.NAME.KEY=VALUE")):
        with pytest.raises(SettingsError, match=message):
            override({}, [words])
    with pytest.raises(SettingsError, match="the kinds are flat"):
        override({"kinds": [FLAT]}, ["kinds.deep.model=mlp"])


def test_a_mode_that_suits_some_kind_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def suits(self: Sharing, settings: Settings) -> None:
        if family(settings) == GROWTH:
            raise SettingsError("only for monolithic nets")

    monkeypatch.setattr(MODES["uniform"], "suits", suits)
    with pytest.raises(SettingsError, match="only for monolithic nets"):
        settings_of("uniform", SPLITS[0])
    ledger = train(fleet("uniform", [FLAT]))[0].ledger
    ends = set(zip(ledger.column("sender").tolist(), ledger.column("receiver").tolist(), strict=True))
    assert ends == {(2, 3), (3, 2)}
    with pytest.raises(SettingsError, match="no two agents that could exchange by `uniform` are connected"):
        settings_of("uniform", [{"name": "flat", "agents": [2], "model": "mlp"}])


def test_one_world_cannot_hold_several_kinds() -> None:
    with pytest.raises(ValueError, match="use `worlds`"):
        world(settings_of(None, [FLAT]), data.load("digits"))


# The command line


def test_a_mixed_fleet_is_checked_run_and_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    flat = {"name": "flat", "agents": [1], "model": "mlp"}
    kinds = [flat, {"name": "deep", "agents": [3], "net": {"depth": 3}}]
    tables = tables_of("recv+fedavg", 1)
    Path("mixed.toml").write_text(toml(resolve({**RAW, "tasks": {**RAW["tasks"], "common": True}, "sharing": tables})))
    words = [f"kinds={json.dumps(kinds).replace(':', ' =')}"]
    done = call("check", "mixed.toml", *words)
    assert done.code == 0, done.err
    said = " ".join(done.out.split())
    for part in (
        "rest 0, 2 modular-mlp 16 4 4", "flat 1 mlp 16 4 deep", "deep 3 modular-mlp 16 3 4",
        "rest flat deep rest recv, fedavg recv recv flat recv - recv deep recv recv -",
        "10 links: no limit", "2 links: no limit",
    ):  # fmt: skip
        assert part in said, done.out
    done = call("run", "mixed.toml", *words, "--out", "run")
    assert done.code == 0, done.err
    summary = json.loads(Path("run/summary.json").read_text())
    assert [kind["agents"] for kind in summary["kinds"].values()] == [[0, 2], [1], [3]]
    assert list(summary["kinds"]) == ["rest", "flat", "deep"]
    assert summary["model"] == "modular-mlp + mlp"
    final = [kind["final_accuracy"] for kind in summary["kinds"].values()]
    assert summary["final_accuracy"] == pytest.approx((2 * final[0] + final[1] + final[2]) / 4)
    for name, model in (("rest", "modular-mlp, agents 0, 2"), ("flat", "mlp, agents 1"), ("deep", "modular-mlp")):
        assert f"{name} ({model}" in done.out
        error = " ±" if name == "rest" else " %"  # one agent of one seed has none
        assert f"{summary['kinds'][name]['final_accuracy']:.2f}{error}" in done.out
    kinds_of = {0: "rest", 1: "flat", 2: "rest", 3: "deep"}
    for name in ("accuracy", "growth", "others"):
        table = pl.read_parquet(f"run/{name}.parquet")
        assert len(table)
        assert table["agent"].is_sorted()
        assert [kinds_of[agent] for agent in table["agent"]] == table["kind"].to_list()
    assert set(pl.read_parquet("run/growth.parquet")["kind"]) == {"rest", "deep"}
    assert "kind" in pl.read_parquet("run/ledger.parquet").columns  # of the message
    again = call("resume", "run")
    assert again.code == 0
    assert again.out == done.out


def test_the_settings_of_kinds_are_listed() -> None:
    done = call("list", "settings")
    assert done.code == 0
    for name in ("kinds", "kinds.name", "kinds.agents", "kinds.model", "kinds.net.*, kinds.learner.*"):
        assert name in done.out


def test_the_mixed_experiment_has_three_kinds() -> None:
    settings = read(Path("mixed"))
    kinds = [settings.of(name) for name in settings.members()]
    assert [(kind.model, kind.net.depth) for kind in kinds] == [("modular-mlp", 4), ("modular-mlp", 3), ("mlp", 4)]
    assert sorted(agent for agents in settings.members().values() for agent in agents) == list(range(9))
