"""What a stranger writes for something new, a file each, and that it works; docs/adding.md says how long they are."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.cli.door import made
from shoal.data.scenarios import SCENARIOS
from shoal.errors import SettingsError
from shoal.network.edges import edges
from shoal.runs.metrics import METRICS
from tests.changes import asking, command, graph, learner, metric, net, scenario, transport
from tests.live.houses import built, lived, simulated, small

HERE = Path(__file__).parent
FEW: dict[str, Any] = {
    "agents": 3, "model": "mlp", "tasks": {"count": 3, "classes": 2, "initial": 1, "train": 8, "validation": 4},
    "learner": {"epochs": 2, "batch": 8, "memory": 4}, "net": {"width": 8, "depth": 2},
}  # fmt: skip


def code_of(file: Path) -> int:
    """The lines of a file that are neither empty nor comments nor docstrings."""
    text = file.read_text(encoding="utf-8")
    said: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            said |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    lines = enumerate(text.splitlines(), 1)
    return sum(bool(line.strip()) and not line.strip().startswith("#") and at not in said for at, line in lines)


def test_the_page_says_how_long_they_are() -> None:
    page = (HERE.parent / "docs" / "adding.md").read_text(encoding="utf-8")
    for file in sorted((HERE / "changes").glob("[a-z]*.py")):
        about = file.read_text(encoding="utf-8").partition(".")[0].partition(":")[0].removeprefix('"""').lower()
        assert f"| {about} | [{file.name}](../tests/changes/{file.name}) | {code_of(file)} |" in page


def test_a_learner() -> None:
    found = shoal.Fleet("digits", **FEW | {"learner": learner.near(strength=0.2, epochs=2, batch=8, memory=4)}).run()
    assert found.summary["final_accuracy"].item() > 0


def test_a_mode_that_asks() -> None:
    mode = asking.Wanted(every=1, images=3)
    ledger = shoal.Fleet("digits", **FEW, sharing=[mode], network="ring").run().ledger
    assert {"question", "rows"} <= set(ledger.filter(ledger["verdict"] == "accepted")["kind"].to_list())


@pytest.fixture
def steps() -> Iterator[str]:
    SCENARIOS.add("steps", scenario.Steps)
    yield "steps"
    SCENARIOS.remove("steps")


def test_a_scenario_a_graph_and_a_net_with_settings(steps: str) -> None:
    tasks = {**FEW["tasks"], "scenario": steps, "stride": 3}
    network = {"graph": graph.near, "reach": 2}
    fleet = shoal.Fleet("digits", **FEW | {"agents": 6, "tasks": tasks, "model": net.Small, "net": {"units": 5}},
                        network=network, sharing=[{"mode": "fedavg", "every": 1}])  # fmt: skip
    (world,) = shoal.prepare(fleet.settings)
    assert [task.classes for task in world.streams[0]][:2] == [(0, 3), (6, 9)]
    assert len(edges(fleet.settings.network, 6, 0)) == 24
    assert world.model.read == 5
    with pytest.raises(SettingsError, match=r"`network.reach` cannot be 'far'"):
        fleet.but(network={"reach": "far"})


def test_a_metric_that_compare_shows() -> None:
    simp = [{"mode": "simp", "every": 1}]
    METRICS.add("worst_task", metric.worst_task)
    try:
        one, two = (shoal.Fleet("digits", **FEW, sharing=said, network="ring").run(seeds=2) for said in ((), simp))
        table = shoal.compare(one, two)
    finally:
        METRICS.remove("worst_task")
    assert "worst_task" in table["metric"].to_list()
    assert one.summary["worst_task"].item() <= one.summary["final_accuracy"].item()


def test_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    made(command.murmur).run("hello")
    assert capsys.readouterr().out == "psst, hello\n"


def test_a_transport(tmp_path: Path) -> None:
    settings = small("fedavg", agents=2, network="complete")
    found = lived(built(settings, tmp_path), transport=lambda home, terms: transport.Queued(home.agent))
    want = simulated(settings)
    assert all(want[agent].params.keys() == stack.params.keys() for agent, stack in found.items())
    assert all(
        (want[agent].params[name] == one).all() for agent, stack in found.items() for name, one in stack.params.items()
    )
