"""Fleets in Python: what a program says, what comes out, and that it is the command line's run."""

import gc
import inspect
import json
import os
import signal
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import networkx as nx  # type: ignore[import-untyped]
import numpy as np
import polars as pl
import pytest
from torch import Tensor, nn

import shoal
from shoal.configure.reading import override, resolve
from shoal.errors import SettingsError, UserError
from shoal.learners.replay import Replay
from shoal.models.table import MODELS
from shoal.runs.files import RecordError
from shoal.runs.tables import posted
from shoal.settings.groups import Clock
from shoal.sharing.fedavg import FedAvg
from shoal.sharing.modes import MODES
from tests.command import DIGITS, TINY, call

pytestmark = pytest.mark.usefixtures("nowhere")

TASKS: dict[str, Any] = {"count": 3, "classes": 2, "train": 8, "validation": 4, "initial": 1}
LEARNER: dict[str, Any] = {"epochs": 4, "batch": 8, "memory": 4, "rate": 0.01}
GIVEN: dict[str, Any] = {
    "scenario": "given", "count": 4, "classes": 2, "initial": 1, "train": "all", "validation": "all", "common": False,
}  # fmt: skip
SMALL: dict[str, Any] = {"tasks": TASKS, "learner": LEARNER, "net": {"width": 8, "depth": 2}, "machine": {"threads": 1}}
FEDAVG = {"mode": "fedavg", "every": 2}


