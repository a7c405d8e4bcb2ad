"""The command line. Heavy imports happen inside the commands: `--help` must not wait for torch."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column, Table
from rich.text import Text

from shoal.errors import Stopped, UserError

if TYPE_CHECKING:
    from shoal.cells import Cell
    from shoal.config import Settings
    from shoal.network import Facts
    from shoal.promise import Found
    from shoal.record import Record
    from shoal.sharing.plan import Line
    from shoal.stack import Stack
    from shoal.world import World

C = TypeVar("C", bound="Cell")

app = typer.Typer(
    name="shoal",
    help="Fleets of agents that learn their own streams of tasks, one after the other, without forgetting.",
    epilog="Start with `shoal demo`; then `shoal run experiments/mnist.toml`.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
data_app = typer.Typer(help="Datasets: what is there, and how to get the rest.", no_args_is_help=True)
app.add_typer(data_app, name="data")

console = Console()
err = Console(stderr=True)

Out = Annotated[Path | None, typer.Option(help="The run directory (default: runs/NAME-ID).", show_default=False)]
Data = Annotated[
    Path | None,
    typer.Option(help="Where to look for data first; then $SHOAL_DATA, then the user cache.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="End with one JSON object on the last line of stdout.")]
Words = Annotated[
    list[str] | None,
    typer.Argument(help="Settings that win over the file, e.g. learner.epochs=50.", metavar="[KEY=VALUE]..."),
]
Page = Annotated[bool, typer.Option("--page/--no-page", help="End with OUT/report.html (see `shoal report`).")]
Seeds = Annotated[int | None, typer.Option(help="Repetitions of the whole fleet.", show_default=False)]
Track = Annotated[
    list[str] | None,
    typer.Option(help="Also follow the run with tensorboard, wandb (offline) or mlflow (local).", show_default=False),
]


def main() -> None:
    """Run the command line; every foreseen error is one sentence on stderr and exit code 2."""
    with sentences():
        app()


@contextmanager
def sentences() -> Iterator[None]:
    """Turn foreseen errors into a sentence and an exit code."""
    try:
        yield
    except KeyboardInterrupt:
        err.print("stopped")
        sys.exit(130)
    except Stopped as stop:
        say(str(stop))
        sys.exit(130)
    except UserError as error:
        say(str(error), "error: ")
        sys.exit(2)


def say(text: str, head: str = "") -> None:
    """A line on stderr exactly as it is: brackets in a path are no markup, and a command to copy is never wrapped."""
    err.print(Text.assemble((head, "bold red"), text), soft_wrap=True)


@app.command()
def run(
    file: Annotated[Path, typer.Argument(help="A settings file, e.g. experiments/mnist.toml.")],
    words: Words = None,
    seeds: Seeds = None,
    out: Out = None,
    data: Data = None,
    track: Track = None,
    json: Json = False,
) -> None:
    """Train a fleet. Ctrl-C stops it after the current epoch; `shoal resume` goes on.

    `shoal list settings` explains every KEY that a settings file or KEY=VALUE can set.
    """
    from shoal.config import read
    from shoal.trackers import needs

    needs(track or [])
    said = [*(words or []), *([f"seeds={seeds}"] if seeds is not None else [])]
    settings = read(file, [*said, *([f"machine.data={data.resolve()}"] if data else [])])
    from shoal.record import create
    from shoal.session import prepare

    folder = out or Path("runs") / f"{file.stem}-{settings.model}-{settings.identity()}"
    fleet = prepare(settings, data)  # before anything is written
    report(train(fleet, create(folder, settings), track or []), json)


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(help="A run directory.")],
    data: Data = None,
    track: Track = None,
    json: Json = False,
) -> None:
    """Go on with a run that was stopped; it ends bit for bit as if it had not been."""
    from shoal.record import content, reopen
    from shoal.trackers import needs

    needs(track or [])
    record = reopen(folder)
    if record.finished:
        report(content(record.summary), json)
        say(f"{folder} was finished already")
        return
    from shoal.session import prepare

    report(train(prepare(record.settings, data), record, track or []), json)


@app.command()
def demo(
    words: Words = None,
    folder: Annotated[
        Path, typer.Option("--out", help="Where the run directories and the page go; finished runs are found again.")
    ] = Path("runs/demo"),
    seeds: Annotated[int, typer.Option(min=1, help="Repetitions of the whole fleet.")] = 4,
) -> None:
    """See what sharing brings and costs: a small fleet learns digits alone, then with four ways of sharing.

    Embedded images, no download, one to two minutes. Ctrl-C stops it; the same command goes on.
    """
    from shoal.demo import show

    show(folder, seeds, words or [], console)


@app.command()
def reproduce(
    what: Annotated[str, typer.Argument(help="table1, curves, budget, topology, gaps, all, or report.")],
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
        typer.Option(help="One or more of vanilla, data, fedavg, fedprox, fedcurv, fedfish, modmod, hybrid."),
    ] = None,
    protocol: Annotated[str, typer.Option(help="paper or fair.")] = "paper",
    seeds: Annotated[int, typer.Option(help="Seeds, the paper has 8.")] = 8,
    out: Annotated[Path, typer.Option(help="Finished cells are kept here and found again.")] = Path("runs/table1"),
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
    only: Annotated[bool, typer.Option("--finished", help="Train nothing; take the cells that are finished.")] = False,
    data: Data = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per finished cell on stdout.")] = False,
) -> None:
    """Train cells of the paper's tables and figures and set them beside the printed numbers.

    **table1**: every method. **curves**: accuracy while learning, of the same cells. **budget**: gain against the log
    of what is sent, marginal gain, value of budget. **topology**: gain on sparser and sparser graphs. **gaps**: how far
    apart the rows of Table 1 are. **report**: only draw, and write the page of `--write`, from the CSVs.

    Methods: **vanilla** agents share nothing; **data** (Recv; Simp on cifar100); **fedavg**, **fedprox**, **fedcurv**,
    **fedfish** average models with their neighbours; **modmod** shares modules; **hybrid** all at once. The CSVs
    collect the cells of all such commands; a cell that several of them need is trained once.
    """
    from shoal import cells, reproduce
    from shoal.reproduce import reproduced

    place = tables or out
    pictures = figures or place / "figures"
    families = list(reproduce.FAMILIES) if what in ("all", "report") else [what]
    if what != "report":
        chosen = reproduce.choose(what, dataset, model, method, protocol, seeds)
        if only:
            chosen = [cell for cell in chosen if cells.finished(cell, out)]
            if not chosen:
                raise UserError(f"no such cell is finished in {out}; leave out --finished to train them")
        for cell in work(chosen, out, data):
            if json:
                print(dumps(reproduce.row(cell, out)), flush=True)
        where = err if json else console
        for family, ends in reproduce.collect(chosen, out, place).items():
            for title, rows in ends.items():
                show_rows(title, rows, where)
            if not ends:
                show_cells([reproduce.row(one, out) for one in chosen if one.what == family], where)
        spent = sum(cells.summary_of(one)["seconds"] for one in {cells.place_of(cell, out) for cell in chosen})
        say(f"written to {place}; {len(chosen)} cells, {spent / 3600:.1f} hours of training in all")
    draw_figures(place, pictures, families)
    if write or what == "report":
        say(f"written to {reproduced.write(place, pictures, write or Path('REPRODUCED.md'))}")


@app.command()
def compare(
    runs: Annotated[list[Path], typer.Argument(help="Settings files, and run directories that are finished.")],
    baseline: Annotated[
        Path | None, typer.Option(help="The run to compare with (default: the first).", show_default=False)
    ] = None,
    seeds: Seeds = None,
    out: Annotated[Path, typer.Option(help="Runs of settings files are kept here and found again.")] = Path(
        "runs/compare"
    ),
    data: Data = None,
    page: Page = True,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per run on stdout.")] = False,
) -> None:
    """Run settings files, or read finished runs, and set them side by side, paired over seeds.

    OUT/compare.csv has the table. The same command again goes on where it was stopped.
    """
    from shoal import compare as runs_
    from shoal.cells import write_csv

    found = runs_.entries(runs, [f"seeds={seeds}"] if seeds is not None else [])
    base = runs_.base_of(found, baseline)
    for _ in work([one for one in found if one.done is None], out, data):
        pass
    rows = runs_.compared(found, base, out)
    file = write_csv(out / "compare.csv", rows)
    for row in rows if json else ():
        print(dumps(row), flush=True)
    show_compared(rows, err if json else console)
    say(f"written to {file}")
    end_with_page(rows, out, page)


@app.command()
def sweep(
    file: Annotated[Path, typer.Argument(help="A settings file, e.g. experiments/digits.toml.")],
    words: Annotated[
        list[str],
        typer.Argument(
            help="What to vary, e.g. sharing=none,recv,recv+fedavg network=ring,complete.", metavar="KEY=A,B..."
        ),
    ],
    seeds: Seeds = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Cells are kept here and found again (default: runs/sweep-NAME).", show_default=False),
    ] = None,
    data: Data = None,
    page: Page = True,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per cell on stdout.")] = False,
) -> None:
    """What should my agents share, with whom, how often? Run every combination and mark those worth their traffic.

    `+` joins sharing modes. A setting of a mode counts only where that mode shares. OUT/sweep.csv has the table; the
    same command again goes on where it was stopped, and a larger grid finds the cells of a smaller one.
    """
    from shoal import sweep as grids
    from shoal.cells import write_csv

    cells = grids.grid(file, words, [f"seeds={seeds}"] if seeds is not None else [])
    folder = out or Path("runs") / f"sweep-{file.stem}"
    for _ in work(cells, folder, data):
        pass
    rows = grids.swept(cells, folder)
    table = write_csv(folder / "sweep.csv", rows)
    for row in rows if json else ():
        print(dumps(row), flush=True)
    show_swept(rows, list(dict.fromkeys(key for cell in cells for key in cell.words)), err if json else console)
    say(f"written to {table}")
    end_with_page(rows, folder, page)


@app.command("report")
def report_(
    folders: Annotated[
        list[Path], typer.Argument(help="Run directories, or folders that hold some.", metavar="DIR...")
    ],
    out: Annotated[Path, typer.Option(help="The page.")] = Path("report.html"),
    figures: Annotated[
        Path | None, typer.Option(help="Also write every chart here, as PNG, SVG and PDF.", show_default=False)
    ] = None,
) -> None:
    """Show runs in one HTML page that needs nothing else: what they learned, what it cost, what differs.

    Learning curves, accuracy of every task over time, gains over agents that share nothing (paired over seeds), cost,
    the network's traffic, modules and settings. Runs that are unfinished or damaged are shown as far as they go, and
    the page says what is missing.
    """
    from shoal.report import needs

    needs()
    save_page(folders, out, figures)


@app.command()
def network(
    graph: Annotated[
        str,
        typer.Argument(
            help="complete, ring, server, tree, random, connected, disconnected, a graph file or a .toml.",
            metavar="GRAPH",
        ),
    ],
    agents: Annotated[
        int | None,
        typer.Option(min=1, help="Agents (default: 8, or as many as a graph file names).", show_default=False),
    ] = None,
    p: Annotated[
        float | None, typer.Option(min=0, max=1, help="Chance of a connection (default: 0.5).", show_default=False)
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="The seed of a random graph (default: 0).", show_default=False)
    ] = None,
    budget: Annotated[
        int | None, typer.Option(min=0, help="Floats per exchange and edge (default: unlimited).", show_default=False)
    ] = None,
    every: Annotated[
        int | None, typer.Option(min=1, help="Epochs between exchanges (default: 1).", show_default=False)
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The picture (default: NAME.svg).", show_default=False)] = None,
) -> None:
    """Show who can send to whom: facts about a graph before a fleet learns on it, and a picture.

    **complete**: everyone to everyone. **ring**: each to two neighbours. **server**: all to agent 0 and back. **tree**:
    a random tree. **random**: each pair with chance p, maybe in several components. **connected**: a random tree, and
    each other pair with chance p. **disconnected**: no one. Random graphs differ from seed to seed.

    A graph file is GraphML (.graphml or .xml; edges may have attributes *budget* and *every*) or an edge list, with a
    line `0 1` for an edge from agent 0 to agent 1, or `0 1 5000 10` for one of 5000 floats every 10 epochs.

    Of a settings file (.toml), its agents and [network] are shown; there, the graph is network.graph = "GRAPH".
    """
    from shoal.config import Network, override, read, resolve
    from shoal.network import DRAWN, GRAPHS, edges, facts, picture, settle

    if out and out.suffix != ".svg":
        raise UserError(f"the picture cannot be {out}; give --out a name that ends in .svg")
    said = {"agents": agents, "network.p": p, "seed": seed, "network.budget": budget, "network.every": every}
    toml = Path(graph).suffix == ".toml"
    if not toml and agents is None and graph not in GRAPHS:
        said["agents"] = 1 + max(max(link.sender, link.receiver) for link in settle(Network(graph=graph)).edges)
    words = [f"{name}={value}" for name, value in said.items() if value is not None]
    settings = read(Path(graph), words) if toml else resolve(override({"network": {"graph": graph}}, words))
    net, count = settings.network, settings.agents
    if count > 1000:
        raise UserError(f"cannot show {graph} with {count} agents, only up to 1000; agents are numbered from 0 on")
    drawn = f"{f'p {net.p}, ' * (net.graph != 'tree')}seed {settings.seed}, " * (net.graph in DRAWN)
    title = f"{net.graph if toml else Path(graph).stem}, {drawn}{count} agent{'s' * (count > 1)}"
    sends = edges(net, count, settings.seed)
    file = out or Path(f"{Path(graph).stem}.svg")
    try:
        file.write_text(picture(sends, count, title), encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {file}: {error.strerror}; give --out another place") from None
    console.print(title, highlight=False, markup=False, soft_wrap=True)
    show_network(facts(sends, count), [edge[:2] for edge in sends])
    say(f"written to {file}")


@app.command()
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
        int | None, typer.Option(help="The seed to look at (default: the run's first).", show_default=False)
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of learning for a gain.")] = 20,
    out: Annotated[
        Path | None, typer.Option(help="The picture (default: NAME-transfer.svg).", show_default=False)
    ] = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Show how well the modules of a run promise to transfer between its tasks, and how well they do.

    Every task is learned again for some epochs with each module that another agent kept from an earlier one, and with a
    fresh module. The picture has score and gain of all these pairs side by side, a table beside it (.csv) the numbers.
    The rank correlation (Spearman) of both is over all pairs, and the mean of those **within** one receiving task: to
    choose among offers, a score only has to rank those for one task.
    """
    from shoal.promise import measure, summary, write

    file = out or Path(f"{folder.resolve().name}-transfer.svg")
    if file.suffix != ".svg":
        raise UserError(f"the picture cannot be {file}; give --out a name that ends in .svg")
    if not file.absolute().parent.is_dir():  # said now, not after minutes of learning
        raise UserError(f"cannot write {file}: there is no folder {file.parent}; give --out another place")
    with steps("learning again") as tell:
        found = measure(folder, metric or ["iou"], seed, epochs, data, tell)
    table = write(found, f"{folder.resolve().name}, seed {found.seed}: what scores promise, what modules deliver", file)
    if json:
        print(dumps(summary(found) | {"out": str(file), "csv": str(table)}), flush=True)
    else:
        show_ranks(found)
    say(f"written to {file} and {table}")


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="A settings file, e.g. experiments/mnist.toml.")],
    words: Words = None,
    seeds: Seeds = None,
    data: Data = None,
) -> None:
    """Say what a run's sharing will cost, per edge and in all, and what will be refused. Nothing is trained."""
    from shoal.config import read

    settings = read(file, [*(words or []), *([f"seeds={seeds}"] if seeds is not None else [])])
    from shoal.session import prepare

    show_plan(prepare(settings, data))


