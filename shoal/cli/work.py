"""What several commands do: train runs and cells, write pages and figures, and say what came of it."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from shoal.cli.terminal import show_summary
from shoal.console import say
from shoal.errors import StaffError, UserError
from shoal.files import replaceable
from shoal.progress import bar, bars

if TYPE_CHECKING:
    from shoal.agents.world import World
    from shoal.fleet.run import Moment
    from shoal.runs.record import Record
    from shoal.settings.groups import Machine
    from shoal.study.cells import Cell


C = TypeVar("C", bound="Cell")


def train(fleet: Sequence["World"], record: "Record", trackers: Sequence[str] = ()) -> dict[str, Any]:
    """Train with a progress bar, followed by trackers."""
    from shoal.cli.trackers import follow
    from shoal.runs.execute import carry_out

    say(f"run directory {record.folder}")
    record.tell = say
    with bar(record.settings) as show, follow(trackers, record, say) as crowd:

        def watch(moment: "Moment") -> None:
            show(moment)
            crowd.note(moment)

        try:
            summary = carry_out(fleet, record, watch)
        except StaffError as error:
            raise UserError(f"{error} with `shoal resume {record.folder}`") from None
        crowd.conclude(summary)
        return summary


def one_run(folder: Path) -> Path:
    """A folder of runs; of a live fleet, the run directory that its agents' records come to."""
    if not (folder / "live.json").is_file():
        return folder
    from shoal.live.gathered import gather

    found = gather(folder)
    for sentence in found.disagreements:
        say(f"{folder}: {sentence}")
    return found.folder


def save_page(folders: Iterable[Path], out: Path, figures: Path | None = None) -> None:
    """Write runs as one page, and its charts as figures."""
    from shoal.report import answer, compare, page
    from shoal.runs import read

    replaceable(out, page.PAGE)
    places = list(folders)
    runs, notes = read.gather(places)
    advice = answer.advice_of(places)
    found = compare.groups(runs if advice is None else answer.joined(runs))
    page.save(out, page.page(found, notes, advice=advice))
    for note in notes:
        say(f"{note.folder}{' is left out' * note.out}: {note.why}")
    say(f"{len(runs)} run{'s' * (len(runs) > 1)} in {out}")
    if figures:
        say(f"{len(page.draw(found, figures))} files in {figures}")


def save_film(folders: Iterable[Path], out: Path) -> None:
    """Draw one run as a picture that moves."""
    from shoal.report.film import film
    from shoal.runs import read

    runs, _ = read.gather(list(folders))
    if len(runs) != 1:
        raise UserError(f"--film draws one run, and here are {len(runs)}; name the directory of one")
    say(f"{film(runs[0], out)} shows it learn")


def end_with_page(rows: Iterable[dict[str, Any]], folder: Path, wanted: bool) -> None:
    """The page of the runs in some rows, where it is wanted and what draws it is installed."""
    from shoal.report import needs

    if not wanted:
        return
    try:
        needs()
    except UserError as error:
        say(f"no page: {error}")
        return
    save_page((Path(row["out"]) for row in rows), folder / "report.html")


def work(
    cells: Sequence[C], folder: Path, data: Path | None, yes: bool = False, staff: "Staff | None" = None
) -> Iterator[C]:
    """Train the cells that are not finished yet, under one progress bar, and give each when it is: one after the other,
    or side by side on some staff."""
    from shoal import data as datasets
    from shoal.backbones import through
    from shoal.fleet.size import affordable
    from shoal.runs.execute import prepare
    from shoal.sharing.plan import limited
    from shoal.study.cells import finish, finished, missing

    left = missing(cells, folder)
    load = cache(datasets.load)
    for cell in left:
        settings = cell.settings
        where = data or (Path(settings.machine.data) if settings.machine.data else None)
        # It says what is missing now, not after hours of other cells.
        bank = through(load(settings.dataset, where), settings.backbone)
        if not yes:
            affordable(settings, bank)  # likewise, what is too large
        if limited(settings):
            prepare(settings.model_copy(update={"seeds": 1}), data, yes=True)  # and which mode can send nothing
    if len(left) < len(cells):
        say(f"{len(cells) - len(left)} of {len(cells)} runs need no training: finished, or the same as another")
    with bars(left) as begin:
        if staff and left:
            from shoal.study.beside import trained

            machine = staff(left[0].settings.machine)
            ended = trained(left, folder, data, machine, begin, say, yes)
        for cell in cells:
            while not finished(cell, folder):
                if staff and left:
                    next(ended)
                else:
                    finish(cell, folder, data, begin(cell), yes)
            yield cell


Staff = Callable[["Machine"], "Machine"]


def staff_of(workers: str | None, address: str | None, stacks: int | None) -> Staff | None:
    """What `--workers` makes of a machine; None, if nobody says it."""
    from shoal.settings.groups import Machine
    from shoal.settings.staff import staff

    staff(Machine(), workers, address, stacks)  # says now what cannot be
    return None if workers is None else partial(staff, workers=workers, address=address, stacks=stacks)


def report(summary: dict[str, Any], json: bool) -> None:
    """A finished run as a table, or as a JSON object on one line."""
    if json:
        print(dumps(summary), flush=True)
    else:
        show_summary(summary)


def dumps(content: dict[str, Any]) -> str:
    return json.dumps(content)