class Tiny(nn.Module):
    """A net of one's own."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.layer = nn.Linear(64, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.flatten(1)).relu()  # type: ignore[no-any-return]


def small(data: Any = "digits", **more: Any) -> shoal.Fleet:
    """A fleet of two agents that learns in a moment."""
    return shoal.Fleet(data, **{**SMALL, "agents": 2, **more})


def ragged() -> shoal.Data:
    """Three sites with 2, 3 and 4 tasks of two classes each, of 20, 30 and 40 rows."""
    rng = np.random.default_rng(0)
    parts = [(site, task, 10 * size) for size, site in enumerate("abc", 2) for task in range(size)]
    site, task = (np.repeat([part[at] for part in parts], [part[2] for part in parts]) for at in (0, 1))
    y = 2 * task + np.arange(len(site)) % 2
    return shoal.Data.from_arrays(rng.normal(size=(len(site), 6)) + y[:, None], y, agent=site, task=task)


def test_the_names_and_keywords_are_those_that_were_promised() -> None:
    first, *keywords = inspect.signature(shoal.Fleet).parameters
    promised = {
        "model",
        "learner",
        "sharing",
        "network",
        "tasks",
        "net",
        "agents",
        "protocol",
        "kinds",
        "machine",
        "seed",
    }
    assert promised <= set(keywords)
    assert first not in promised
    assert list(inspect.signature(shoal.Fleet.run).parameters)[:4] == ["self", "seeds", "out", "progress"]
    result = small().run(seeds=2)
    for frame in (result.summary, result.accuracy, result.ledger):
        assert isinstance(frame, pl.DataFrame)
    assert len(result.summary) == 1
    assert result.accuracy.columns == ["seed", "agent", "task", "epoch", "tested", "accuracy"]
    assert (result.accuracy["task"].min(), result.accuracy["tested"].max()) == (1, 3)
    assert result.settings.seeds == 2


def test_a_fleet_is_the_run_of_the_command_line_bit_for_bit() -> None:
    words = (*TINY, "sharing=recv", "sharing.every=2", "sharing.queries=4", "network=ring")
    done = call("run", DIGITS, *words, "--out", "command", "--json")
    assert done.code == 0, done.err
    there = json.loads(done.out)
    fleet = shoal.Fleet(
        str(DIGITS),
        agents=2,
        seed=10,
        tasks={"count": 6, "classes": 2, "train": 16, "validation": 8},
        net={"width": 16, "depth": 2, "dropout": 0.2},
        learner={"epochs": 6, "batch": 16, "rate": 0.04, "memory": 8},
        sharing={"mode": "recv", "every": 2, "queries": 4},
        network="ring",
        machine={"threads": 1},
    )
    result = fleet.run(seeds=2)
    assert result.settings.identity() == there["identity"]
    row = result.summary.row(0, named=True)
    for name in set(there) & set(row) - {"seconds", "sharing"}:
        assert row[name] == there[name], name
    same = shoal.Result.read("command")
    assert result.accuracy.equals(same.accuracy)
    assert result.ledger.equals(same.ledger)
    assert len(result.ledger) == there["messages"] + len(result.ledger.filter(pl.col("verdict") == "over budget"))
    uses = result.ledger.select("seed", "sender", "receiver", "task").n_unique()
    assert row["bytes_per_link_task"] == there["bytes_total"] / uses > 0


SAID: list[tuple[str, Any, str]] = [  # a keyword of Fleet, its value, and the same in TOML and as a word
    ("tasks", "split", '"split"'),
    ("machine", "cpu", '"cpu"'),
    ("learner", "modular", '"modular"'),
    ("network", "ring", '"ring"'),
    ("clock", {"starts": 20.0}, "{starts = 20.0}"),
    ("clock", Clock(starts=(0.0, 5.0)), "{starts = [0.0, 5.0]}"),
    ("policy", {"forbid": ["images"]}, '{forbid = ["images"]}'),
    ("policy", [{"agents": [1], "forbid": ["images"]}], '[{agents = [1], forbid = ["images"]}]'),
    ("faulty", {"agents": (1,), "does": "sign-flip"}, '{agents = [1], does = "sign-flip"}'),
    ("presence", {"mail": "waits"}, '{mail = "waits"}'),
]


@pytest.mark.parametrize(("name", "value", "text"), SAID, ids=lambda one: str(one)[:20])
def test_python_toml_and_words_say_the_same(name: str, value: Any, text: str) -> None:
    Path("said.toml").write_text(f"agents = 2\n{name} = {text}\n")
    fleet = shoal.Fleet("digits", agents=2, **{name: value}).settings
    assert fleet == shoal.read("said.toml") == resolve(override({}, ["agents=2", f"{name}={text}"]))
    assert fleet == shoal.Fleet("digits", agents=2).but(**{name: value}).settings
    assert getattr(fleet, name) != getattr(shoal.Settings(agents=2), name) or value in ("cpu", "modular")


def test_a_settings_file_says_all_of_it_and_keywords_win() -> None:
    Path("mine.toml").write_text('seeds = 3\nagents = 4\nsharing = "simp"\nnetwork = "ring"\n[tasks]\ncount = 7')
    fleet = shoal.Fleet("mine.toml", tasks={"initial": 2}, network={"every": 2}, learner="ewc", model="mlp")
    own = fleet.settings
    assert (own.seeds, own.agents, own.tasks.count, own.tasks.initial) == (3, 4, 7, 2)
    assert (own.network.graph, own.network.every, own.learner.method, own.sharing[0].mode) == ("ring", 2, "ewc", "simp")
    assert shoal.Fleet(Path("mine.toml")).settings.identity() == shoal.read("mine.toml").identity()


def test_alone_is_the_same_fleet_that_shares_nothing() -> None:
    fleet = small(sharing=FEDAVG)
    assert fleet.alone().settings.identity() == small().settings.identity()
    paper = small(sharing=FEDAVG, protocol="paper")
    assert paper.alone().settings.tasks == paper.settings.tasks
    assert not paper.alone().settings.sharing
    table = shoal.compare(fleet.run(seeds=2), fleet.alone().run(seeds=2))
    assert table["runs"].unique().to_list() == ["fedavg - shares nothing"]
    assert table["metric"].to_list() == ["final_accuracy", "auc_normalised", "auc"]
    low, difference, high, seeds = table.select("low", "difference", "high", "seeds").row(0)
    assert low <= difference <= high
    assert seeds == 2
    assert table["difference"][1] == pytest.approx(100 / 5 * table["difference"][2])


def test_results_of_other_tasks_or_seeds_are_not_compared() -> None:
    one = small().run()
    own = small(tasks={**TASKS, "initial": 2, "common": False}).run()
    with pytest.raises(SettingsError, match=r"tasks.common = True, .* False: their seeds do not meet the same"):
        shoal.compare(one, own)
    with pytest.raises(UserError, match=r"have no seed in common \(seed 0; seed 7\)"):
        shoal.compare(one, small(seed=7).run())
    with pytest.raises(UserError, match="nothing to compare with"):
        shoal.compare(one)
    with pytest.raises(UserError, match="nowhere is not a run directory"):
        shoal.compare(one, "nowhere")
    single = shoal.compare(one, small(net={"width": 6, "depth": 2}).run())
    assert single["difference"][0] is not None
    assert single["p"].to_list() == [None, None, None]


def test_what_is_not_kept_is_there_as_long_as_its_result() -> None:
    result = small(sharing=FEDAVG).run()
    folder = result.folder
    assert folder.is_dir()
    assert len(result.ledger) > 0
    del result
    gc.collect()
    assert not folder.exists()
    assert list(Path().iterdir()) == []


def test_a_finished_run_is_read_again_and_another_is_refused() -> None:
    first = small().run(out="runs/mine")
    before = (first.folder / "summary.json").stat()
    again = small(machine={"threads": 2}).run(out=Path("runs/mine"))
    assert (again.folder / "summary.json").stat() == before
    assert again.summary.equals(first.summary)
    with pytest.raises(
        RecordError, match=r"holds another run: there, learner.epochs is 4, here it is 3; choose another"
    ):
        small(learner={**LEARNER, "epochs": 3}).run(out="runs/mine")
    with pytest.raises(RecordError, match="there, seeds is 1, here it is 2"):
        small().run(seeds=2, out="runs/mine")
    Path("runs/full").mkdir()
    Path("runs/full/file").touch()
    with pytest.raises(RecordError, match="is not empty, and holds no run") as error:
        small().run(out="runs/full")
    assert "--" not in str(error.value)


PROGRAM = """
import os, signal, shoal
from tests.test_fleets import FEDAVG, GIVEN, SMALL, ragged
fleet = shoal.Fleet(ragged(), model="mlp", sharing=[FEDAVG], network=shoal.ring(3), **{**SMALL, "tasks": GIVEN})
def die(moment):
    if (moment.task, moment.epoch) == (2, 1):
        os.kill(os.getpid(), signal.SIGKILL)