@app.command("list")
def list_(
    what: Annotated[str, typer.Argument(help="settings, sharing, graphs, models or datasets")] = "settings",
) -> None:
    """List what there is to choose from."""
    from shoal import config

    if what == "settings":
        table = Table("setting", "default", "meaning", box=None)
        for name, field in config.fields():
            table.add_row(name, json.dumps(field.default), field.description)
            if name == "kinds":
                for own in ("name", "agents", "model"):
                    table.add_row(f"  kinds.{own}", "", config.Kind.model_fields[own].description)
                table.add_row("  kinds.net.*, kinds.learner.*", "", "else the fleet's; epochs are the same for all")
        console.print(table)
        console.print(
            "\nThe protocol sets what the user does not: `fair` and `paper` differ in these, for agents alone."
        )
        for protocol in ("fair", "paper"):
            console.print(protocol, config.switches(protocol, "modular-mlp", "mnist"))
    elif what == "sharing":
        from shoal.sharing import MODES

        table = Table("setting", "default", "paper*", "meaning", box=None)
        row = config.resolve({"dataset": "mnist", "protocol": "paper"})
        for mode, kind in MODES.items():
            about = (kind.__doc__ or "").partition("\n")[0]
            table.add_row(f"[bold]{mode}[/]", "", "", about)
            paper = kind.paper(row, (mode,))
            for name, field in config.fields(kind):
                if name != "mode":
                    differs = json.dumps(paper[name]) if name in paper else ""
                    table.add_row(f"  sharing.{name}", json.dumps(field.default), differs, field.description)
        console.print(table)
        console.print("\n* with protocol=paper, modular nets on mnist; other rows of Table 1 may differ")
    elif what == "graphs":
        from shoal.network import GRAPHS

        for name in GRAPHS:
            console.print(name)
        console.print("or a file: an edge list or GraphML; `shoal network GRAPH` shows one")
    elif what == "models":
        for name in config.MODELS:
            console.print(name)
    elif what == "datasets":
        list_data()
    else:
        raise UserError(f"cannot list `{what}`; allowed: settings, sharing, graphs, models, datasets")


