"""Carrying out a run: from its directory's last checkpoint to its summary, whatever interrupts it on the way."""

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from shoal.agents.engine import kept_memory
from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.errors import CodeError, Stopped
from shoal.fleet.health import DivergedError
from shoal.fleet.members import LostError
from shoal.fleet.run import Moment, Watch, one_thread, train
from shoal.own_code import told_apart
from shoal.runs import common_starts as starts
from shoal.runs import kept as portable
from shoal.runs.material import note
from shoal.runs.prepare import prepare as prepare
from shoal.runs.record import Record
from shoal.runs.recording import agree, finish, predict, tables
from shoal.runs.totals import condense
from shoal.settings.groups import Settings

HANGUP = getattr(signal, "SIGHUP", None)  # not on every system
SIGNALS: tuple[signal.Signals, ...] = (signal.SIGINT, signal.SIGTERM, *([HANGUP] if HANGUP else []))


def carry_out(
    fleet: Sequence[World],
    record: Record,
    show: Watch = lambda moment: None,
    kept: Path | None = None,
    stop: Callable[[], bool] = lambda: False,
    begun: tuple[Stack, ...] | None = None,
) -> dict[str, Any]:
    """Train until the end, save on the way, and return the summary. Common starts are found and put in `kept`. After
    the epoch in which `stop` says so, it is saved and stops, as after Ctrl-C. A run that is new goes on from the stacks
    that have `begun` elsewhere, if there are some.

    >>> import shoal
    >>> tasks = {"count": 2, "classes": 2, "train": 8, "validation": 4, "initial": 1}
    >>> learner = {"epochs": 2, "batch": 8, "memory": 4}
    >>> settings = shoal.Settings(dataset="digits", agents=2, tasks=tasks, learner=learner)
    >>> summary = shoal.carry_out(shoal.prepare(settings), shoal.create("runs/mine", settings))
    >>> summary["agents"], 0 <= summary["final_accuracy"] <= 100
    (2, True)
    """
    settings, kernel = record.settings, ", ".join(dict.fromkeys(world.kernel for world in fleet))
    with record.alone(), kept_memory(), interrupts() as heard:

        def asked() -> bool:
            return heard() or stop()

        record.own()
        note(record, fleet)
        portable.note(record, fleet)
        stacks = record.load(fleet)
        record.adopt()
        if stacks is not None:
            record.again(kernel)
        else:
            record.note(models=[world.about for world in fleet], kernel=kernel)
            stacks = begun or (starts.find(fleet, kept) if kept else None)
        saved, passed = time.monotonic(), list[Exception]()

        def watch(moment: Moment) -> None:
            nonlocal saved
            try:
                show(moment)
            except OSError as error:  # the terminal may be gone: that is why we stop
                if not asked():
                    passed.append(error)
                    raise
            except Exception as error:  # whoever watches a run ends it as they like
                passed.append(error)
                raise
            ended = moment.epoch == 0
            if ended:
                condense(settings, moment.crew.ledger, moment.task - 1)
            if ended or asked() or time.monotonic() - saved > settings.machine.checkpoint:
                record.save(moment.stacks)
                saved = time.monotonic()
            if ended:
                tables(record, moment.stacks)
                agree(record, fleet, moment.stacks)
                predict(record, fleet, moment.stacks)
                if kept:
                    starts.keep(fleet, moment.stacks, kept)
            if asked():
                raise Stopped(f"stopped and saved; go on with `shoal resume {record.folder}`")

        def lost(loss: LostError) -> Sequence[Stack] | None:
            if stop():
                raise Stopped(f"stopped at once; `shoal resume {record.folder}` goes on from the last checkpoint")
            record.tell(f"{loss}; going on from the last checkpoint with a new one")
            return record.load(fleet)

        on = f"`shoal resume {record.folder}` goes on from the last checkpoint"
        try:
            with told_apart(but=passed):
                ends = train(fleet, stacks, watch, lost=lost)
                condense(settings, ends[0].ledger, settings.tasks.count)
                with one_thread():
                    return finish(record, fleet, ends)
        except CodeError as error:
            error.advice = f"mend it, and {on}"
            raise
        except DivergedError as end:
            record.save(end.stacks)
            tables(record, end.stacks)
            raise DivergedError(f"{end}; what was recorded until then is in {record.folder}") from None
        except KeyboardInterrupt as stop:
            raise Stopped(f"stopped at once{f' {stop}' if stop.args else ''}; {on}") from None


@contextmanager
def interrupts() -> Iterator[Callable[[], bool]]:
    """Inside, Ctrl-C, a polite kill or a terminal that closes only sets a flag, to stop after the epoch; a second one
    stops at once, but not that of a terminal, which may come twice.

    One inside another hands on what it heard.
    """
    asked = False
    before: dict[signal.Signals, Any] = {}

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked and number != HANGUP:
            raise KeyboardInterrupt
        asked = True
        outer = before.get(signal.Signals(number))
        if callable(outer) and outer is not signal.default_int_handler:
            outer(number, frame)

    try:
        for number in SIGNALS:
            if signal.getsignal(number) != signal.SIG_IGN:  # `nohup` wants it not to be heard
                before[number] = signal.signal(number, ask)
    except ValueError:  # only the main thread may listen
        pass
    try:
        yield lambda: asked
    finally:
        for heard, handler in before.items():
            signal.signal(heard, handler)


def units(settings: Settings) -> int:
    """How many epochs a run has in all."""
    return (settings.tasks.count - settings.tasks.initial + 1) * settings.learner.epochs


class Clock(Protocol):
    """What says how far a run is."""

    @property
    def task(self) -> int: ...

    @property
    def epoch(self) -> int: ...


def done(settings: Settings, moment: Clock) -> int:
    """How many of them are done."""
    learned = max(0, moment.task - settings.tasks.initial + 1)
    return learned * settings.learner.epochs + moment.epoch
