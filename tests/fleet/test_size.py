"""How large a run will be is told before it is made."""

from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal import data
from shoal.agents.lanes import NAMES
from shoal.agents.stack import CORE, Stack, start
from shoal.configure.entries import network_of
from shoal.errors import SettingsError
from shoal.fleet import size as sizes
from shoal.network.edges import count, edges
from shoal.network.graphs import BUILT_IN, FIXED, kind_of
from shoal.runs.execute import prepare
from shoal.settings.groups import Network
from tests.command import call, refused

TINY: dict[str, Any] = {
    "dataset": "digits",
    "tasks": {"count": 4, "initial": 2, "train": 16, "validation": 8},
    "learner": {"epochs": 20, "memory": 8, "batch": 16},
}
# Settings that nobody has the memory or the years for, and what of them is large.
HUGE = [
    ("agents=1000000000", "agents = 1,000,000,000"),
    (f"agents={'9' * 400}", "agents = beyond all"),
    (f"tasks.count={'9' * 4000}", "tasks.count = beyond all"),
    (f"net.width={'9' * 400}", "net.width = beyond all"),
    ("seeds=1000000", "seeds = 1,000,000"),
    ("tasks.count=1000000", "tasks.count = 1,000,000"),
    ("learner.epochs=1000000000", "learner.epochs = 1,000,000,000"),
    ("net.width=100000", "net.width = 100,000"),
    ("net.depth=1000000000", "net.depth = 1,000,000,000"),
    ("net.basis=1000000000", "net.basis = 1,000,000,000"),
]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with 8 GB free, whatever this one has."""
    monkeypatch.setattr("shoal.fleet.size.free", lambda: 8 * 10**9)


@pytest.mark.usefixtures("nowhere", "small")
@pytest.mark.parametrize(("word", "part"), HUGE, ids=[word[:30] for word, _ in HUGE])
@pytest.mark.parametrize("command", ["check", "run"])
def test_what_is_too_large_is_refused_with_its_numbers_and_leaves_nothing(command: str, word: str, part: str) -> None:
    refused(call(command, "digits", word), "this run needs about", "are free here", part, "--yes")
    assert not list(Path().iterdir())


@pytest.mark.usefixtures("nowhere", "small")
@pytest.mark.parametrize(
    "words",
    [
        ["sweep", "digits", "agents=1000000000,2"],
        ["compare", "digits", "mine.toml", "--no-page"],
        ["demo", "agents=1000000000"],
        ["advise", "digits", "agents=1000000000", "--budget", "20 kB/task"],
    ],
)
def test_so_it_is_by_every_command_that_trains(words: list[str], tmp_path: Path) -> None:
    Path("mine.toml").write_text("agents = 1000000000\n", encoding="utf-8")
    if words[0] == "compare":
        words = ["compare", "mine.toml"]
    refused(call(*words), "this run needs about")
    assert [path.name for path in Path().iterdir()] == ["mine.toml"]


@pytest.mark.usefixtures("nowhere", "small")
@pytest.mark.parametrize("graph", [*BUILT_IN])
@pytest.mark.parametrize("sharing", ["recv", "fedcurv", "modmod"])
def test_a_billion_agents_are_refused_whatever_the_graph_and_the_mode(graph: str, sharing: str) -> None:
    words = ["agents=1000000000", f"network={graph}", f"sharing={sharing}"]
    refused(call("check", "digits", *words), "this run needs about")


@pytest.mark.usefixtures("nowhere", "small")
def test_kinds_of_a_billion_agents_are_refused() -> None:
    kinds = 'kinds=[{name="a",agents=[1,999999999],model="mlp"}]'
    refused(call("check", "digits", "agents=1000000000", "sharing=recv", kinds), "this run needs about")


@pytest.mark.usefixtures("nowhere", "small")
def test_a_graph_file_with_a_huge_agent_is_refused() -> None:
    Path("far.txt").write_text("0 1\n1 99999999999999999\n", encoding="utf-8")
    refused(call("network", "far.txt"), "only up to")
    words = ["network=./far.txt", "agents=100000000000000000", "sharing=recv"]
    refused(call("check", "digits", *words), "this run needs about")
    assert [path.name for path in Path().iterdir()] == ["far.txt"]


@pytest.mark.usefixtures("nowhere")
def test_who_means_it_says_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.fleet.size.free", lambda: 10)
    words = ["tasks.count=2", "tasks.initial=1", "tasks.train=8", "learner.epochs=1", "agents=2", "learner.memory=4"]
    refused(call("run", "digits", *words, "--out", "mine"), "10 B are free here")
    assert not Path("mine").exists()
    assert call("run", "digits", *words, "--out", "mine", "--yes").code == 0
    fleet = shoal.Fleet("digits", agents=2, tasks={"count": 2, "initial": 1}, learner={"epochs": 1})
    with pytest.raises(SettingsError, match=r"10 B are free here.*run\(yes=True\)"):
        fleet.run(out="other")
    assert not Path("other").exists()
    assert fleet.run(out="other", yes=True).folder == Path("other")


@pytest.mark.usefixtures("nowhere")
def test_check_shows_the_estimate() -> None:
    assert "of memory (" in call("check", "digits").out


@pytest.mark.usefixtures("nowhere", "small")
def test_memory_that_is_not_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("shoal.runs.prepare.prepare", full)
    refused(call("check", "digits"), "there is not enough memory here")


@pytest.mark.usefixtures("small")
def test_a_net_of_layers_that_cannot_be_made_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.models.foreign.free", lambda: 8 * 10**9)
    with pytest.raises(SettingsError, match=r"has weights of 120 GB, and 8 GB of memory are free here"):
        prepare(shoal.Settings(**TINY, model="plain-mlp", net={"width": 100_000}))


SHAPES: list[dict[str, Any]] = [
    {"agents": 8},
    {"agents": 30, "seeds": 2},
    {"agents": 12, "net": {"width": 200}},
    {"agents": 12, "model": "mlp", "sharing": "fedavg"},
    {"agents": 10, "model": "mlp", "sharing": "recv"},
    {"agents": 10, "sharing": [{"mode": "modmod"}], "network": "ring"},
    {"agents": 10, "model": "plain-mlp"},
    {"agents": 4, "model": "modular-cnn", "net": {"depth": 2, "width": 20}},
    {"agents": 60, "tasks": {"count": 12, "initial": 2, "train": 16, "validation": 8}, "model": "mlp"},
    {"agents": 10, "learner": {"epochs": 3000, "memory": 8}, "model": "mlp"},
]


@pytest.mark.parametrize("said", SHAPES, ids=str)
def test_the_estimate_is_what_tensors_take(said: dict[str, Any]) -> None:
    settings = shoal.Settings(**TINY | said)
    wanted = sizes.size(settings, data.load("digits")).parts
    (world,) = prepare(settings)
    stack = start(world)
    near(wanted["nets"], held(stack, "params", "mean", "var"))
    record = stack.accuracy.nbytes
    near(wanted["measurements"] * sizes.FLOAT // (sizes.FLOAT + sizes.ROW // 2), record)
    kept = [owner for owner in stack.states if owner not in CORE and owner not in ("model", "dropout")]
    near(wanted["memories"], held(stack, *kept))
    near(wanted["data"], world.inputs.nbytes + sum(part_bytes(world, name) for name in NAMES))


def part_bytes(world: Any, name: str) -> int:
    """What is held of all images of a kind: the streams' rows, and twice the world's, for threads too."""
    split = getattr(world, name)
    streams = sum(getattr(task, name).nbytes for stream in world.streams for task in stream)
    return int(streams + 2 * (split.rows.nbytes + split.labels.nbytes))


def held(stack: Stack, *owners: str) -> int:
    """Bytes of some owners' tensors."""
    return sum(tensor.nbytes for owner in owners for tensor in stack.of(owner).values())