print(fleet.run(out="runs/mine", progress=die if KILL else None))
"""


def test_killed_in_the_middle_it_goes_on_and_ends_the_same() -> None:
    root = Path(__file__).parents[1]
    env = {**os.environ, "PYTHONPATH": str(root)}
    for kill, code in ((True, -signal.SIGKILL), (False, 0)):
        done = subprocess.run(
            [sys.executable, "-c", f"KILL = {kill}\n{PROGRAM}"], env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stderr
        assert (Path("runs/mine/summary.json").exists(), Path("runs/mine/checkpoint.safetensors").exists()) == (
            not kill,
            True,
        )
    assert "final accuracy" in done.stdout
    fleet = small(ragged(), agents=3, sharing=[FEDAVG], network=shoal.ring(3), model="mlp", tasks=GIVEN)
    result = fleet.run()
    ends = result.accuracy.group_by("agent", maintain_order=True).agg(pl.col("task").max())
    assert ends["task"].to_list() == [2, 3, 4]
    killed = fleet.run(out="runs/mine")
    assert killed.accuracy.equals(result.accuracy)
    assert killed.ledger.equals(result.ledger)
    assert json.loads(Path("runs/mine/about.json").read_text())["resumed"]


def test_ctrl_c_says_how_to_go_on_in_the_words_of_python() -> None:
    def stop(moment: Any) -> None:
        if moment.task == 1:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt, match=r'stopped; the same run\(out="runs/mine"\) continues'):
        small().run(out="runs/mine", progress=stop)
    with pytest.raises(UserError, match="runs/mine is not finished"):
        shoal.Result.read("runs/mine")
    with pytest.raises(KeyboardInterrupt, match="nothing was kept"):
        small().run(progress=stop)
    assert small().run(out="runs/mine").accuracy.equals(small().run().accuracy)


def test_a_result_of_numbers_says_that_it_is_no_accuracy() -> None:
    x = np.random.default_rng(0).normal(size=(80, 3))
    data = shoal.Data.from_arrays(x, x[:, 0] * 1.5, agent=np.arange(80) % 2)
    assert "final R² " in repr(shoal.Fleet(data, model="mlp", learner={"epochs": 1, "memory": 4}).run())


def test_data_of_ones_own_comes_in_as_data_or_as_a_pair() -> None:
    data = ragged()
    assert small(data, model="mlp").settings.dataset == data.name
    pair = shoal.Fleet((data.bank.images, data.bank.labels), model="mlp", agents=2, **SMALL)
    assert 0 <= pair.run().summary["final_accuracy"].item() <= 100
    with pytest.raises(SettingsError, match="a fleet cannot learn from 3; give a name"):
        shoal.Fleet(3)


def test_nets_come_in_as_classes_functions_and_lines_of_the_table() -> None:
    class Local(Tiny):
        pass

    plain = small(model=Tiny)
    assert plain.settings.model == f"{Tiny.__module__}:Tiny" == small(model=Tiny).settings.model
    assert plain.run().summary["model"].item() == plain.settings.model
    one, other = small(model=Local), small(model=lambda: Tiny(4))
    assert one.settings.model == "Local"
    assert other.run().settings.model.startswith("model")
    assert small(model=MODELS["mlp"]).settings.model == "mlp"
    kinds = small(model="mlp", kinds={"name": "own", "agents": [1], "model": Tiny})
    assert kinds.settings.kinds[0].model == plain.settings.model
    with pytest.raises(SettingsError, match="one Tiny that exists already, and every agent needs one of its own"):
        small(model=Tiny())
    with pytest.raises(SettingsError, match="is no model, but 3"):
        small(model=3)
    for name in {plain.settings.model, one.settings.model, other.settings.model} & MODELS.entries.keys():
        MODELS.remove(name)


def test_modes_and_learners_come_in_as_objects_and_classes() -> None:
    class Often(FedAvg):
        mode: str = "often"  # type: ignore[assignment]
        every: int = 1

    class Slow(Replay):
        method: str = "slow"  # type: ignore[assignment]

    fleet = small(
        model="mlp", sharing=[{"mode": "simp", "every": 2}, Often(every=2)], learner=Slow(epochs=5, batch=8, memory=4)
    )
    assert [mode.mode for mode in fleet.settings.sharing] == ["simp", "often"]
    assert fleet.settings.learner.method == "slow"
    first = fleet.run(out="runs/mine")
    assert fleet.run(out="runs/mine").summary.equals(first.summary)
    assert fleet.but(learner={"rate": 0.02}).settings.learner.epochs == 5
    assert small(model="mlp", sharing=Often, learner=Slow, tasks={**TASKS, "train": 16}).settings.sharing[0].every == 1
    assert small(sharing=MODES["recv"], learner={**LEARNER, "epochs": 20}).settings.sharing[0].mode == "recv"
    from shoal.learners.table import LEARNERS

    MODES.remove("often")
    LEARNERS.remove("slow")


def edges_of(network: Any, **more: Any) -> set[tuple[int, int]]:
    """Who can send to whom in a fleet with such a network."""
    from shoal.network.edges import edges

    own = shoal.Fleet("digits", network=network, **more).settings
    return {edge[:2] for edge in edges(own.network, own.agents, 0)}


def test_a_network_is_a_word_a_value_a_list_a_graph_or_a_function() -> None:
    ring = {(0, 1), (1, 0), (1, 2), (2, 1), (2, 0), (0, 2)}
    assert edges_of("ring", agents=3) == edges_of(shoal.ring(3)) == edges_of(nx.cycle_graph(3)) == ring
    assert edges_of(nx.DiGraph([(0, 1), (1, 2)])) == {(0, 1), (1, 2)}
    assert edges_of([(0, 1), (1, 2)]) == edges_of([{"sender": 0, "receiver": 1}, (1, 2)]) == {(0, 1), (1, 2)}
    assert edges_of({"graph": nx.path_graph(2), "every": 3}) == {(0, 1), (1, 0)}
    assert edges_of(lambda n, p, rng: nx.path_graph(n), agents=2) == {(0, 1), (1, 0)}
    assert edges_of(nx.empty_graph(3)) == edges_of(shoal.disconnected(3)) == set()
    limits = nx.DiGraph()
    limits.add_edge(0, 1, budget=np.int64(500), every=2)
    (link,) = shoal.Fleet("digits", network=limits).settings.network.edges
    assert (link.budget, link.every) == (500, 2)
    for make in (shoal.complete, shoal.ring, shoal.server, shoal.tree):
        own = shoal.Fleet("digits", network=make(4, budget=100, every=2)).settings
        assert (own.agents, own.network.graph, own.network.budget, own.network.every) == (4, make.__name__, 100, 2)
    for draw in (shoal.random, shoal.connected):
        assert shoal.Fleet("digits", network=draw(5, p=0.25)).settings.network.model_dump()["p"] == 0.25
    # The last graph wins, and edges of the one before are not its own.
    assert shoal.Fleet("digits", network=[(0, 1)]).but(network="ring").settings.network.edges == ()
    assert shoal.Fleet("digits", agents=4, network=[(0, 1)]).settings.agents == 4


@pytest.mark.parametrize(
    ("keywords", "sentence"),
    [
        ({"lerner": "ewc"}, r"Fleet has no keyword `lerner`; did you mean `learner`\?"),
        ({"epochs": 4}, r"Fleet has no keyword `epochs`; did you mean `learner.epochs`\?"),
        ({"seeds": 4}, r"the number of seeds is said when it runs: fleet.run\(seeds=4\)"),
        ({"network": shoal.ring(5), "agents": 4}, "the network connects 5 agents, but there are 4"),
        ({"network": nx.Graph([("a", "b")])}, "are the numbers 0 to 1, got 'a'; rename"),
        ({"network": [(0, 1, 5)]}, r"an edge is a pair \(sender, receiver\), got \(0, 1, 5\)"),
        ({"network": []}, "an empty list of edges"),
        ({"network": [(0, 0)]}, "an agent sends nothing to itself"),
        ({"network": 3}, r"`network` cannot be 3; it is a word \(graph\) or a mapping"),
        ({"net": "wide"}, r"`net` cannot be 'wide'; it is a mapping of settings: net=\{...\}"),
        ({"tasks": {"cuont": 3}}, r"unknown setting `tasks.cuont`; did you mean `tasks.count`\?"),
        ({"tasks": "drwan"}, "there is no scenario `drwan`; did you mean `drawn`"),
        ({"model": "mpl"}, "there is no model `mpl`; did you mean `mlp`"),
        ({"learner": "ewk"}, "there is no learner `ewk`"),
        ({"sharing": ["recv", 3]}, "every .*sharing.* table needs a mode"),
        ({"kinds": 3}, r"`kinds` cannot be \[3\]"),
        ({"agents": 0}, "`agents` cannot be 0"),
    ],
)
def test_what_cannot_be_is_said_in_one_sentence(keywords: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence) as error:
        shoal.Fleet("digits", **keywords)
    assert "--" not in str(error.value)
    assert "\n" not in str(error.value)


def test_wrong_runs_and_networks_are_said_too() -> None:
    with pytest.raises(SettingsError, match="`seeds` cannot be 0"):
        small().run(seeds=0)
    with pytest.raises(SettingsError, match="ring cannot have 'five' agents"):
        shoal.ring("five")  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"unknown dataset `digts`; .* did you mean `digits`"):
        shoal.Fleet("digts").check()
    with pytest.raises(UserError, match="dataset `mnist` was not found") as error:
        shoal.Fleet("mnist").check()
    assert "--" not in str(error.value)
    for wrong in (3, "", True):
        with pytest.raises(SettingsError, match=f"`out` cannot be {wrong!r}; give the name of a folder"):
            small().run(out=wrong)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match=r"no settings file nowhere.toml"):
        shoal.Fleet("nowhere.toml")


def test_numbers_of_numpy_and_paths_are_numbers_and_words() -> None:
    fleet = shoal.Fleet("digits", agents=3, tasks={"count": np.int32(5)}, machine={"data": Path("here")})
    assert (fleet.settings.agents, fleet.settings.tasks.count, fleet.settings.machine.data) == (3, 5, "here")


def test_a_check_tells_what_sharing_will_cost_before_anything_runs() -> None:
    fleet = small(sharing=FEDAVG, network=shoal.ring(3, every=4), agents=3)
    costs = fleet.check(seeds=2)
    (row,) = costs.table.rows(named=True)
    assert (row["mode"], row["links"]) == ("fedavg", 12)
    assert row["refused"] > 0
    assert row["bytes_total"] == costs.total
    assert "per link and task on 12 links" in str(costs)
    assert "because the link rests" in repr(costs)
    assert "<li>fedavg" in costs._repr_html_()
    result = fleet.run(seeds=2)
    assert result.summary["bytes_total"].item() == costs.total
    assert "nothing is shared" in str(small().check())
    assert small().check().total == 0
    assert "fedavg never sends anything" in str(small(sharing=FEDAVG, network="disconnected").check())


def test_modes_that_share_the_budget_of_a_link_cost_no_more_than_it() -> None:
    modes = [{"mode": "recv", "every": 2}, {"mode": "fedavg", "every": 2}]
    costs = small(model="mlp", sharing=modes, network=shoal.ring(2, budget="2 kB/task"), agents=2).check()
    tasks = small().settings.tasks
    assert costs.total == 2 * 2000 * (tasks.count - tasks.initial)
    assert costs.table["bytes_total"].sum() > costs.total


def test_nothing_shared_is_an_empty_ledger_with_its_columns() -> None:
    from shoal.letters.ledger import Ledger

    empty = small().run().ledger
    assert empty.is_empty()
    assert empty.schema == posted(small().settings, Ledger()).schema
    assert empty.schema == small(sharing=FEDAVG).run().ledger.schema


def test_a_result_shows_itself_and_its_charts() -> None:
    pytest.importorskip("altair")
    one, other = small(sharing=FEDAVG).run(seeds=2), small().run(seeds=2)
    assert "sharing fedavg: final accuracy" in repr(one)
    assert "kB per link and task" in repr(one)
    assert "<table" in one._repr_html_()
    chart = one.curves(other).to_dict()
    (rows,) = chart["datasets"].values()
    assert {row["run"] for row in rows} == {"fedavg", "shares nothing"}
    assert one.report() == Path("report.html")
    assert "<!DOCTYPE html>" in Path("report.html").read_text()
    kept = small().run(out="runs/mine")
    assert kept.report() == Path("runs/mine/report.html")
    assert kept.report("page.html").exists()
    with pytest.raises(UserError, match="cannot write") as error:
        kept.report("/dev/null/page.html")
    assert "--" not in str(error.value)
    with pytest.raises(UserError, match="there are no learning curves: all 1 tasks are initial ones"):
        small(tasks={**TASKS, "count": 1}).run().curves()


def test_a_notebook_has_a_bar_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    from shoal.console import err

    shown: list[str] = []

    class Handle:
        def update(self, content: str) -> None:
            shown.append(content)

    def display(content: str, display_id: bool) -> Handle:
        shown.append(content)
        return Handle()

    module = types.ModuleType("IPython.display")
    module.HTML, module.display = str, display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setattr(err, "is_jupyter", True)
    small().run()
    assert "starting" in shown[0]
    assert 'value="12" max="12"' in shown[-1]
    count = len(shown)
    small().run(progress=False)
    assert len(shown) == count


def test_without_a_terminal_nothing_is_printed_unless_it_is_wanted(capfd: pytest.CaptureFixture[str]) -> None:
    small().run()
    assert capfd.readouterr() == ("", "")
    small().run(progress=True)
    assert "task 3/3 done" in capfd.readouterr().err
