"""Commands that answer what agents should share: compare, sweep, advise. Heavy imports happen inside them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from shoal.cli.arguments import (
    Address,
    Data,
    File,
    Json,
    Page,
    Seeds,
    Stacks,
    Trust,
    Words,
    Workers,
    Yes,
    complete_file,
    complete_word,
)
from shoal.cli.terminal import show_advice, show_compared, show_swept
from shoal.cli.work import dumps, end_with_page, staff_of, work
from shoal.console import console, err, say
from shoal.files import columns, replaceable
from shoal.trust import give


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Settings files, names of experiments, finished run directories, or folders that hold some.",
            autocompletion=complete_file,
        ),
    ],
    baseline: Annotated[
        Path | None, typer.Option(help="The run to compare with (default: the first).", show_default=False)
    ] = None,
    seeds: Seeds = None,
    out: Annotated[Path, typer.Option(help="Runs of settings files are kept here and found again.")] = Path(
        "runs/compare"
    ),
    data: Data = None,
    page: Page = True,
    workers: Workers = None,
    address: Address = None,
    stacks: Stacks = None,
    yes: Yes = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per run on stdout.")] = False,
    trust: Trust = False,
) -> None:
    """Run settings files, or read finished runs, and set them side by side, paired over seeds.

    Fleets of the same kinds of agents are compared kind by kind too. OUT/compare.csv has the table. Stop with
    Ctrl-C; run the same command again to continue.
    """
    from shoal.study import compare as runs_
    from shoal.study.cells import write_csv

    give(trust)
    found = runs_.entries(runs, [f"seeds={seeds}"] if seeds is not None else [])
    base = runs_.base_of(found, baseline)
    replaceable(out / "compare.csv", columns("run", "baseline"))  # said now, not after hours of training
    for _ in work([one for one in found if one.done is None], out, data, yes, staff_of(workers, address, stacks)):
        pass
    rows = runs_.compared(found, base, out)
    file = write_csv(out / "compare.csv", rows)
    runs_only = [row for row in rows if row["kind"] is None]
    for row in runs_only if json else ():
        print(dumps(row), flush=True)
    show_compared(rows, err if json else console)
    say(f"written to {file}")
    end_with_page(runs_only, out, page)


def sweep(
    file: File,
    words: Annotated[
        list[str],
        typer.Argument(
            help="What to vary, e.g. sharing=none,recv,recv+fedavg network=ring,complete.",
            metavar="KEY=A,B...",
            autocompletion=complete_word,
        ),
    ],
    seeds: Seeds = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Runs are kept here and found again (default: runs/sweep-NAME-KEYS).", show_default=False),
    ] = None,
    data: Data = None,
    page: Page = True,
    workers: Workers = None,
    address: Address = None,
    stacks: Stacks = None,
    yes: Yes = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per combination on stdout.")] = False,
    trust: Trust = False,
) -> None:
    """What should my agents share, with whom, how often? Run every combination and mark those worth their traffic.

    `+` joins sharing modes. Settings of a mode are ignored where it is off. OUT/sweep.csv has the table.
    Stop with Ctrl-C; run the same command again to continue. With more values of the same keys, what is finished is
    found again.
    """
    from shoal.study import sweep as grids
    from shoal.study.cells import write_csv

    give(trust)
    cells = grids.grid(file, words, [f"seeds={seeds}"] if seeds is not None else [])
    varied = [key for key, values in grids.axes(words).items() if len(values) > 1]
    folder = out or Path("runs") / "-".join(["sweep", file.stem, *varied])
    replaceable(folder / "sweep.csv", columns("front", "identity"))  # said now, not after hours of training
    for _ in work(cells, folder, data, yes, staff_of(workers, address, stacks)):
        pass
    rows = grids.swept(cells, folder)
    table = write_csv(folder / "sweep.csv", rows)
    for row in rows if json else ():
        print(dumps(row), flush=True)
    show_swept(rows, list(dict.fromkeys(key for cell in cells for key in cell.words)), err if json else console)
    say(f"written to {table}")
    end_with_page(rows, folder, page)


def advise(
    file: File,
    words: Words = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help='What a link may carry in a task, e.g. "20 kB/task" (default: anything).', show_default=False
        ),
    ] = None,
    candidates: Annotated[
        str | None,
        typer.Option(
            help="What could be shared, e.g. recv,simp,recv+modmod (default: all that suits).", show_default=False
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Repetitions of the whole fleet, at most.")] = 8,
    effect: Annotated[float, typer.Option(help="The smallest gain of interest, in points of accuracy.")] = 1.0,
    fit: Annotated[
        bool, typer.Option("--fit/--no-fit", help="Look first whether agents alone are fitted, and mend it if not?")
    ] = True,
    out: Annotated[
        Path | None,
        typer.Option(help="Runs are kept here and found again (default: runs/advise-NAME).", show_default=False),
    ] = None,
    data: Data = None,
    workers: Workers = None,
    address: Address = None,
    stacks: Stacks = None,
    yes: Yes = False,
    json: Json = False,
    trust: Trust = False,
) -> None:
    """What should my agents share for this budget? An answer in a sentence, with its uncertainty.

    First it looks whether agents alone are fitted: a few plain configurations are tried, and if one is better, sharing
    is compared with it. What costs more than the budget has a smaller dose, or is left out if none fits. The others
    race over half of the seeds, ranked by validation rows: all have a few, the better half more, and so on. What is
    best there is measured on the test rows of the other seeds. OUT has the sentence (advise.txt), the table (.csv,
    .json) and a chart (.svg, .png, .pdf); the same command again continues where it was stopped.
    """
    from shoal.study import advise as advices

    give(trust)

    def train(blocks: Sequence[advices.Block], folder: Path) -> None:
        for _ in work(blocks, folder, data, yes, staff_of(workers, address, stacks)):
            pass

    folder = out or Path("runs") / f"advise-{advices.folder_name(file.stem)}"
    found = advices.advise(file, budget, candidates, seeds, folder, words or [], data, train, yes, effect, fit, say)
    if json:
        print(dumps(found.content()), flush=True)
    else:
        show_advice(found)
    say(f"written to {folder / 'advise.txt'}, and .csv, .json and a chart beside it")