@data_app.command("list")
def list_data(data: Data = None) -> None:
    """Show which datasets are here, where, and what they are."""
    from shoal.data import status

    table = Table("dataset", "here", "where", "MB", "note", box=None)
    for row in status(data):
        size = f"{row.size / 1e6:.1f}" if row.present else ""
        table.add_row(row.name, "yes" if row.present else "no", str(row.where or ""), size, row.note)
    console.print(table)


@data_app.command("get")
def get_data(
    name: Annotated[str, typer.Argument(help="mnist, kmnist, fashionmnist, cifar100 or combined.")],
    data: Annotated[
        Path | None, typer.Option(help="Where to put it (default: $SHOAL_DATA, or the user cache).", show_default=False)
    ] = None,
) -> None:
    """Download a dataset from its authors' hosts, checked and resumable."""
    from shoal.data import fetch

    with Progress(
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"), TimeRemainingColumn(),
        console=err,
    ) as progress:  # fmt: skip
        bars: dict[str, Any] = {}

        def tell(file: str, done: int, total: int) -> None:
            if file not in bars:
                bars[file] = progress.add_task(file, total=total or None)
            progress.update(bars[file], completed=done)

        folder = fetch(name, data, tell)
    console.print(f"{name} is in {folder}")


def train(fleet: Sequence["World"], record: "Record", trackers: Sequence[str] = ()) -> dict[str, Any]:
    """Train with a progress bar, followed by trackers."""
    from shoal.session import carry_out
    from shoal.trackers import follow

    say(f"run directory {record.folder}")
    with bar(record.settings) as show, follow(trackers, record, say) as crowd:

        def watch(stacks: tuple["Stack", ...]) -> None:
            show(stacks)
            crowd.note(stacks)

        summary = carry_out(fleet, record, watch)
        crowd.conclude(summary)
        return summary


