"""Scenarios: every one makes streams that are disjoint, the same every time, and can be learned."""

import tomllib
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from pydantic import Field, PositiveInt

import shoal
from shoal import data
from shoal.agents.evaluate import correct
from shoal.agents.lanes import streams_of
from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.agents.worlds import worlds
from shoal.configure.reading import override, resolve
from shoal.contracts.fleets import difference, saved
from shoal.data import Bank
from shoal.data.by_classes import by_classes
from shoal.data.draws import Random
from shoal.data.overlap import MOST, couples, overlap, pairs
from shoal.data.scenarios import SCENARIOS, by_name, streams
from shoal.data.sources import bring
from shoal.data.tasks import JOINT, Lane, Stream, lanes_of
from shoal.data.views import Permuted, turned
from shoal.errors import SettingsError
from shoal.fleet.run import Moment, train
from shoal.settings.groups import Settings, Tasks
from shoal.settings.writing import toml
from shoal.testing import check_scenario

FEW: dict[str, Any] = {"count": 3, "train": 8, "validation": 4, "initial": 1, "common": False}
SMALL: dict[str, Any] = {"net": {"width": 8, "depth": 2}, "learner": {"epochs": 3, "batch": 16, "memory": 6}}


def sites() -> Bank:
    """Digits of three sites, with tasks and times."""
    digits = data.load("digits")
    at = np.arange(600)
    task, time = at // 200, at.astype(float)
    found = shoal.Data.from_arrays(digits.images[:600], digits.labels[:600], agent=at % 3, task=task, time=time)
    return found.bank


def chosen(scenario: str, **changes: Any) -> Settings:
    """A fleet of three agents in a scenario, with classes enough where the data says what a task is."""
    tasks = FEW | {"scenario": scenario, "classes": 10 if scenario in ("given", "time", "drift") else 2}
    if scenario in ("dirichlet", "shards", "own"):
        tasks |= {"count": 5}
    return Settings(agents=3, model="mlp", tasks=tasks | changes, **SMALL)


def bank_of(scenario: str) -> Bank:
    return sites() if scenario in ("given", "time", "drift", "own") else data.load("digits")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_makes_disjoint_streams_of_the_right_classes(scenario: str) -> None:
    bank, settings = bank_of(scenario), chosen(scenario, **({"overlap": 0.5} if scenario == "overlap" else {}))
    lanes = lanes_of(settings)
    made = streams(bank, settings, lanes)
    again = streams(bank, settings, lanes[1:])
    for stream, other in zip(made[1:], again, strict=True):
        for task, same in zip(stream, other, strict=True):
            assert task.classes == same.classes
            for name in ("train", "validation", "test"):
                assert np.array_equal(getattr(task, name), getattr(same, name))
    for stream in made:
        held: dict[str, set[int]] = {"train": set(), "validation": set(), "test": set()}
        for task in stream[: stream.end]:
            for name in held:
                rows = bank.base(getattr(task, name))
                assert set(bank.labels[rows]) <= set(task.classes)
                assert (bank.test[rows] == (name == "test")).all()
                held[name] |= set(rows.tolist())
        assert not held["train"] & held["validation"]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_says_in_a_sentence_what_it_is(scenario: str) -> None:
    said = (SCENARIOS[scenario].__doc__ or "").strip()
    assert said[0].isupper()
    assert said.endswith(".")


@pytest.mark.parametrize("scenario", ["dirichlet", "shards", "own", "given", "time", "drift", "permuted", "rotated"])
def test_agents_with_rows_of_their_own_have_no_common_start(scenario: str) -> None:
    settings = chosen(scenario, common=True)
    with pytest.raises(SettingsError, match=r"say tasks\.common=false"):
        streams(bank_of(scenario), settings, lanes_of(settings))


@pytest.mark.parametrize("scenario", ["dirichlet", "shards", "own"])
def test_dealt_rows_belong_to_one_agent(scenario: str) -> None:
    bank, settings = data.load("digits"), chosen(scenario)
    mine = [
        {int(row) for task in stream for row in (*task.train, *task.validation)}
        for stream in streams(bank, settings, lanes_of(settings))
    ]
    assert not mine[0] & mine[1]
    assert not mine[0] & mine[2]
    assert not mine[1] & mine[2]


