"""Carrying out a run: from its directory's last checkpoint to its summary, whatever interrupts it on the way."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from shoal import data, starts
from shoal.config import Settings
from shoal.engine import keep_memory
from shoal.errors import Stopped
from shoal.record import Record
from shoal.run import simulate
from shoal.stack import Stack
from shoal.world import World, world


def prepare(settings: Settings, folder: Path | None = None) -> World:
    """The data and streams of a run, before anything is written. `folder` wins over `machine.data`."""
    said = Path(settings.machine.data) if settings.machine.data else None
    return world(settings, data.load(settings.dataset, folder or said))


def carry_out(
    fleet: World, record: Record, show: Callable[[Stack], None] = lambda stack: None, kept: Path | None = None
) -> dict[str, Any]:
    """Train until the end, save on the way, and return the summary. Common starts are found and put in `kept`."""
    settings = record.settings
    keep_memory()
    with record.alone(), interrupts() as asked:
        stack = record.load(fleet.device)
        if stack is not None:
            record.again()
        elif kept:
            stack = starts.find(fleet, kept)
        saved = time.monotonic()

        def watch(stack: Stack) -> None:
            nonlocal saved
            show(stack)
            ended = stack.epoch == 0
            if ended or asked() or time.monotonic() - saved > settings.machine.checkpoint:
                record.save(stack)
                saved = time.monotonic()
            if ended:
                record.tables(stack)
                if kept:
                    starts.keep(fleet, stack, kept)
            if asked():
                raise Stopped(f"stopped and saved; go on with `shoal resume {record.folder}`")

        try:
            return record.finish(fleet, simulate(fleet, stack, watch))
        except KeyboardInterrupt:
            raise Stopped(f"stopped at once; `shoal resume {record.folder}` goes on from the last checkpoint") from None


@contextmanager
def interrupts() -> Iterator[Callable[[], bool]]:
    """Inside, Ctrl-C or a polite kill only sets a flag, to stop after the epoch; a second one stops at once."""
    asked = False

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    try:
        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # only the main thread may listen
        before = {}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def units(settings: Settings) -> int:
    """How many epochs a run has in all."""
    return (settings.tasks.count - settings.tasks.initial + 1) * settings.learner.epochs


def done(settings: Settings, stack: Stack) -> int:
    """How many of them are done."""
    learned = max(0, stack.task - settings.tasks.initial + 1)
    return learned * settings.learner.epochs + stack.epoch