def save_page(folders: Iterable[Path], out: Path, figures: Path | None = None) -> None:
    """Write runs as one page, and its charts as figures."""
    from shoal.report import compare, page, read

    runs, notes = read.gather(list(folders))
    found = compare.groups(runs)
    page.save(out, page.page(found, notes))
    for note in notes:
        say(f"{note.folder}{' is left out' * note.out}: {note.why}")
    say(f"{len(runs)} run{'s' * (len(runs) > 1)} in {out}")
    if figures:
        say(f"{len(page.draw(found, figures))} files in {figures}")


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


def draw_figures(tables: Path, folder: Path, families: Sequence[str]) -> None:
    """The figures of some families of cells, where what draws them is installed."""
    from shoal.report import needs

    try:
        needs()
    except UserError as error:
        say(f"no figures: {error}")
        return
    from shoal.reproduce import figures

    if files := figures.draw(tables, folder, families):
        say(f"{len(files)} files in {folder}")


def work(cells: Sequence[C], folder: Path, data: Path | None) -> Iterator[C]:
    """Train the cells that are not finished yet, under one progress bar, and give each when it is."""
    from shoal import data as datasets
    from shoal.cells import finish, finished, missing

    left = missing(cells, folder)
    for cell in left:
        settings = cell.settings
        where = data or (Path(settings.machine.data) if settings.machine.data else None)
        if datasets.find(settings.dataset, where) is None:
            datasets.load(settings.dataset, where)  # says what is missing now, not after hours of other cells
    if len(left) < len(cells):
        say(f"{len(cells) - len(left)} of {len(cells)} cells are finished or come twice")
    with bars(left) as begin:
        for cell in cells:
            if not finished(cell, folder):
                finish(cell, folder, data, begin(cell))
            yield cell