def near(told: int, there: int) -> None:
    """Right to a factor of two, or so little that it does not matter."""
    assert there / 2 <= told <= 2 * there or max(told, there) < 200_000, (told, there)


@pytest.mark.parametrize("graph", [*BUILT_IN])
@pytest.mark.parametrize("agents", [1, 2, 3, 40])
def test_edges_are_counted_without_drawing_them(graph: str, agents: int) -> None:
    network = network_of({"graph": graph, **({"p": 0.3} if "p" in kind_of(graph).model_fields else {})})
    drawn = [len(edges(network, agents, seed)) for seed in range(20)]
    assert count(network, agents) == pytest.approx(sum(drawn) / 20, rel=0.2, abs=2)


@pytest.mark.parametrize("graph", [*FIXED])
@pytest.mark.parametrize("agents", [1, 2, 3, 9])
def test_who_is_connected_in_a_fixed_graph_is_known_without_drawing_it(graph: str, agents: int) -> None:
    drawn = {edge[:2] for edge in edges(Network(graph=graph), agents, 0)}
    pairs = {(one, two) for one in range(agents) for two in range(agents) if one != two}
    assert {pair for pair in pairs if FIXED[graph](agents, *pair)} == drawn


def test_ten_thousand_agents_on_a_sparse_graph_are_no_news() -> None:
    settings = shoal.Settings(**TINY, agents=10_000, network="ring", sharing="fedavg")
    wanted = sizes.size(settings, data.load("digits"))
    assert 10**9 < wanted.bytes < 2 * 10**10


def test_times_are_told_in_words() -> None:
    assert [sizes.lasting(one) for one in (0, 1.6, 100, 200, 8000, 10**6, 10**9)] == [
        "1 second", "2 seconds", "100 seconds", "3 minutes", "2 hours", "12 days", "32 years",
    ]  # fmt: skip
    assert sizes.lasting(1e25) == "a million years or more"
