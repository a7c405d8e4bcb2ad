"""Cells side by side: several runs at a time, their agents in processes or Ray actors.

A thread of this process drives each run, so that run directories, ledgers and clocks stay here whoever learns
elsewhere; a worker that is killed is replaced, and every run ends bit for bit as if it had been the only one.
"""

import queue
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Generic, TypeVar

from shoal.agents.engine import THREADS
from shoal.data import load
from shoal.errors import Stopped
from shoal.fleet.run import Moment, Watch, one_thread
from shoal.runs import common_starts
from shoal.runs.execute import interrupts
from shoal.settings.groups import Machine, Settings
from shoal.study.cells import Cell, finish

C = TypeVar("C", bound=Cell)
POLL = 0.1  # seconds; in between, Ctrl-C is heard
END = 30.0  # seconds for runs to notice that their workers are gone


class Job(Thread, Generic[C]):
    """A run that a thread of its own drives."""

    def __init__(self, cell: C, show: Watch, drive: Callable[[C, Watch], None], over: "queue.Queue[Job[C]]") -> None:
        super().__init__(daemon=True, name=f"shoal-{cell.name}")
        self.cell, self.show, self.drive, self.over = cell, show, drive, over
        self.start_of = start_of(cell.settings)  # the common start that it may be learning
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.drive(self.cell, self.watch)
        except BaseException as error:  # it is raised where the jobs are looked after
            self.error = error
        finally:
            self.over.put(self)

    def watch(self, moment: Moment) -> None:
        if moment.task >= self.cell.settings.tasks.initial and moment.epoch:
            self.start_of = ""  # it is learned and kept, for all that begin with it
        self.show(moment)


def start_of(settings: Settings) -> str:
    """What names the common start that a run learns or finds; empty if it has none of use to others."""
    return common_starts.alone(settings).identity() if common_starts.common(settings) and not settings.kinds else ""


def trained(
    cells: Sequence[C],
    folder: Path,
    data: Path | None,
    machine: Machine,
    begin: Callable[[C], Watch],
    tell: Callable[[str], None] = lambda sentence: None,
    yes: bool = False,
) -> Iterator[C]:
    """Train different cells on the workers that a machine says, as many at a time as there are, and give each when it
    is finished. Cells with the same common start wait until one of them has learned it.

    If one fails, the others are saved and stopped, and it is raised; so it is if the user asks to stop.
    """
    if not cells:
        return
    halt, over = Event(), queue.Queue[Job[C]]()
    waiting, jobs, failed = list(cells), dict[str, Job[C]](), list[BaseException]()
    with one_thread(), staffed(cells, data, machine) as (workers, end_all), interrupts() as asked:
        each = max(1, workers // len(cells))  # of a cell, where there are more than cells
        there = {name: getattr(machine, name) for name in ("members", "address")}
        there["threads"] = machine.threads or max(1, THREADS // workers)

        def drive(cell: C, show: Watch) -> None:
            few = {"workers": min(each, cell.settings.agents * cell.settings.seeds)}
            own = cell.settings.machine.model_copy(update={**there, **few})
            finish(cell, folder, data, show, yes, own, halt.is_set, tell)

        try:
            while jobs or (waiting and not (failed or asked())):
                while len(jobs) * each < workers and not (failed or asked()) and (cell := ready(waiting, jobs)):
                    waiting.remove(cell)
                    jobs[cell.settings.identity()] = job = Job(cell, begin(cell), drive, over)
                    job.start()
                if failed or asked():
                    halt.set()
                try:
                    job = over.get(timeout=POLL)
                except queue.Empty:
                    continue
                del jobs[job.cell.settings.identity()]
                job.join()
                if job.error is not None:
                    failed.append(job.error)
                else:
                    yield job.cell
        except BaseException as error:
            halt.set()
            limit = time.monotonic() + END
            while any(job.is_alive() for job in jobs.values()) and time.monotonic() < limit:
                end_all()
                time.sleep(POLL)
            if isinstance(error, KeyboardInterrupt):
                raise Stopped(
                    "stopped at once; the same command again goes on from the last checkpoints, with all that is left"
                ) from None
            raise
        if asked():
            raise Stopped("stopped and saved; the same command again goes on with all that is left")
        if failed:
            raise next((error for error in failed if not isinstance(error, Stopped)), failed[0])


def ready(waiting: Sequence[C], jobs: Mapping[str, Job[C]]) -> C | None:
    """The next cell whose common start nobody is learning just now."""
    learning = {job.start_of for job in jobs.values()} - {""}
    return next((cell for cell in waiting if start_of(cell.settings) not in learning), None)


@contextmanager
def staffed(cells: Sequence[Cell], data: Path | None, machine: Machine) -> Iterator[tuple[int, Callable[[], None]]]:
    """The workers for some cells: how many there are, and what ends them all at once."""
    with ExitStack() as inside:
        if machine.members == "ray":
            from shoal.fleet.actors import needed
            from shoal.fleet.cluster import possible, session

            count = possible(machine, sum(one.settings.agents for one in cells))
            largest = max(cells, key=lambda cell: cell.settings.agents * cell.settings.seeds).settings
            where = data or (Path(largest.machine.data) if largest.machine.data else None)
            wanted = needed(largest, load(largest.dataset, where))
            open_ = inside.enter_context(session(machine, wanted * (machine.workers or THREADS)))
            yield count, open_.end_all
        else:
            from shoal.fleet.processes import end_all, kept

            inside.enter_context(kept(machine.workers))
            yield machine.workers, end_all