@contextmanager
def bars(cells: Sequence[C]) -> Iterator[Any]:
    """Progress over cells: a bar for all of them on a terminal; a line per task elsewhere."""
    from shoal.cells import effort
    from shoal.session import done

    begun = 0
    # On a narrow terminal the words give way, not the time.
    words = TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"))
    columns = (words, BarColumn(20), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    with Progress(*columns, console=err, expand=True, disable=not (cells and err.is_terminal)) as progress:
        total = sum(effort(cell) for cell in cells)
        job = progress.add_task("starting", total=total)

        def begin(cell: C) -> Any:
            nonlocal begun
            before = sum(effort(one) for one in cells[:begun])
            begun += 1
            title = f"cell {begun}/{len(cells)} {cell.name}"
            lanes = cell.settings.agents * cell.settings.seeds

            def show(stacks: tuple["Stack", ...]) -> None:
                text = f"{title}: {describe(cell.settings, stacks)}"
                if err.is_terminal:
                    progress.update(job, completed=before + lanes * done(cell.settings, stacks[0]), description=text)
                elif stacks[0].epoch == 0:
                    say(text)

            return show

        yield begin


@contextmanager
def bar(settings: "Settings") -> Iterator[Any]:
    """A progress bar on a terminal; a line per task elsewhere."""
    from shoal.session import done, units

    if not err.is_terminal:
        yield lambda stacks: line(settings, stacks)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("left"))
    with Progress(*columns, TimeRemainingColumn(), console=err) as progress:
        job = progress.add_task(describe(settings, ()), total=units(settings))

        def show(stacks: tuple["Stack", ...]) -> None:
            progress.update(job, completed=done(settings, stacks[0]), description=describe(settings, stacks))

        yield show


