"""The command that repeats published runs. Heavy imports happen inside it."""

from pathlib import Path
from typing import Annotated

import typer

from shoal.cli.arguments import Address, Data, Stacks, Workers, Yes
from shoal.cli.terminal import console, err, say, show_cells, show_rows
from shoal.cli.work import draw_figures, dumps, staff_of, work
from shoal.errors import UserError
from shoal.units import plural


def reproduce(
    what: Annotated[
        str,
        typer.Argument(
            help="table1, curves, budget, topology, gaps, all, sequential-mnist, three-scenarios, dropout, mixed, or "
            "report."
        ),
    ],
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            help="One or more of mnist, kmnist, fashionmnist, combined (these four if none is said), cifar100 "
            "(months on a CPU) and cifar100-small, a reduction of it."
        ),
    ] = None,
    model: Annotated[list[str] | None, typer.Option(help="monolithic, modular, or both.")] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="One or more of vanilla, data, fedavg, fedprox, fedcurv, fedfish, modmod, hybrid; of the last two "
            "benchmarks, learners."
        ),
    ] = None,
    protocol: Annotated[str | None, typer.Option(help="paper or fair (default: paper).", show_default=False)] = None,
    draw: Annotated[
        str | None,
        typer.Option(
            help="Who draws tasks, if not as the protocol has it: authors, fleet, or agent (as shoal 0.1 did).",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            help="Seeds (default: 8, as the paper has; 5 of sequential-mnist, 3 of three-scenarios).",
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
            help="Where curves, budget and topology are drawn (default: figures beside the CSVs).", show_default=False
        ),
    ] = None,
    only: Annotated[bool, typer.Option("--finished", help="Train nothing; take the runs that are finished.")] = False,
    data: Data = None,
    workers: Workers = None,
    address: Address = None,
    stacks: Stacks = None,
    yes: Yes = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per finished run on stdout.")] = False,
) -> None:
    """Repeat the runs of the paper's tables and figures, and set them beside the printed numbers.

    **table1**: every method. **curves**: accuracy while learning, of the same runs. **budget**: gain against the log
    of what may be sent, marginal gain, value of budget. **topology**: gain on sparser and sparser graphs. **gaps**: how
    far apart the rows of Table 1 are. **report**: only draw, and write the page (of `--write`, else beside the CSVs).

    Methods: **vanilla** agents share nothing; **data** (Recv; Simp on cifar100); **fedavg**, **fedprox**, **fedcurv**,
    **fedfish** average models with their neighbours; **modmod** shares modules; **hybrid** all at once.

    Not of the paper, **sequential-mnist** and **three-scenarios** set single learners beside what their authors
    published: class-incremental MNIST in one pass (DER's table), and van de Ven's three scenarios. **dropout** asks
    whether the paper's gain of images is dropout's, **mixed** what a fleet of three kinds of nets gains.

    The CSVs collect the runs of all such commands; a run that several of them need is trained once.
    """
    from shoal.reproduce import families, reproduced
    from shoal.reproduce import tables as inside
    from shoal.runs import cells
    from shoal.settings.protocols import PAPER

    place = tables or out
    pictures = figures or place / "figures"
    wanted = list(families.FAMILIES) if what in ("all", "report") else [what]
    if what != "report":
        chosen = families.choose(what, dataset, model, method, protocol or PAPER, seeds, draw)
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
        for family, ends in families.collect(chosen, out, place).items():
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
        say(f"written to {reproduced.write(place, pictures, write or place / 'REPRODUCED.md')}")
        beside = [write.parent / "README.md"] if write and (write.parent / "README.md").exists() else []
        for page in [*beside, *sorted(place.glob("*.md"))]:
            if inside.fill(page, place):
                say(f"tables made anew in {page}")
