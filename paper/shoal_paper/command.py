"""The command that repeats published runs. Heavy imports happen inside it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from shoal.cli.arguments import Address, Data, Stacks, Workers, Yes
from shoal.cli.door import Command
from shoal.cli.terminal import show_rows
from shoal.cli.work import dumps, staff_of, work
from shoal.console import console, err, say
from shoal.errors import UserError
from shoal.units import plural
from shoal_paper.terminal import show_cells


def reproduce(
    what: Annotated[
        str,
        typer.Argument(
            help="Of the paper: table1, curves, budget, topology, gaps, or all of these. Beside it: compression, "
            "sequential-mnist, three-scenarios, dropout, memory, leak, links, grid, mixed, weights, adaptation, "
            "heads, confounds. Or report."
        ),
    ],
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            help="One or more of mnist, kmnist, fashionmnist, combined (these four if none is said), cifar100 "
            "(weeks on a CPU) and cifar100-small, a reduction of it."
        ),
    ] = None,
    model: Annotated[list[str] | None, typer.Option(help="monolithic, modular, or both.")] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="One or more of vanilla, alone, data, fedavg, fedprox, fedcurv, fedfish, modmod, hybrid (default: "
            "all). What is beside the paper has methods of its own: a wrong word is told which."
        ),
    ] = None,
    protocol: Annotated[str | None, typer.Option(help="paper or fair (default: paper).", show_default=False)] = None,
    draw: Annotated[
        str | None,
        typer.Option(
            help="How tasks are drawn: authors (as the authors' code does), fleet or agent (default: the protocol's).",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            help="Repetitions of the whole fleet (default: 8, as in the paper; 5 of sequential-mnist, 4 of "
            "compression and leak, 10 of three-scenarios, 2 of links).",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Finished runs are kept here and found again.")] = Path("runs/table1"),
    tables: Annotated[
        Path | None, typer.Option(help="Where the CSVs go (default: OUT); rows in them stay.", show_default=False)
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(help="End by writing this page, e.g. REPRODUCED.md, from the CSVs.", show_default=False),
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(
            help="Where figures are drawn (default: a folder `figures` beside the CSVs, or beside a folder `results`).",
            show_default=False,
        ),
    ] = None,
    pages: Annotated[
        Path | None,
        typer.Option(
            help="End by writing the pages that show tables, as the site does, into this folder.", show_default=False
        ),
    ] = None,
    short: Annotated[bool, typer.Option("--short", help="Write the page on two screens, not with every row.")] = False,
    only: Annotated[bool, typer.Option("--finished", help="Train nothing; take the runs that are finished.")] = False,
    data: Data = None,
    workers: Workers = None,
    address: Address = None,
    stacks: Stacks = None,
    yes: Yes = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per finished run on stdout.")] = False,
) -> None:
    """Repeat the runs of the paper's tables and figures, and set them beside the printed numbers.

    **table1**: every method, with what **curves** (accuracy while learning) and **gaps** (how far apart the rows are)
    show of the same runs. **budget**: gain against the log of what may be sent, marginal gain, value of budget.
    **topology**: gain on sparser and sparser graphs. **report** trains nothing: it draws the figures and writes the
    page from the CSVs (to `--write`, or beside them).

    Methods: **vanilla** agents share nothing; nor do agents **alone**, which begin as those that share do; **data**
    shares images (Recv; Simp on cifar100); **fedavg**, **fedprox**, **fedcurv**, **fedfish** average models with their
    neighbours; **modmod** shares modules; **hybrid** all at once.

    Beside the paper: **sequential-mnist** (class-incremental MNIST in one pass, DER's table) and **three-scenarios**
    (van de Ven's) set single learners beside what their authors published. **compression**: accuracy against bytes of
    models that are sent compressed. **links**: what gains are left where mail is lost or agents are gone. **grid**:
    every learner with every way of sharing. **dropout**: does the paper's gain of images come from sharing, or from
    dropout? **memory**: would more images of one's own do as well? **leak**: does it matter that validation images come
    back as answers? **weights**: how far apart are runs with the same tasks and other weights? **mixed**: what a fleet
    of three kinds of nets gains. **adaptation**: does the gain of modules on CIFAR-100 come from sharing, or from the
    adaptation that those rows left out? **heads**: does the gain of modules come from what is received, or from heads
    that begin at zero? **confounds**: is it still there if images are asked for about the current task alone, and heads
    begin alike?

    All these commands add to the same CSVs. A run that several of them need is trained once.
    """
    from shoal.study import cells
    from shoal_paper import families, reproduced
    from shoal_paper import tables as inside

    place = tables or out
    home = reproduced.home(place)
    pictures = figures or home / "figures"
    # A page shows all figures, so that it is written with all of them drawn anew.
    wanted = list(families.FAMILIES) if write or what in ("all", "report") else [what]
    if what != "report":
        chosen = families.choose(what, dataset, model, method, protocol or "paper", seeds, draw)
        if only:
            chosen = [cell for cell in chosen if cells.finished(cell, out)]
            if not chosen:
                count = families.seeds_of(what, seeds)
                raise UserError(
                    f"no such run with {count} seed{'s' * (count != 1)} is finished in {out}; say --seeds as many as "
                    "finished runs have, or leave out --finished to train them"
                )
        for cell in work(chosen, out, data, yes, staff_of(workers, address, stacks)):
            if json:
                print(dumps(families.row(cell, out)), flush=True)
        where = err if json else console
        for family, ends in families.collect([families.placed(one, data) for one in chosen], out, place).items():
            for title, rows in ends.items():
                show_rows(title, rows, where)
            if not ends:
                show_cells([families.row(one, out) for one in chosen if one.what == family], where)
        spent = sum(cells.summary_of(one)["seconds"] for one in {cells.place_of(cell, out) for cell in chosen})
        number = plural(len(chosen), "run")
        say(f"written to {place}; {number}, {spent / 3600:.1f} hours of training in all")
    if drawn := [family for family in wanted if family in families.FIGURED]:
        draw_figures(place, pictures, drawn)
    if write or what == "report":
        say(f"written to {reproduced.write(place, pictures, write or place / 'REPRODUCED.md', short)}")
        beside = [write.parent / "README.md"] if write and (write.parent / "README.md").exists() else []
        for page in [*beside, *sorted({*place.glob("*.md"), *home.glob("*.md")})]:
            if inside.fill(page, place):
                say(f"tables made anew in {page}")
    if pages:
        say(f"{plural(len(inside.write_shown(home, place, pages)), 'page')} in {pages}")


def draw_figures(tables: Path, folder: Path, families: Sequence[str]) -> None:
    """The figures of some families of cells, where what draws them is installed."""
    from shoal.report import needs

    try:
        needs()
    except UserError as error:
        say(f"no figures: {error}")
        return
    from shoal_paper import figures

    if files := figures.draw(tables, folder, families):
        say(f"{len(files)} files in {folder}")


REPRODUCE = Command(
    reproduce,
    "What should agents share?",
    ("shoal reproduce table1 --dataset mnist --model modular --method vanilla",),
)
