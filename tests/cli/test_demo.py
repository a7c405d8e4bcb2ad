"""The demo: what a stranger sees, with and without a terminal, all at once or in two goes."""

import io
import json
import re
import signal
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console, RenderableType
from rich.live import Live

from shoal.cli import commands as cli
from shoal.cli import demo
from shoal.errors import Stopped
from shoal.runs import execute, recording
from shoal.runs.execute import carry_out, prepare
from shoal.runs.paired import Gain
from shoal.units import shown
from tests.command import DIGITS, call, refused

QUICK = (
    "agents=2", "seed=10", "tasks.count=6", "tasks.train=4", "tasks.validation=4", "net.width=8", "net.depth=2",
    "learner.epochs=16", "learner.memory=4", "machine.threads=1",
)  # fmt: skip


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder, with no data but the digits."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SHOAL_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def rows(text: str) -> dict[str, str]:
    """The last line that begins with each method: its row in the table."""
    return {name: line for line in text.splitlines() for name in demo.METHODS if line.startswith(f"{name}  ")}


def test_the_demo_shows_what_sharing_brings_and_costs_and_finds_its_runs_again() -> None:
    first = call("demo", *QUICK, "--seeds", 2, "--figures", "figures")
    assert (first.code, first.err) == (0, "")
    assert "hybrid: task 6 of 6 learned" in first.out
    assert "\x1b" not in first.out
    table = rows(first.out)
    assert list(table) == list(demo.METHODS)
    for name in demo.METHODS:
        (folder,) = Path("runs/demo").glob(f"{name.replace(' ', '-')}-*")
        summary = json.loads((folder / "summary.json").read_text())
        assert f"{summary['final_accuracy']:.1f} %" in table[name]
        sent = shown(summary["bytes_per_link_task"]) if name != demo.BASE else "nothing"
        assert table[name].endswith(sent)
        assert f"{summary['auc_normalised']:.1f} % ({summary['auc']:.1f})" in table[name]
    assert table["data"].count("±") == 2
    assert "runs/demo/report.html" in first.out
    assert Path("figures/final-against-bytes.svg").exists()
    assert "modmod" in Path("runs/demo/report.html").read_text()
    again = call("demo", *QUICK, "--seeds", 2)
    assert again.code == 0
    assert "Finished earlier and found again: shares nothing, data, simp, fedavg, modmod, hybrid." in again.out
    assert " of 6 learned," not in again.out
    assert rows(again.out) == table
    assert call("demo", *QUICK, "net.width=16", "--seeds", "0").code == 2


def test_a_demo_that_is_stopped_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    real = carry_out
    stop_in = "fedavg"

    def interrupted(fleet, record, show):  # type: ignore[no-untyped-def]
        if stop_in and record.folder.name.startswith(stop_in):
            raise Stopped("stopped and saved")
        return real(fleet, record, show)

    monkeypatch.setattr(demo, "carry_out", interrupted)
    done = call("demo", *QUICK, "--seeds", 1, "--out", "here")
    assert done.code == 130
    (said,) = done.err.splitlines()
    assert said == f"stopped; `shoal demo {' '.join(QUICK)} --seeds 1 --out here` continues from there"
    stop_in = ""
    done = call("demo", *QUICK, "--seeds", 1, "--out", "here")
    assert done.code == 0
    assert "Finished earlier and found again: shares nothing, data, simp." in done.out
    assert "one seed tells nothing" in done.out
    assert "±" not in "".join(rows(done.out).values())


def test_ctrl_c_while_a_run_is_finishing_stops_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    real = recording.finish

    def interrupted(*given: Any) -> dict[str, Any]:
        signal.raise_signal(signal.SIGINT)
        return real(*given)

    monkeypatch.setattr(execute, "finish", interrupted)
    assert call("demo", *QUICK, "--seeds", 1).code == 130
    assert [path.parent.name.partition("-")[0] for path in Path().glob("runs/demo/*/summary.json")] == ["shares"]


