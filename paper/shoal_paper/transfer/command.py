"""The command that asks what the modules of a run are worth to other tasks. Heavy imports happen inside it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from shoal.cli.arguments import Data, Json, Trust
from shoal.cli.door import Command
from shoal.cli.terminal import show_rows
from shoal.cli.work import dumps
from shoal.console import console, err, plainly, say
from shoal.errors import UserError
from shoal.files import replaceable
from shoal.progress import steps
from shoal.trust import give

if TYPE_CHECKING:
    from shoal_paper.transfer.measure import Found, Means


def transfer(
    folder: Annotated[Path, typer.Argument(help="The directory of a finished run of modular nets.", metavar="RUN")],
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help="One or more of iou, leep, logme, a_distance, otce, discrepancy, kl (default: iou).",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[
        list[int] | None,
        typer.Option(help="The seeds to look at, each with a picture (default: the run's first).", show_default=False),
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="For how many epochs each task is learned again.")] = 20,
    out: Annotated[
        Path | None,
        typer.Option(help="The picture (default: NAME-transfer.svg; of several seeds -SEED.svg).", show_default=False),
    ] = None,
    routes: Annotated[
        int | None,
        typer.Option(min=1, help="At most this many pairs of each seed, drawn at random (default: all)."),
    ] = None,
    parts: Annotated[
        bool,
        typer.Option("--parts", help="Ask instead which part of what is received helps: module, structure or head."),
    ] = False,
    data: Data = None,
    json: Json = False,
    trust: Trust = False,
) -> None:
    """Show what the modules of a run are worth to other tasks: what scores predict, and what is gained in truth.

    Every task is learned again for some epochs with each module that another agent kept from an earlier one, and with a
    fresh module. The picture has score and gain of all these pairs side by side, a table beside it (.csv) the numbers.
    The rank correlation (Spearman) of both is over all pairs, and the mean of those **within** one receiving task: to
    choose among offers, a score only has to rank those for one task. With several seeds (`--seed 0 --seed 1`) the means
    over them come last, and in a table of their own (NAME-transfer-means.csv).

    **--parts**: every task is learned again with each part of what would be received, and each choice of parts; the
    rest is fresh. The table (NAME-parts.csv) has the gain of each over a fresh start, and what it weighs.
    """
    from shoal.runs.record import reopen
    from shoal.study.cells import write_csv
    from shoal_paper.transfer.measure import (
        Found,
        NoModulesError,
        described,
        mean_rows,
        measure,
        over_seeds,
        seed_of,
        summary,
    )
    from shoal_paper.transfer.picture import PICTURE, write

    give(trust)
    name = folder.resolve().name
    seeds: list[int | None] = list(dict.fromkeys(seed)) if seed else [None]
    if parts:
        transfer_parts(folder, seeds, epochs, routes, out or Path(f"{name}-parts.csv"), data, json)
        return
    file = out or Path(f"{name}-transfer.svg")
    if file.suffix != ".svg":
        raise UserError(f"the picture cannot be {file}; give --out a name that ends in .svg")
    if not file.absolute().parent.is_dir():  # said now, not after minutes of learning
        raise UserError(f"cannot write {file}: there is no folder {file.parent}; give --out another place")
    replaceable(file, PICTURE)
    settings = reopen(folder).settings
    for one in seeds:  # likewise
        seed_of(folder, settings, one)
    every: list[Found] = []
    for one in seeds:
        try:
            with steps("learning again" if len(seeds) == 1 else f"learning again, seed {one}") as tell:
                found = measure(folder, metric or ["iou"], one, epochs, data, tell, routes)
        except NoModulesError as why:
            if one == seeds[-1] and not every:
                raise
            say(str(why))
            continue
        every.append(found)
        own = file if len(seeds) == 1 else file.with_stem(f"{file.stem}-{one}")
        table = write(found, f"{name}, seed {found.seed}: what scores promise, what modules deliver", own)
        if json:
            print(dumps(summary(found) | {"out": str(own), "csv": str(table)}), flush=True)
        else:
            show_ranks(found)
        say(f"written to {own} and {table}")
    if len(every) > 1:
        means = over_seeds(every)
        if json:
            print(dumps(described(means)), flush=True)
        else:
            show_means(means)
        say(f"written to {write_csv(file.with_name(f'{file.stem}-means.csv'), made(mean_rows(means)))}")


def made(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of a table, with the commit that made them."""
    from shoal.runs.about import commit

    return [row | {"commit": commit()} for row in rows]


def transfer_parts(
    folder: Path,
    seeds: Sequence[int | None],
    epochs: int,
    routes: int | None,
    file: Path,
    data: Path | None,
    json: bool,
) -> None:
    """Which part of what is received helps, over some seeds of a run."""
    from shoal.runs.record import reopen
    from shoal.study.cells import write_csv
    from shoal_paper.transfer.measure import seed_of
    from shoal_paper.transfer.parts import measure, table

    if file.suffix != ".csv":
        raise UserError(f"the table cannot be {file}; give --out a name that ends in .csv")
    settings = reopen(folder).settings
    for one in seeds:  # said now, not after minutes of learning
        seed_of(folder, settings, one)
    found = []
    for one in seeds:
        with steps("learning again" if len(seeds) == 1 else f"learning again, seed {one}") as tell:
            found.append(measure(folder, one, epochs, data, tell, routes))
    rows = table(found).to_dicts()
    for row in rows if json else ():
        print(dumps(row), flush=True)
    show_rows("what helps of what is received: points of accuracy over a fresh start", rows, err if json else console)
    say(f"written to {write_csv(file, made(rows))}")


def show_ranks(found: "Found") -> None:
    """How well metrics rank the modules of a run."""
    from shoal_paper.transfer.picture import number as spoken

    table = Table("metric", "rho, all pairs", "rho, within a task", "tasks", "pairs", "left out", box=None)
    for metric, one in found.ranks.items():
        table.add_row(metric, *(spoken(rho, ".3f") for rho in one[:2]), *map(str, one[2:]))
    console.print(table)
    plainly(
        f"seed {found.seed}, {len(found.trials)} pairs: after {found.epochs} epoch{'s' * (found.epochs > 1)} a "
        f"received module gains {spoken(found.gain, '+.2f')} points over a fresh one, on average"
    )
    for why in found.why.values():
        plainly(f"left out because {why}")


def show_means(means: "Means") -> None:
    """How well metrics rank modules, over several seeds."""
    from shoal_paper.transfer.picture import number as spoken

    table = Table("metric", "rho, all pairs", "rho, within a task", box=None)
    for metric in means.rho:
        both = (means.rho[metric], means.within[metric])
        table.add_row(metric, *(f"{spoken(one.mean, '.3f')} ± {spoken(one.error, '.3f')}" for one in both))
    console.print(table)
    gain = f"{spoken(means.gain.mean, '+.2f')} ± {spoken(means.gain.error, '.2f')}"
    plainly(f"mean of {means.seeds} seeds ± standard error; a received module gains {gain} points over a fresh one")


TRANSFER = Command(transfer, "Look at runs", ("shoal transfer runs/modules", "shoal transfer runs/modules --parts"))
