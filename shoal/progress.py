"""How far work is, on the terminal: bars there, lines elsewhere."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column

from shoal.console import err, say

if TYPE_CHECKING:
    from shoal.fleet.run import Moment
    from shoal.settings.groups import Settings
    from shoal.study.cells import Cell


@contextmanager
def bars(cells: Sequence["Cell"]) -> Iterator[Any]:
    """Progress over cells: a bar for all of them on a terminal; a line per task elsewhere."""
    from shoal.runs.execute import done
    from shoal.study.cells import effort

    begun, far = 0, [0] * len(cells)  # how far each is
    # On a narrow terminal the words give way, not the time.
    words = TextColumn(
        "{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")
    )
    columns = (words, BarColumn(20), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    with Progress(*columns, console=err, expand=True, disable=not (cells and err.is_terminal)) as progress:
        total = sum(effort(cell) for cell in cells)
        job = progress.add_task("starting", total=total)

        def begin(cell: "Cell") -> Any:
            nonlocal begun
            at = begun
            begun += 1
            number = f"cell {begun}/{len(cells)}"
            lanes = cell.settings.agents * cell.settings.seeds
            announce = announcer()

            def show(moment: "Moment") -> None:
                announce(moment)
                where = describe(cell.settings, moment)
                far[at] = lanes * done(cell.settings, moment)
                if err.is_terminal:  # if there is no room, the name is cut off
                    progress.update(job, completed=sum(far), description=f"{number}, {where}, {cell.name}")
                elif tells(cell.settings, moment):
                    say(f"{number} {cell.name}: {where}")

            return show

        yield begin


@contextmanager
def bar(settings: "Settings") -> Iterator[Any]:
    """A progress bar on a terminal; a line per task elsewhere."""
    from shoal.runs.execute import done, units

    announce = announcer()
    if not err.is_terminal:

        def tell(moment: "Moment") -> None:
            announce(moment)
            line(settings, moment)

        yield tell
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn(), TextColumn("left"))
    with Progress(*columns, TimeRemainingColumn(), console=err) as progress:
        job = progress.add_task("starting", total=units(settings))

        def show(moment: "Moment") -> None:
            announce(moment)
            progress.update(job, completed=done(settings, moment), description=describe(settings, moment))

        yield show


@contextmanager
def steps(title: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on a terminal, nothing elsewhere; it is told how much of how much is done."""
    if not err.is_terminal:
        yield lambda done, total: None
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn(), TextColumn("left"))
    with Progress(*columns, TimeRemainingColumn(), console=err) as progress:
        job = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(job, completed=done, total=total)


@contextmanager
def downloads() -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar for each file; it is told how much of how much of which is there."""
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(),
        console=err,
    ) as progress:
        jobs: dict[str, Any] = {}

        def tell(file: str, done: int, total: int) -> None:
            if file not in jobs:
                jobs[file] = progress.add_task(file, total=total or None)
            progress.update(jobs[file], completed=done)

        yield tell


def announcer() -> "Callable[[Moment], None]":
    """What says, once, that an agent has diverged and that the others go on."""
    from shoal.agents.ends import JOINT, ended
    from shoal.data.sites import names

    told: set[Any] = set()

    def announce(moment: "Moment") -> None:
        # Agents that begin from a common start that diverged have ended with it, and have been told.
        news = [end for end in moment.ended if not {end, end._replace(agent=JOINT)} & told]
        told.update(moment.ended)
        world = moment.crew.whole[0]
        for sentence in ended(news, names(world.bank.sources, world.fleet.agents) if news else ()):
            say(f"{sentence}; all others continue")

    return announce


def line(settings: "Settings", moment: "Moment") -> None:
    if tells(settings, moment):
        say(describe(settings, moment))


def tells(settings: "Settings", moment: "Moment") -> bool:
    """Is there news for a line? The initial tasks, which are learned together, are one."""
    return moment.epoch == 0 and (moment.task >= settings.tasks.initial or moment.task == 1)


def describe(settings: "Settings", moment: "Moment") -> str:
    """Where a run is and how well it does."""
    count, initial = settings.tasks.count, settings.tasks.initial
    task, epoch = moment.task, moment.epoch
    if epoch == 0 and task < initial:
        return f"tasks 1 to {initial} train jointly"
    if epoch == 0:
        ends = [stack.accuracy[:, task - 1, -1, :task] for stack in moment.stacks]
        there = sum(int((~end.isnan()).sum()) for end in ends)  # of agents that have diverged there is nothing
        mean = sum(float(end.nansum()) for end in ends) / max(1, there)
        what = "accuracy" if moment.crew.whole[0].bank.targets is None else "R²"
        return f"task {task}/{count} done, {what} {100 * mean:.1f}%"
    return f"task {task + 1}/{count}, epoch {epoch}/{settings.learner.epochs}"