@contextmanager
def steps(title: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on a terminal, nothing elsewhere; it is told how much of how much is done."""
    if not err.is_terminal:
        yield lambda done, total: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("left"))
    with Progress(*columns, TimeRemainingColumn(), console=err) as progress:
        job = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(job, completed=done, total=total)


def line(settings: "Settings", stacks: tuple["Stack", ...]) -> None:
    if stacks[0].epoch == 0:
        say(describe(settings, stacks))


def describe(settings: "Settings", stacks: tuple["Stack", ...]) -> str:
    """Where a run is and how well it does."""
    if not stacks:
        return "starting"
    count, number = settings.tasks.count, sum(len(stack.lanes) for stack in stacks)
    task, epoch = stacks[0].task, stacks[0].epoch
    lanes = f"{number} lane{'s' * (number > 1)}"
    if epoch == 0:
        mean = sum(float(stack.accuracy[:, task - 1, -1, :task].sum()) for stack in stacks) / number / task
        return f"{lanes}, task {task}/{count} done, accuracy {100 * mean:.1f}%"
    return f"{lanes}, task {task + 1}/{count}, epoch {epoch}/{settings.learner.epochs}"


def report(summary: dict[str, Any], json: bool) -> None:
    """A finished run as a table, or as a JSON object on one line."""
    from shoal.network import spans

    if json:
        print(dumps(summary), flush=True)
        return
    table = Table("", "mean", "error (pooled)", "error (seeds)", box=None)
    shown = {
        "final_accuracy": "final accuracy, %",
        "auc": "AUC, paper's unit",
        "auc_normalised": "AUC, % of its maximum",
        "average_accuracy": "average accuracy, %",
        "forward_transfer": "zero-shot on the next task, %",
        "zero_shot_others": "zero-shot on others' tasks, %",
        "backward_transfer": "backward transfer, points",
        "forgetting": "forgetting, points",
    }
    for name, title in shown.items():
        table.add_row(title, *(number(summary.get(f"{name}{ending}")) for ending in ("", "_se", "_se_seeds")))
    table.add_row("modules at the end", number(summary["modules"]))
    console.print(table)
    for name, kind in summary.get("kinds", {}).items():
        console.print(
            f"{name} ({kind['model']}, agents {spans(kind['agents'])}): final accuracy "
            f"{plus(kind, 'final_accuracy', '_se')} %, "
            f"AUC {number(kind['auc'])}, modules {number(kind['modules'])}",
            highlight=False, markup=False, soft_wrap=True,
        )  # fmt: skip
    if summary["sharing"]:
        console.print(
            f"shared by {', '.join(summary['sharing'])}: {summary['messages']:,} messages, "
            f"{summary['bytes_total'] / 1e6:,.1f} MB, {summary['floats_per_edge_task']:,.0f} floats per edge and task "
            f"({summary['paper_floats_per_edge_task']:,.0f} by the paper's rule), {summary['refused']:,} refused",
            highlight=False, soft_wrap=True,
        )  # fmt: skip
    head = ("dataset", "model", "protocol", "agents", "seeds", "tasks", "seconds")
    console.print(", ".join(f"{name} {summary[name]}" for name in head), highlight=False, soft_wrap=True)
    console.print(f"in {summary['out']}", highlight=False, markup=False, soft_wrap=True)


def show_plan(fleet: Sequence["World"]) -> None:
    """What sharing will cost, a table of limits and mail."""
    from shoal.sharing.plan import plan

    settings, edges, lanes = fleet[0].fleet, fleet[0].edges, fleet[0].peers
    lines = plan(fleet)
    alone = len(set(lanes) - {lane for pair in edges for lane in pair})
    console.print(
        f"{len(lanes)} lanes ({settings.agents} agents, {settings.seeds} seeds), graph {settings.network.graph}: "
        f"{len(edges)} directed edges, {alone} lanes without any",
        highlight=False, soft_wrap=True,
    )  # fmt: skip
    if settings.kinds:
        show_kinds(fleet[0])
    if not settings.sharing:
        console.print("nothing is shared; say sharing=MODE, see `shoal list sharing`")
        return
    for group in dict.fromkeys(one.edges for one in lines):
        words = "no limit" if group.budget is None else f"{group.budget:,} floats per exchange"
        rhythm = "" if group.every == 1 else f", at least {group.every} epochs between exchanges"
        pairs = ", ".join(f"{sender} → {receiver}" for sender, receiver in group.pairs[:8])
        more = f" and {len(group.pairs) - 8} other pairs of agents" * (len(group.pairs) > 8)
        console.print(f"\n{group.number:,} edges: {words}{rhythm}", highlight=False, soft_wrap=True)
        console.print(f"{pairs}{more}", highlight=False, soft_wrap=True)
        here = [one for one in lines if one.edges == group]
        table = Table("on each of them", *(f"{one.mode}, {one.kind}" for one in here), box=None)
        for title, cells in facts_of(here).items():
            table.add_row(title, *cells)
        console.print(table)
    console.print()
    total = sum(one.edges.number * one.total_bytes for one in lines)
    console.print(
        f"All costs are per directed edge and at most: a neighbour may have less to send, and modes that act at the "
        f"same moment share the edge's budget. In all at most {total / 1e6:,.1f} MB.",
        highlight=False, soft_wrap=True,
    )  # fmt: skip
    for mode in settings.sharing:
        if not any(one.mode == mode.mode for one in lines):
            console.print(f"{mode.mode} never sends anything: no edge carries it", highlight=False)


def show_kinds(world: "World") -> None:
    """The kinds of agents, and which modes go from whom to whom."""
    from shoal.network import spans
    from shoal.sharing.plan import table

    fleet, modes = world.fleet, table(world)
    groups = fleet.members()
    about = Table("kind", "agents", "model", "width", "depth", "basis", box=None)
    for name, agents in groups.items():
        one = fleet.of(name)
        basis = str(one.net.basis) if one.modular else ""
        about.add_row(name, spans(agents), one.model, str(one.net.width), str(one.net.depth), basis)
    console.print(about)
    if not fleet.sharing:
        return
    console.print("\nwhat goes from whom (left) to whom (top):")
    reach = Table("", *groups, box=None)
    for sender in groups:
        cells = (modes.get((sender, receiver), set()) for receiver in groups)
        ordered = [", ".join(mode.mode for mode in fleet.sharing if mode.mode in cell) or "-" for cell in cells]
        reach.add_row(sender, *ordered)
    console.print(reach)


def facts_of(lines: list["Line"]) -> dict[str, list[str]]:
    """What `shoal check` says about each kind of mail, by title."""
    return {
        "largest: images, classes or modules": [
            f"{one.items}" + f" of {one.wanted}" * (one.items < one.wanted) for one in lines
        ],
        "floats": [f"{one.floats:,}" for one in lines],
        "bytes": [f"{one.bytes:,}" for one in lines],
        "floats by the paper's rule": [f"{one.paper:,}" for one in lines],
        "exchanges in a task": [f"{one.exchanges}" for one in lines],
        "floats in a task": [f"{one.total / one.tasks:,.0f}" for one in lines],
        "messages in the run": [f"{one.posted:,}" for one in lines],
        "floats in the run": [f"{one.total:,}" for one in lines],
        "refused: edge at rest": [f"{one.resting:,}" for one in lines],
        "refused: over budget": [f"{one.over:,}" for one in lines],
    }


def show_cells(rows: list[dict[str, Any]], where: Console) -> None:
    """Cells of Table 1 beside the paper's."""
    table = Table("dataset", "model", "method", "protocol", "seeds", "final", "paper", "AUC", "paper", "s", box=None)
    for row in rows:
        table.add_row(
            row["dataset"], row["model"], row["method"], row["protocol"], str(row["seeds"]),
            plus(row, "final_accuracy"), number(row["paper_final_accuracy"]),
            plus(row, "auc"), number(row["paper_auc"]), f"{row['seconds']:.0f}",
        )  # fmt: skip
    where.print(table)


def show_ranks(found: "Found") -> None:
    """How well metrics rank the modules of a run."""
    from shoal.promise import number as spoken

    table = Table("metric", "rho, all pairs", "rho, within a task", "tasks", "pairs", "left out", box=None)
    for metric, one in found.ranks.items():
        table.add_row(metric, *(spoken(rho, ".3f") for rho in one[:2]), *map(str, one[2:]))
    console.print(table)
    console.print(
        f"seed {found.seed}, {len(found.trials)} pairs: after {found.epochs} epoch{'s' * (found.epochs > 1)} a "
        f"received module gains {spoken(found.gain, '+.2f')} points over a fresh one, on average",
        highlight=False, soft_wrap=True,
    )  # fmt: skip
    for why in found.why.values():
        console.print(f"left out because {why}", highlight=False, markup=False, soft_wrap=True)


def show_rows(title: str, rows: list[dict[str, Any]], where: Console) -> None:
    """Rows as they are; what all of them have in common is in the title."""
    same = [name for name in ("protocol", "seeds", "datasets") if len({row.get(name) for row in rows}) == 1]
    common = ", ".join(f"{name} {rows[0][name]}" for name in same if name in rows[0])
    names = [name for name in rows[0] if name not in same]
    table = Table(*(name.replace("_", " ") for name in names), title=f"{title.replace('_', ' ')}: {common}", box=None)
    for row in rows:
        values = [row[name] for name in names]
        table.add_row(*(f"{one:.3g}" if isinstance(one, float) else str("" if one is None else one) for one in values))
    where.print(table)


def show_compared(rows: list[dict[str, Any]], where: Console) -> None:
    """Runs side by side, with errors over seeds."""
    names = Column("run", overflow="fold")
    table = Table(names, "seeds", "final", "difference", "p", "AUC", "difference", "p", "MB", "floats", "s", box=None)
    for row in rows:
        cells = []
        for name in ("final_accuracy", "auc"):
            gap = "" if row[f"{name}_difference"] is None else plus(row, f"{name}_difference", "_se", "+.2f")
            p = row[f"{name}_difference_p"]
            cells += [plus(row, name, "_se_seeds"), gap, "" if p is None else f"{p:.3f}"]
        table.add_row(row["run"], str(row["seeds"]), *cells, *cost(row))
    where.print(table)
    where.print(
        f"errors over seeds; differences from {rows[0]['baseline']}, paired over seeds, with p of a paired t-test; "
        "floats per edge and task",
        highlight=False, markup=False, soft_wrap=True,
    )  # fmt: skip


def show_swept(rows: list[dict[str, Any]], keys: list[str], where: Console) -> None:
    """Cells of a grid, the front marked."""
    table = Table("", *(Column(key, overflow="fold") for key in keys), "final", "AUC", "MB", "floats", "s", box=None)
    for row in rows:
        words = [str("-" if row[key] is None else row[key]) for key in keys]
        mark = "*" * row["front"]
        table.add_row(mark, *words, plus(row, "final_accuracy", "_se_seeds"), plus(row, "auc", "_se_seeds"), *cost(row))
    where.print(table)
    where.print(
        "* the Pareto front: no other combination ends higher for as little traffic; errors over seeds; floats per "
        "edge and task",
        highlight=False, soft_wrap=True,
    )  # fmt: skip


def plus(row: dict[str, Any], name: str, end: str = "_se", form: str = ".2f") -> str:
    """A number and its error, if it has one."""
    error = row[f"{name}{end}"]
    return f"{row[name]:{form}}" + ("" if error is None else f" ± {error:.2f}")


def cost(row: dict[str, Any]) -> list[str]:
    """What a run sent, and its time."""
    sent = (row["bytes_total"] or 0) / 1e6, row["floats_per_edge_task"] or 0  # a run of an earlier version has none
    return [f"{sent[0]:,.1f}", f"{sent[1]:,.0f}", f"{row['seconds']:.0f}"]


def show_network(graph: "Facts", pairs: list[tuple[int, int]]) -> None:
    """What a graph is like, and who can reach whom."""
    from shoal.network import spans

    hops = ["infinite" if hops is None else str(hops) for hops in (graph.diameter, graph.largest)]
    table = Table("", "", "", box=None, show_header=False)
    table.add_row("edges", str(graph.edges), "directed: there and back are two")
    for name, degrees in (("receives from", graph.receives), ("sends to", graph.sends)):
        table.add_row(name, f"{degrees.least} / {degrees.mean:.1f} / {degrees.most}", "agents: least, mean, most")
    table.add_row("diameter", hops[0], "most hops from one agent to another")
    table.add_row("", hops[1], "in the largest component")
    table.add_row("spectral gap", f"{graph.gap:.3f}", "1: averaging agrees in one round; 0: never")
    table.add_row("components", str(len(graph.components)), "parts that nothing connects")
    table.add_row("isolated", str(len(graph.isolated)), "agents without any edge")
    console.print(table)
    console.print()

    def group(found: Iterable[int]) -> str:
        others = set(found)
        return "-" if not others else "all" if len(others) == graph.agents - 1 else spans(others)

    if graph.agents <= 20:
        reach = Table("agent", "sends to", "receives from", "can reach by any path", box=None)
        for agent in range(graph.agents):
            there = group(receiver for sender, receiver in pairs if sender == agent)
            back = group(sender for sender, receiver in pairs if receiver == agent)
            reach.add_row(str(agent), there, back, group(graph.reach[agent]))
        console.print(reach)
        return
    for part in graph.components[: len(graph.components) - len(graph.isolated)]:
        mutual = all(len(graph.reach[agent]) == len(part) - 1 for agent in part)
        rule = "each can reach all others" if mutual else "not each can reach all others"
        console.print(f"component of {len(part)} agents, {rule}: {spans(part)}", highlight=False, soft_wrap=True)
    if graph.isolated:
        console.print(f"isolated: {spans(graph.isolated)}", highlight=False, soft_wrap=True)


def number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def dumps(content: dict[str, Any]) -> str:
    return json.dumps(content)


if __name__ == "__main__":
    main()
