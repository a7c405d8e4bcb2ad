"""What sharing adds to the time of learning a task: the MNIST row with each mode, and without any."""

import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from bench import cases
from shoal.agents.stack import Stack, grid
from shoal.agents.world import World
from shoal.errors import SettingsError
from shoal.fleet.exchange import meet_all
from shoal.fleet.lessons import learn_epoch, measure
from shoal.fleet.members import crew_of
from shoal.fleet.run import one_thread
from shoal.sharing.modes import MODES

EPOCHS = 32  # two exchanges of data modes, six of federated ones: about as dense as in the 100 of the paper (one of
# modmod is three times as dense)
DATA = ("recv", "simp", "uniform")


def fleets(model: str, lanes: int, quick: bool) -> dict[str, World]:
    """The same fleet with every mode that suits its nets, and with none."""
    bank = cases.mnist(quick)
    changes = ("protocol=fair", f"learner.epochs={EPOCHS}", "tasks.common=false")
    modes: dict[str, tuple[str, ...]] = {"none": (), **{mode: (f"sharing={mode}",) for mode in MODES}}
    found = {}
    for name, words in modes.items():
        with suppress(SettingsError):  # for other nets
            found[name] = cases.fleet_of(model, bank, lanes, *changes, *words)
    return found


def task(fleet: World) -> dict[str, float]:
    """Seconds of one task: training, exchanging, testing."""
    stack, spent = cases.midway(fleet), dict.fromkeys(("training", "exchange", "testing"), 0.0)

    def timed(name: str, work: Callable[[], object]) -> None:
        started = time.perf_counter()
        work()
        spent[name] += time.perf_counter() - started

    def exchange(ended: bool = False) -> None:
        meet_all(crew, ended)

    crew = crew_of([fleet], [stack])
    with one_thread():
        for epoch in range(EPOCHS):
            timed("exchange", exchange)
            timed("training", lambda epoch=epoch: learn_epoch([(fleet, stack)], epoch))  # type: ignore[misc]
            stack.epoch = epoch + 1
            timed("testing", lambda: test(fleet, stack))
        timed("exchange", lambda: exchange(ended=True))
    return spent


def test(fleet: World, stack: Stack) -> None:
    """Test where a run would."""
    points = grid(EPOCHS)
    if stack.epoch in points[:-1]:
        stack.accuracy[:, stack.task, points.index(stack.epoch) - 1, : stack.task] = 0  # as if measured before
        measure(fleet, stack, points.index(stack.epoch), during=True)


def rows(model: str, lanes: int, turns: int, quick: bool, tick: Callable[[], None]) -> list[dict[str, Any]]:
    """Every mode beside none, all in turn. `added` is what a mode adds to the time of learning alone, but for the
    training on received images: that is use, not cost."""
    made = fleets(model, lanes, quick)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in made}
    for _ in range(turns):
        for name, fleet in made.items():
            found[name].append(task(fleet))
            tick()
    middle = {
        name: {part: statistics.median(one[part] for one in times) for part in times[0]}
        for name, times in found.items()
    }
    alone = middle["none"]
    result = []
    for name, spent in middle.items():
        more = max(0.0, spent["training"] - alone["training"]) if name in DATA else 0.0
        added = (sum(spent.values()) - more) / sum(alone.values()) - 1
        result.append({"model": model, "mode": name, **spent, "received": more, "added": added})
    return result