def test_agents_of_one_source_share_the_rows_of_its_tasks() -> None:
    found = shoal.Data.from_arrays(np.arange(200.0)[:, None], np.arange(200) % 2, time=np.arange(200))
    settings = Settings(dataset=bring(found), agents=4)
    made = streams(found.bank, settings, lanes_of(settings))
    for at in range(settings.tasks.count):
        rows = [set(stream[at].train) | set(stream[at].validation) for stream in made]
        assert sum(map(len, rows)) == len(set.union(*rows))


def test_time_cuts_by_count_by_period_and_by_label() -> None:
    time = np.repeat([0.0, 10.0, 20.0, 30.0], 25)
    label = np.repeat([0, 1, 2, 0], 25)
    bank = shoal.Data.from_arrays(np.arange(100.0)[:, None], label, time=time).bank

    def ends(**changes: Any) -> list[set[float]]:
        settings = chosen("time", **changes).model_copy(update={"agents": 1})
        (stream,) = streams(bank, settings, [Lane(0, 0)])
        return [set(time[task.test]) for task in stream[: stream.end]]

    assert ends(count=2) == [{0.0, 10.0}, {20.0, 30.0}]
    assert ends(count=4, cut="period", period=10.0) == [{0.0}, {10.0}, {20.0}, {30.0}]
    assert ends(count=2, cut="label", classes=2) == [{0.0, 10.0}, {20.0, 30.0}]


def test_a_class_that_would_be_alone_is_told_apart_from_another() -> None:
    x = np.random.default_rng(0).normal(size=(90, 2))
    bank = shoal.Data.from_arrays(x, np.arange(90) % 3).bank
    settings = chosen("own", count=2)
    for stream in streams(bank, settings, lanes_of(settings)):
        assert [len(task.classes) for task in stream] == [2, 2]


# Views


def test_views_permute_and_turn_the_same_rows() -> None:
    images = np.random.default_rng(0).integers(0, 255, (5, 8, 8)).astype(np.uint8)
    assert np.array_equal(Permuted()(images, 0), images)
    one, other = Permuted()(images, 1), Permuted()(images, 2)
    assert not np.array_equal(one, other)
    assert np.array_equal(np.sort(one.reshape(5, -1)), np.sort(images.reshape(5, -1)))
    assert np.array_equal(turned(images, 360), images)
    assert np.array_equal(turned(images, 90), np.rot90(images, axes=(1, 2)))
    assert np.array_equal(turned(images[:, None].repeat(3, 1), 180)[:, 1], np.rot90(images, 2, axes=(1, 2)))
    half = turned(np.full((1, 9, 9), 100, np.uint8), 45)
    assert half[0, 4, 4] == 100
    assert half[0, 0, 0] == 0


def test_views_are_the_same_for_all_agents_and_seeds() -> None:
    settings = chosen("permuted", count=2)
    (world,) = worlds(settings.model_copy(update={"seeds": 2}), data.load("digits"))
    assert {lane.seed for lane in world.lanes} == {0, 1}
    seen: dict[int, np.ndarray] = {}
    met = 0
    for stream in world.streams:
        for row, picture in zip(stream[1].train.tolist(), world.bank.take(stream[1].train), strict=True):
            met += row in seen
            assert np.array_equal(seen.setdefault(row, picture), picture)
    assert met