def test_without_the_packages_that_draw_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.report.find_spec", lambda name: None)
    monkeypatch.setattr(demo, "METHODS", {name: demo.METHODS[name] for name in (demo.BASE, "fedavg")})
    done = call("demo", *QUICK, "--seeds", 1)
    assert done.code == 0
    assert "There is no page with charts: `shoal report` needs altair and vl_convert" in done.out
    assert not Path("runs/demo/report.html").exists()


class Everything(Live):
    """A live view that shows all it is given; the real one shows what there is four times a second."""

    def update(self, renderable: RenderableType, *, refresh: bool = False) -> None:
        super().update(renderable, refresh=True)


@pytest.mark.parametrize("width", [60, 90])
def test_on_a_terminal_it_moves(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "Live", Everything)
    monkeypatch.setattr(demo, "time", SimpleNamespace(monotonic=lambda: 0.0))  # how long it takes changes the width
    monkeypatch.setattr(demo, "METHODS", {name: demo.METHODS[name] for name in (demo.BASE, "fedavg")})
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=width, color_system=None)
    demo.show(Path("runs"), 1, QUICK, console)
    shown = screen.getvalue()
    assert "left" in shown
    for name in (demo.BASE, "fedavg"):
        for at in ("tasks 1 to 4, epoch 16/16", "task 5, epoch 1/16", "task 6 learned"):
            assert f"{name}: {at}" in shown
    assert ("each as it is learned" in shown) == (width > demo.NARROW)
    lines = re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]", "", shown).splitlines()
    assert max(len(line.rpartition("\r")[2]) for line in lines if " left " in line or "fedavg  " in line) <= width


def test_all_methods_learn_the_same_tasks() -> None:
    streams = {name: prepare(demo.fleet(name, 2, QUICK))[0].streams for name in demo.METHODS}
    for name, one in streams.items():
        for own, alone in zip(one, streams[demo.BASE], strict=True):
            for here, there in zip(own, alone, strict=True):
                assert here.classes == there.classes, name
                assert np.array_equal(here.train, there.train)


def test_the_fleet_of_the_demo_is_the_experiment() -> None:
    assert demo.FLEET == DIGITS
    defaults = {name: one.default for name, one in signature(cli.demo).parameters.items()}
    assert (defaults["seeds"], defaults["folder"]) == (demo.SEEDS, demo.OUT)  # the command that goes on leaves them out


def test_only_what_seeds_show_is_said() -> None:
    gains = {
        "up": Gain(2.0, 0.1, 4),
        "down": Gain(-2.0, 0.1, 4),
        "unclear": Gain(2.0, 1.0, 4),
        "also": Gain(0.1, 1.0, 4),
    }
    assert demo.judged(gains, "In the end") == (
        "In the end, up (+2.0) did better than without sharing; down (-2.0) did worse than without sharing; "
        "unclear (+2.0) and also (+0.1) cannot be told from no sharing by 4 seeds."
    )
    assert "cheapest" not in demo.prices({"a": 10.0, "b": 1000.0}, ["a"])
    assert demo.prices({"a": 10.0, "b": 1000.0, "c": 100.0}, ["b", "c"]) == (
        "What it cost, per link and task: b 1 kB, 100 times the 10 B of a. "
        "Of those that did better in the end, c was the cheapest."
    )


def test_methods_share_what_they_say() -> None:
    shared = {name: [mode.mode for mode in demo.fleet(name, 1, ()).sharing] for name in demo.METHODS}
    assert shared == {
        demo.BASE: [],
        "data": ["recv"],
        "simp": ["simp"],
        "fedavg": ["fedavg"],
        "modmod": ["modmod"],
        "hybrid": ["recv", "modmod", "fedavg"],
    }


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("sharing=recv", "`sharing=recv` is what the demo varies itself"),
        ("sharing.recv.every=2", "`sharing.recv.every=2` is what the demo varies itself"),
        ("agents=1", "one agent has nobody to share with"),
    ],
)
def test_what_would_spoil_the_demo_is_refused(word: str, why: str) -> None:
    refused(call("demo", word), why)
    assert not Path("runs").exists()