def three(tasks: Sequence[Sequence[int]]) -> Bank:
    """Three classes that a line can tell apart, in tasks of an agent's own."""
    rng = np.random.default_rng(0)
    y = np.concatenate([np.repeat(one, 60 // len(one)) for one in tasks])
    task = np.repeat(np.arange(len(tasks)), 60)
    x = 4 * np.eye(3)[y] + rng.normal(scale=0.3, size=(len(y), 3))
    return shoal.Data.from_arrays(x, np.array(["A", "B", "C"])[y], task=task).bank


def given_tasks(heads: str, learner: str = "joint") -> Settings:
    tasks = {"scenario": "given", "count": 2, "classes": 2, "initial": 1, "common": False, "heads": heads}
    return Settings(agents=1, model="mlp", tasks=tasks, net={"width": 16, "depth": 2, "dropout": 0.0},
                    learner={"method": learner, "epochs": 20, "batch": 16, "rate": 0.01})  # fmt: skip


@pytest.mark.parametrize("heads", ["task", "one", "grow"])
def test_a_class_that_comes_back_beside_another_is_the_same_output(heads: str) -> None:
    (world,) = worlds(given_tasks(heads), three([[0, 1], [1, 2]]))
    (stack,) = train([world])
    assert stack.params["head.weight"].shape[-2] == (2 if heads == "task" else 3)
    assert float(stack.accuracy[0, -1, -1].mean()) == 1.0


def test_one_head_stands_for_the_classes_of_the_data_unless_a_scenario_means_places() -> None:
    for scenario in ("drawn", "split", "dirichlet", "permuted", "rotated", "parity"):
        made = streams(data.load("digits"), chosen(scenario, heads="one"), lanes_of(chosen(scenario)))
        places = scenario in ("permuted", "rotated", "parity")
        assert all(len(task.outputs) == (2 if places else 10) for stream in made for task in stream[: stream.end])
        assert by_name(chosen(scenario, heads="one").tasks) is not places


@pytest.mark.parametrize("scenario", ["split", "parity"])
def test_classes_can_come_in_an_order_that_the_seed_draws(scenario: str) -> None:
    def classes(**said: Any) -> dict[Lane, list[tuple[int, ...]]]:
        settings = chosen(scenario, heads="one", count=5, classes=2, replacement=False, **said)
        found = lanes_of(settings)
        dealt = streams(data.load("digits"), settings, found)
        return {lane: [task.classes for task in stream] for lane, stream in zip(found, dealt, strict=True)}

    plain, drawn = classes(), classes(shuffled=True)
    assert set(map(tuple, plain.values())) == {((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))}
    by_seed = {lane.seed: found for lane, found in drawn.items()}
    assert all(found == by_seed[lane.seed] for lane, found in drawn.items())
    assert all(sorted(sum(found, ())) == list(range(10)) for found in by_seed.values())
    more = classes(shuffled=True)
    assert more == drawn != plain


def test_a_class_with_two_places_is_refused_where_outputs_are_places() -> None:
    fit, mixed = (chosen("parity", heads="one", count=count, classes=2) for count in (5, 6))
    assert len(streams(data.load("digits"), fit, lanes_of(fit))) == 3
    assert len(streams(data.load("digits"), mixed, lanes_of(mixed))) == 3  # they come back at the same places
    odd = chosen("parity", heads="one", count=4, classes=3)
    with pytest.raises(
        SettingsError, match=r"the class digits/0 of `digits` has place 1 in one task and 2 in another; take"
    ):
        streams(data.load("digits"), odd, lanes_of(odd))


@pytest.mark.parametrize("scenario", ["permuted", "rotated"])
@pytest.mark.parametrize("heads", ["task", "one"])
def test_views_can_be_learned_and_sent(scenario: str, heads: str) -> None:
    settings = Settings(
        agents=2, model="mlp", tasks=FEW | {"scenario": scenario, "heads": heads}, sharing=RECV, **SMALL
    )
    (world,) = worlds(settings, data.load("digits"))
    first, second = world.streams[0][0], world.streams[0][1]
    assert np.array_equal(world.bank.take(first.train), world.bank.images[first.train])
    raw = world.bank.images[world.bank.base(second.train)]
    assert world.bank.view is not None
    assert np.array_equal(world.bank.take(second.train), world.bank.view(raw, 1))
    (stack,) = train([world])
    assert stack.accuracy[:, 2, -1, :3].isfinite().all()


def test_rows_of_a_table_are_not_turned() -> None:
    found = shoal.Data.from_arrays(np.arange(200.0).reshape(50, 4), np.arange(50) % 2)
    with pytest.raises(SettingsError, match=r"only pictures can be turned; use tasks\.scenario = \"permuted\""):
        worlds(Settings(dataset=bring(found), tasks={"scenario": "rotated"}), found.bank)


# Overlap


def test_the_measured_overlap_rises_with_the_dial() -> None:
    bank = data.load("digits")
    found = []
    for dial in (0.0, 0.3, 0.7, 1.0):
        settings = chosen("overlap", overlap=dial, count=4).model_copy(update={"seeds": 6})
        lanes = lanes_of(settings)
        found.append(overlap(pairs(bank, dict(zip(lanes, streams(bank, settings, lanes), strict=True)))))
    ious = [one["iou"] for one in found if one["iou"] is not None]
    apart = [one["labels"] for one in found if one["labels"] is not None]
    assert ious == sorted(ious)
    assert (ious[0], ious[-1]) == (0.0, 1.0)
    assert apart == sorted(apart, reverse=True)
    assert apart[0] == pytest.approx(1)


def test_a_common_start_has_no_classes_that_are_an_agents_own() -> None:
    bank = data.load("digits")
    alone, common = (
        [{one for task in stream[2:] for one in task.classes} for stream in streams(bank, settings, lanes_of(settings))]
        for settings in (chosen("overlap", overlap=dial, count=6, initial=2, common=True) for dial in (0.0, 1.0))
    )
    joint = streams(bank, chosen("overlap", overlap=0.0, count=6, initial=2, common=True), [Lane(0, JOINT)])[0]
    like = streams(bank, chosen("overlap", overlap=1.0, count=6, initial=2, common=True), [Lane(0, JOINT)])[0]
    assert [task.classes for task in joint] == [task.classes for task in like]
    assert not alone[0] & alone[1]
    assert common[0] == common[1]


def test_agents_that_read_other_numbers_are_apart() -> None:
    agent = np.arange(80) % 2
    x = np.random.default_rng(0).normal(size=(80, 3)) + 5 * agent[:, None]
    found = shoal.Data.from_arrays(x, np.arange(80) // 2 % 2, agent=agent)
    made = worlds(Settings(dataset=bring(found)), found.bank)
    means = overlap(pairs(found.bank, streams_of(made)))
    assert means["iou"] == 1
    assert means["features"] is not None
    assert 4 < means["features"] < 6


# Ragged fleets

RECV = {"mode": "recv", "every": 1, "queries": 4}
MODES: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "alone": ("modular-mlp", []),
    "recv": ("mlp", [RECV]),
    "simp": ("mlp", [{"mode": "simp", "every": 1}]),
    "fedavg": ("mlp", [{"mode": "fedavg", "every": 1}]),
    "modmod": ("modular-mlp", [{"mode": "modmod"}]),
}


def ragged() -> shoal.Data:
    """Five agents with 3 to 6 tasks of 2 to 4 classes with 20 to 200 rows."""
    rng = np.random.default_rng(1)
    x, y, agent, task = [], [], [], []
    for one, tasks in enumerate((3, 4, 5, 6, 3)):
        for at in range(tasks):
            classes = rng.choice(6, 2 + (one + at) % 3, replace=False)
            labels = np.resize(classes, (20, 40, 200)[(one * at) % 3])
            x.append(np.eye(6)[labels] + rng.normal(0, 0.3, (len(labels), 6)))
            y.append(labels)
            agent.append(np.full(len(labels), one))
            task.append(np.full(len(labels), at))
    whole = [np.concatenate(parts) for parts in (x, y, agent, task)]
    return shoal.Data.from_arrays(whole[0], whole[1], agent=whole[2], task=whole[3])


def run(fleet: Sequence[World], stacks: Sequence[Stack] | None = None) -> tuple[tuple[Stack, ...], tuple[Stack, ...]]:
    """The end of a run, and what a checkpoint in its middle holds."""
    middle: list[tuple[Stack, ...]] = []

    def watch(moment: Moment) -> None:
        if (moment.task, moment.epoch) == (2, 1):
            middle.append(saved(fleet, moment.stacks))

    return train(fleet, stacks, watch), middle[0] if middle else ()


@pytest.mark.parametrize("name", MODES)
def test_ragged_streams_are_learned_and_resumed_bit_for_bit(name: str) -> None:
    model, modes = MODES[name]
    settings = Settings(dataset=bring(ragged()), model=model, sharing=modes, **SMALL)
    assert (settings.agents, settings.tasks.count, settings.tasks.classes) == (5, 6, 4)
    fleet = worlds(settings, ragged().bank)
    assert fleet[0].ends.tolist() == [3, 4, 5, 6, 3]
    end, middle = run(fleet)
    resumed, _ = run(worlds(settings, ragged().bank), middle)
    assert not difference(end[0], resumed[0])
    for row, tasks in enumerate((3, 4, 5, 6, 3)):
        last = end[0].accuracy[row, tasks - 1, -1]
        assert last[:tasks].isfinite().all()
        assert last[tasks:].isnan().all()
    assert bool(modes) == bool(len(end[0].ledger.rows))


# Kinds of learning


def test_numbers_are_predicted_better_with_time() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 3))
    found = shoal.Data.from_arrays(x, 3 * x[:, 0] - x[:, 1] + 7.5, agent=np.arange(400) % 2)
    learner = {"epochs": 30, "batch": 16, "memory": 8, "rate": 0.01}
    settings = Settings(
        dataset=bring(found), model="mlp", net={"width": 32, "depth": 2, "dropout": 0.0}, learner=learner,
        tasks={"count": 2},
    )  # fmt: skip
    (stack,) = train(worlds(settings, found.bank))
    assert (stack.accuracy[:, 0, -1, 0] > stack.accuracy[:, 0, 0, 0]).all()
    assert (stack.accuracy[:, 1, -1, :2] > 0.5).all()


def test_the_r2_of_a_number_that_is_always_the_same_is_0_or_1() -> None:
    wanted = torch.tensor([[0.1, 1.0], [0.1, 2.0], [0.1, 3.0]])
    assert float(correct(wanted, wanted)) == pytest.approx(3)
    assert float(correct(wanted + torch.tensor([0.5, 0.0]), wanted)) == pytest.approx(1.5)


def test_a_target_that_is_always_the_same_is_moved_and_not_stretched() -> None:
    rng = np.random.default_rng(0)
    y = np.stack([np.full(60, 0.1), rng.normal(5, 2, 60)], 1)
    y[-1, 0] = 0.6
    found = shoal.Data.from_arrays(rng.normal(size=(60, 3)), y, test=np.arange(60) >= 48)
    (world,) = worlds(Settings(dataset=bring(found), agents=1, model="mlp", tasks={"count": 1}), found.bank)
    assert world.train.labels[..., 0].abs().max() == 0
    assert world.test.labels[..., 0].abs().max() == pytest.approx(0.5)


@pytest.mark.parametrize("mode", ["uniform", "simp", "recv"])
def test_numbers_to_predict_have_no_classes(mode: str) -> None:
    found = shoal.Data.from_arrays(np.arange(80.0)[:, None], np.arange(80) / 7, agent=np.arange(80) % 2)
    with pytest.raises(SettingsError, match=r"shares images of classes"):
        Settings(dataset=bring(found), model="mlp", sharing=mode)
    settings = Settings(dataset=bring(found), model="mlp", tasks={"classes": 2})
    with pytest.raises(SettingsError, match=r"has numbers to predict and no classes, .* say tasks\.classes=1"):
        worlds(settings, found.bank)


def test_one_head_that_grows_answers_with_all_classes_so_far() -> None:
    tasks = FEW | {"scenario": "split", "heads": "grow", "classes": 2}
    settings = Settings(agents=2, model="mlp", tasks=tasks, **SMALL)
    (world,) = worlds(settings, data.load("digits"))
    open_ = [world.opened(task)["open"][0, task].nonzero().flatten().tolist() for task in range(3)]
    assert open_ == [[0, 1], [0, 1, 2, 3], [0, 1, 2, 3, 4, 5]]
    assert isinstance(world.streams[0], Stream)
    (stack,) = train([world])
    assert stack.accuracy[:, 2, -1].isfinite().all()


@pytest.mark.parametrize("model", ["mlp", "modular-mlp"])
def test_one_epoch_is_enough(model: str) -> None:
    settings = Settings(
        agents=2, model=model, tasks=FEW, net=SMALL["net"], learner={"epochs": 1, "batch": 4, "memory": 4}
    )
    (stack,) = train(worlds(settings, data.load("digits")))
    assert stack.accuracy[:, 2, -1].isfinite().all()


def test_blurry_tasks_have_rows_of_each_other() -> None:
    bank = data.load("digits")
    sharp, soft = (chosen("split", heads="grow", blur=blur) for blur in (0.0, 0.5))
    plain, blurred = (streams(bank, one, [Lane(0, 0)])[0] for one in (sharp, soft))
    every = [np.sort(np.concatenate([task.train for task in stream])) for stream in (plain, blurred)]
    assert np.array_equal(every[0], every[1])
    assert any(set(bank.labels[task.train]) - set(task.classes) for task in blurred)


def test_of_a_large_fleet_some_pairs_are_looked_at_the_same_in_every_run() -> None:
    few = [Lane(0, agent) for agent in range(20)]
    assert len(couples(few)) == 190
    many = [Lane(3, agent) for agent in range(5000)]
    found = couples(many)
    assert found == couples(many)
    assert 0.9 * MOST < len(found) <= MOST
    assert all(one.agent < other.agent for one, other in found)
    assert found != couples([Lane(4, agent) for agent in range(5000)])


class Steps(Tasks):
    """Classes in steps: every `stride`-th class of the data."""

    even: ClassVar[bool] = True
    stride: PositiveInt = Field(1, description="how many classes lie between two of a task")

    def streams(self, bank: Bank, settings: Settings, lanes: Sequence[Lane]) -> tuple[Stream, ...]:
        def choose(ids: np.ndarray, tasks: Tasks, lane: Lane, rng: Random) -> list[tuple[int, ...]]:
            places = (self.stride * np.arange(tasks.count * tasks.classes)) % len(ids)
            return [tuple(int(one) for one in ids[part]) for part in places.reshape(tasks.count, -1)]

        return by_classes(choose)(bank, settings, lanes)


@pytest.fixture
def steps() -> Iterator[str]:
    """A stranger's scenario with a setting of its own, in the table for a while."""
    SCENARIOS.add("steps", Steps)
    yield "steps"
    SCENARIOS.remove("steps")


def test_a_strangers_scenario_has_settings_of_its_own(steps: str) -> None:
    settings = chosen(steps, stride=3)
    assert isinstance(settings.tasks, Steps)
    found = streams(data.load("digits"), settings, lanes_of(settings))
    assert [task.classes for task in found[0]] == [(0, 3), (6, 9), (2, 5)]
    assert settings.identity() != chosen(steps).identity()
    assert tomllib.loads(toml(settings))["tasks"]["stride"] == 3
    assert Settings(**tomllib.loads(toml(settings))) == settings
    fleet = shoal.Fleet("digits", agents=3, model="mlp", tasks=Steps(stride=3, **FEW), **SMALL)
    assert fleet.settings.tasks == settings.tasks.model_copy(update={"scenario": fleet.settings.tasks.scenario})
    assert streams(data.load("digits"), fleet.settings, lanes_of(settings))[0][0].classes == (0, 3)
    with pytest.raises(SettingsError, match=r"`tasks.stride` cannot be 0; allowed: a whole number above 0"):
        chosen(steps, stride=0)
    with pytest.raises(SettingsError, match=r"unknown setting `tasks.strid`; did you mean `tasks.stride`\?"):
        chosen(steps, strid=2)
    check_scenario(steps)


def test_what_is_another_scenarios_is_refused_unless_it_says_nothing() -> None:
    with pytest.raises(SettingsError, match=r"`tasks.alpha` is a setting of the scenario `dirichlet`, got 0.3, and"):
        chosen("drawn", alpha=0.3)
    assert chosen("drawn", alpha=0.5, shards=2, angle=30.0) == chosen("drawn")  # as settings.toml had them before
    words = ["tasks.scenario=dirichlet", "tasks.alpha=0.3", "tasks.common=false"]
    assert not hasattr(resolve(override({}, [*words, "tasks=split"])).tasks, "alpha")
    assert Settings(tasks={"scenario": "dirichlet", "alpha": 0.3, "common": False}) == resolve(override({}, words))
