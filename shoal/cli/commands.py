"""The command line. Heavy imports happen inside the commands: `--help` must not wait for torch."""

import errno
import json
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from tempfile import NamedTemporaryFile
from traceback import format_exception
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

import shoal
from shoal.cli.examples import teach
from shoal.cli.plain import Stream, visible
from shoal.cli.progress import bar, bars, downloads, steps
from shoal.cli.terminal import (
    console,
    err,
    say,
    show_advice,
    show_cells,
    show_compared,
    show_data,
    show_entries,
    show_experiments,
    show_learners,
    show_means,
    show_modes,
    show_network,
    show_plan,
    show_ranks,
    show_rows,
    show_settings,
    show_summary,
    show_swept,
)
from shoal.errors import Stopped, UserError
from shoal.files import columns, replaceable, save
from shoal.units import plural

if TYPE_CHECKING:
    from shoal.fleet.run import Moment
    from shoal.fleet.world import World
    from shoal.runs.cells import Cell
    from shoal.runs.record import Record
    from shoal.settings.groups import Machine

C = TypeVar("C", bound="Cell")
# What is wrong with a place that the user has named, whoever meets it first.
PLACES = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR)

app = typer.Typer(
    name="shoal",
    help="Train fleets of agents that each learn their own tasks, one after the other, without forgetting, and share "
    "what helps the others; see what sharing gains, and what it costs in bytes.",
    epilog="Start with `shoal demo`; then `shoal run digits`. `shoal COMMAND --help` has examples.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
data_app = typer.Typer(help="Datasets: what is there, and how to get the rest.", no_args_is_help=True)
app.add_typer(data_app, name="data")


def begins(names: Iterable[str], text: str) -> list[str]:
    """What can be said by someone who has begun to type."""
    return [name for name in names if name.startswith(text)]


def complete_file(incomplete: str) -> list[str]:
    """The names of experiments; if none fits, the shell goes on with files."""
    from shoal.settings.reading import experiments

    return begins(experiments(), incomplete)


def complete_word(incomplete: str) -> list[str]:
    """KEY= of every setting, and what can stand behind it if it is one of some words."""
    from shoal.cli.terminal import choices
    from shoal.settings.checks import fields

    key, equals, _ = incomplete.partition("=")
    if not equals:
        return begins([f"{name}=" for name, _ in fields()], incomplete)
    found = dict(fields()).get(key)
    words = [] if found is None else ["true", "false"] if found.annotation is bool else choices(found.annotation)
    return begins([f"{key}={word}" for word in words], incomplete)


def complete_list(incomplete: str) -> list[str]:
    """What can be listed."""
    return begins(LISTED, incomplete)


File = Annotated[
    Path,
    typer.Argument(
        help="A settings file, or the name of an experiment, e.g. digits: see `shoal list experiments`.",
        autocompletion=complete_file,
    ),
]
Out = Annotated[Path | None, typer.Option(help="The run directory (default: runs/NAME-ID).", show_default=False)]
Data = Annotated[
    Path | None,
    typer.Option(help="Where to look for data first; then $SHOAL_DATA, then the user cache.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="End with one JSON object on the last line of stdout.")]
Words = Annotated[
    list[str] | None,
    typer.Argument(
        help="Settings that win over the file, e.g. learner.epochs=50.",
        metavar="[KEY=VALUE]...",
        autocompletion=complete_word,
    ),
]
Figures = Annotated[
    Path | None, typer.Option(help="Also write every chart here, as PNG, SVG and PDF.", show_default=False)
]
Page = Annotated[bool, typer.Option("--page/--no-page", help="End with OUT/report.html (see `shoal report`).")]
Seeds = Annotated[int | None, typer.Option(help="Repetitions of the whole fleet.", show_default=False)]
Yes = Annotated[bool, typer.Option("--yes", help="Go on although it needs more memory than is free, or years.")]
Workers = Annotated[
    str | None,
    typer.Option(
        help="Deal the work, agents or cells, to so many processes, or to `ray` actors: the same result.",
        metavar="N|ray",
        show_default=False,
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        help="The Ray cluster to join (default: a Ray of the run's own).", metavar="HOST:PORT", show_default=False
    ),
]
Stacks = Annotated[
    int | None, typer.Option(help="How many Ray actors (default: one for each CPU).", min=1, show_default=False)
]
Track = Annotated[
    list[str] | None,
    typer.Option(help="Also follow the run with tensorboard, wandb (offline) or mlflow (local).", show_default=False),
]


def version(wanted: bool) -> None:
    if wanted:
        console.print(f"shoal {shoal.__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def options(
    _: Annotated[
        bool, typer.Option("--version", help="Say which version this is.", callback=version, is_eager=True)
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line. A user's mistake is one sentence on stderr and exit code 2; one of ours is a sentence that
    says where its traceback is, and exit code 1."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a letter shows another
    if "" not in sys.path:
        sys.path.append("")  # what lies in this folder can be named package.module:Name; last, so that it hides nothing
    if any(visible(word) != word for word in sys.argv):
        sys.stdout, sys.stderr = Stream(sys.stdout), Stream(sys.stderr)
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
    except Exception as error:
        if isinstance(error, MemoryError) or "can't allocate memory" in str(error):  # what torch says
            say("there is not enough memory here; `shoal check` says what a run needs, make it smaller", "error: ")
            sys.exit(2)
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            say(f"cannot write: {error.strerror}; make room there", "error: ")
            sys.exit(2)
        if isinstance(error, OSError) and error.errno in PLACES and error.filename is not None:
            say(f"cannot use {error.filename}: {error.strerror}; choose another place", "error: ")
            sys.exit(2)
        if os.environ.get("SHOAL_TRACEBACK"):
            raise
        say(unforeseen(error), "error: ")
        sys.exit(1)


def unforeseen(error: Exception) -> str:
    """A sentence about a mistake of ours, which says where its traceback is."""
    what = f"{type(error).__name__}: {error}".partition("\n")[0]
    try:
        with NamedTemporaryFile("w", prefix="shoal-", suffix=".txt", delete=False, encoding="utf-8") as file:
            file.write(f"{shlex.join(sys.argv)}\n\n{''.join(format_exception(error))}")
    except OSError:
        return f"a mistake in shoal, not in what you said ({what}); SHOAL_TRACEBACK=1 shows where"
    return f"a mistake in shoal, not in what you said ({what}); please report it with {file.name}"


@app.command()
def run(
    file: File,
    words: Words = None,
    seeds: Seeds = None,
    out: Out = None,
    data: Data = None,
    track: Track = None,
    workers: Workers = None,
    address: Address = None,
    stacks: Stacks = None,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Train a fleet. Ctrl-C stops it after the current epoch; `shoal resume` continues.

    `shoal list settings` explains every KEY that a settings file or KEY=VALUE can set.
    """
    from shoal.cli.trackers import needs
    from shoal.settings.reading import read

    needs(track or [])
    said = [*(words or []), *([f"seeds={seeds}"] if seeds is not None else [])]
    settings = read(file, [*said, *([f"machine.data={data.resolve()}"] if data else [])])
    from shoal.settings.staff import staffed

    settings = staffed(settings, workers, address, stacks)
    from shoal.runs.execute import prepare
    from shoal.runs.record import create

    folder = out or Path("runs") / f"{file.stem}-{settings.model}-{settings.identity()}"
    fleet = prepare(settings, data, yes=yes)  # before anything is written
    report(train(fleet, create(folder, settings), track or []), json)


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(help="A run directory.")],
    data: Data = None,
    track: Track = None,
    workers: Workers = None,
    address: Address = None,
    stacks: Stacks = None,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Continue a run that was stopped; it ends bit for bit as if it had not been."""
    from shoal.cli.trackers import needs
    from shoal.runs.cells import shown_summary
    from shoal.runs.record import reopen

    needs(track or [])
    record = reopen(folder)
    if record.finished:
        report(shown_summary(folder), json)
        say(f"{folder} was finished already")
        return
    from shoal.runs.execute import prepare
    from shoal.settings.staff import staffed

    record.settings = staffed(record.settings, workers, address, stacks)

    report(train(prepare(record.settings, data, yes=yes), record, track or []), json)


@app.command()
def demo(
    words: Words = None,
    folder: Annotated[
        Path, typer.Option("--out", help="Where the run directories and the page go; finished runs are found again.")
    ] = Path("runs/demo"),
    seeds: Annotated[int, typer.Option(min=1, help="Repetitions of the whole fleet.")] = 4,
    figures: Figures = None,
    yes: Yes = False,
) -> None:
    """See what sharing gains and costs: a small fleet learns digits alone, then with five ways of sharing.

    Embedded images, no download, one to three minutes. Stop with Ctrl-C; run the same command again to continue.
    """
    from shoal.cli.demo import show

    show(folder, seeds, words or [], console, yes, figures)


@app.command()
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


@app.command()
def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Settings files or names of experiments, finished run directories, folders of such.",
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
) -> None:
    """Run settings files, or read finished runs, and set them side by side, paired over seeds.

    Fleets of the same kinds of agents are compared kind by kind too. OUT/compare.csv has the table. Stop with
    Ctrl-C; run the same command again to continue.
    """
    from shoal.runs.cells import write_csv
    from shoal.study import compare as runs_

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


@app.command()
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
        typer.Option(help="Cells are kept here and found again (default: runs/sweep-NAME-KEYS).", show_default=False),
    ] = None,
    data: Data = None,
    page: Page = True,
    workers: Workers = None,
    address: Address = None,
    stacks: Stacks = None,
    yes: Yes = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per combination on stdout.")] = False,
) -> None:
    """What should my agents share, with whom, how often? Run every combination and mark those worth their traffic.

    `+` joins sharing modes. Settings of a mode are ignored where it is off. OUT/sweep.csv has the table.
    Stop with Ctrl-C; run the same command again to continue. With more values of the same keys, what is finished is
    found again.
    """
    from shoal.runs.cells import write_csv
    from shoal.study import sweep as grids

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


@app.command()
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
) -> None:
    """What should my agents share for this budget? An answer in a sentence, with its uncertainty.

    What costs more than the budget is left out before it runs. The others race over seeds: all have a few, the better
    half more, and so on, until all seeds are used or the answer is sure. OUT has the sentence (advise.txt), the table
    (.csv, .json) and a chart (.svg, .png, .pdf); the same command again continues where it was stopped.
    """
    from shoal.study import advise as advices

    def train(blocks: Sequence[advices.Block], folder: Path) -> None:
        for _ in work(blocks, folder, data, yes, staff_of(workers, address, stacks)):
            pass

    folder = out or Path("runs") / f"advise-{file.stem}"
    found = advices.advise(file, budget, candidates, seeds, folder, words or [], data, train, yes)
    if json:
        print(dumps(found.content()), flush=True)
    else:
        show_advice(found)
    say(f"written to {folder / 'advise.txt'}, and .csv, .json and a chart beside it")


@app.command("report")
def report_(
    folders: Annotated[
        list[Path], typer.Argument(help="Run directories, or folders that hold some.", metavar="DIR...")
    ],
    out: Annotated[Path, typer.Option(help="The page.")] = Path("report.html"),
    figures: Figures = None,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch", help="Write the page again while runs still train, with the time left, until they end."
        ),
    ] = False,
) -> None:
    """Show runs in one HTML page that needs nothing else: what they learned, what it cost, what differs.

    Learning curves, accuracy of every task over time, gains over agents that share nothing (paired over seeds), cost,
    the network's traffic, modules and settings. Runs that are unfinished or damaged are shown as far as they go, and
    the page says what is missing. With --watch it is written again whenever a task has ended; a browser that shows it
    loads it again by itself.
    """
    from shoal.report import needs

    needs()
    if watch:
        from shoal.report import page
        from shoal.report.watch import watch as follow_runs

        replaceable(out, page.PAGE)
        follow_runs(folders, out, say)
    if figures or not watch:
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
        str | None,
        typer.Option(
            help='What a link carries: floats per exchange, "20 kB" or "20 kB/task" (default: unlimited).',
            show_default=False,
        ),
    ] = None,
    every: Annotated[
        int | None, typer.Option(min=1, help="Epochs between exchanges (default: 1).", show_default=False)
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Also draw it here, as SVG.", show_default=False)] = None,
) -> None:
    """Show who can send to whom: facts about a graph before a fleet learns on it; with --out, also a picture.

    **complete**: everyone to everyone. **ring**: each to two neighbours. **server**: all to agent 0 and back. **tree**:
    a random tree. **random**: each pair with chance p, maybe in several components. **connected**: a random tree, and
    each other pair with chance p. **disconnected**: no one. Random graphs differ from seed to seed.

    A graph file is GraphML (.graphml or .xml; edges may have attributes *budget* and *every*) or an edge list, with a
    line `0 1` for an edge from agent 0 to agent 1, `0 1 5000 10` for one of 5000 floats every 10 epochs, or
    `0 1 20kB/task` for one of 20,000 bytes in a task.

    Of a settings file (.toml) or an experiment, its agents and [network] are shown; there, the graph is
    network.graph = "GRAPH".
    """
    from shoal.network.edges import edges, settle
    from shoal.network.facts import facts
    from shoal.network.graphs import DRAWN, is_named
    from shoal.network.picture import NETWORK, picture
    from shoal.settings.groups import Network
    from shoal.settings.reading import experiments, override, read, resolve

    if out and out.suffix != ".svg":
        raise UserError(f"the picture cannot be {out}; give --out a name that ends in .svg")
    said = {"agents": agents, "network.p": p, "seed": seed, "network.budget": budget, "network.every": every}
    toml = Path(graph).suffix == ".toml" or (graph in experiments() and not is_named(graph))
    if not toml and agents is None and not is_named(graph):
        said["agents"] = 1 + max(max(link.sender, link.receiver) for link in settle(Network(graph=graph)).edges)
    words = [f"{name}={value}" for name, value in said.items() if value is not None]
    settings = read(Path(graph), words) if toml else resolve(override({"network": {"graph": graph}}, words))
    net, count = settings.network, settings.agents
    if count > 1000:
        raise UserError(f"cannot show {graph} with {count} agents, only up to 1000; agents are numbered from 0 on")
    drawn = f"{f'p {net.p}, ' * (net.graph != 'tree')}seed {settings.seed}, " * (net.graph in DRAWN)
    title = f"{net.graph if toml else Path(graph).stem}, {drawn}{count} agent{'s' * (count > 1)}"
    sends = edges(net, count, settings.seed)
    if out and not out.absolute().parent.is_dir():
        raise UserError(f"cannot write {out}: there is no folder {out.parent}; give --out another place")
    if out:
        save(out, picture(sends, count, title), "give --out another place", NETWORK)
    console.print(title, highlight=False, markup=False, soft_wrap=True)
    show_network(facts(sends, count), [edge[:2] for edge in sends])
    if out:
        say(f"written to {out}")


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
        list[int] | None,
        typer.Option(help="The seeds to look at, each with a picture (default: the run's first).", show_default=False),
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of learning for a gain.")] = 20,
    out: Annotated[
        Path | None,
        typer.Option(help="The picture (default: NAME-transfer.svg; of several seeds -SEED.svg).", show_default=False),
    ] = None,
    routes: Annotated[
        int | None,
        typer.Option(min=1, help="At most so many pairs of each seed, a sample of them (default: all)."),
    ] = None,
    parts: Annotated[
        bool,
        typer.Option("--parts", help="Ask instead which part of what is received helps: module, structure or head."),
    ] = False,
    data: Data = None,
    json: Json = False,
) -> None:
    """Show how well the modules of a run promise to transfer between its tasks, and how well they do.

    Every task is learned again for some epochs with each module that another agent kept from an earlier one, and with a
    fresh module. The picture has score and gain of all these pairs side by side, a table beside it (.csv) the numbers.
    The rank correlation (Spearman) of both is over all pairs, and the mean of those **within** one receiving task: to
    choose among offers, a score only has to rank those for one task. With several seeds (`--seed 0 --seed 1`) the means
    over them come last.

    **--parts**: every task is learned again with each part of what would be received, and each choice of parts; the
    rest is fresh. The table (NAME-parts.csv) has the gain of each over a fresh start, and what it weighs.
    """
    from shoal.runs.record import reopen
    from shoal.study.transfer.measure import Found, NoModulesError, described, measure, over_seeds, seed_of, summary
    from shoal.study.transfer.picture import PICTURE, write

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
    if len(every) > 1 and json:
        print(dumps(described(over_seeds(every))), flush=True)
    elif len(every) > 1:
        show_means(over_seeds(every))


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
    from shoal.runs.cells import write_csv
    from shoal.runs.record import reopen
    from shoal.study.transfer.measure import seed_of
    from shoal.study.transfer.parts import measure, table

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
    say(f"written to {write_csv(file, rows)}")


@app.command()
def check(
    file: File,
    words: Words = None,
    seeds: Seeds = None,
    data: Data = None,
    workers: Workers = None,
    address: Address = None,
    stacks: Stacks = None,
) -> None:
    """Say what a run's sharing will cost, per link and in all, and what will be refused. Nothing is trained.

    With `--workers`, also which agents each worker gets, what will go from one worker to another, and the memory that
    each needs.
    """
    from shoal.settings.reading import read
    from shoal.settings.staff import staffed

    settings = read(file, [*(words or []), *([f"seeds={seeds}"] if seeds is not None else [])])
    settings = staffed(settings, workers, address, stacks)
    from shoal.runs.execute import prepare

    show_plan(prepare(settings, data))


# What can be listed beside settings, sharing modes, learners and datasets: tables of names, and what else is allowed.
NAMED = {
    "graphs": ("shoal.network.graphs:GRAPHS", "or a file: an edge list or GraphML; `shoal network GRAPH` shows one"),
    "models": (
        "shoal.models.table:MODELS",
        "or a net of your own: package.module:Net (any nn.Module), modular-package.module:Block for your own modules",
    ),
    "scenarios": ("shoal.data.scenarios:SCENARIOS", "for tasks.scenario; or yours: package.module:function"),
    "scores": ("shoal.sharing.scores:SCORES", "for sharing.modmod.metric and `shoal transfer --metric`"),
    "rules": ("shoal.sharing.combine:RULES", "for `combine` of fedavg, fedprox, fedcurv and fedfish"),
    "lies": ("shoal.mail.lies:LIES", "for `faulty`; strength multiplies the weights or the noise"),
    "metrics": ("shoal.study.metrics:METRICS", "in every summary"),
}
LISTED = ("settings", "sharing", "learners", *NAMED, "datasets", "experiments")


@app.command("list")
def list_(
    what: Annotated[
        str, typer.Argument(help=f"{', '.join(LISTED[:-1])} or {LISTED[-1]}", autocompletion=complete_list)
    ] = "settings",
) -> None:
    """List what there is to choose from."""
    what = {"modes": "sharing", "topologies": "graphs"}.get(what, what)
    if what == "settings":
        show_settings()
    elif what == "sharing":
        show_modes()
    elif what == "learners":
        show_learners()
    elif what == "datasets":
        list_data()
    elif what == "experiments":
        show_experiments()
    elif what in NAMED:
        door, also = NAMED[what]
        module, _, name = door.partition(":")
        show_entries(what, getattr(import_module(module), name), also)
    else:
        raise UserError(f"cannot list `{what}`; allowed: {', '.join(LISTED)}")


@data_app.command("list")
def list_data(data: Data = None) -> None:
    """Show which datasets are here, where, and what they are."""
    from shoal.data import status

    show_data(status(data))


@data_app.command("get")
def get_data(
    name: Annotated[str, typer.Argument(help="mnist, kmnist, fashionmnist, cifar100 or combined.")],
    data: Annotated[
        Path | None, typer.Option(help="Where to put it (default: $SHOAL_DATA, or the user cache).", show_default=False)
    ] = None,
) -> None:
    """Download a dataset from its authors' hosts, checked and resumable."""
    from shoal.data import fetch

    with downloads() as tell:
        folder = fetch(name, data, tell)
    console.print(f"{name} is in {folder}")


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

        summary = carry_out(fleet, record, watch)
        crowd.conclude(summary)
        return summary


def save_page(folders: Iterable[Path], out: Path, figures: Path | None = None) -> None:
    """Write runs as one page, and its charts as figures."""
    from shoal.report import compare, page, read

    replaceable(out, page.PAGE)
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


def work(
    cells: Sequence[C], folder: Path, data: Path | None, yes: bool = False, staff: "Staff | None" = None
) -> Iterator[C]:
    """Train the cells that are not finished yet, under one progress bar, and give each when it is: one after the other,
    or side by side on some staff."""
    from shoal import data as datasets
    from shoal.fleet.size import affordable
    from shoal.runs.cells import finish, finished, missing
    from shoal.runs.execute import prepare
    from shoal.sharing.plan import limited

    left = missing(cells, folder)
    load = cache(datasets.load)
    for cell in left:
        settings = cell.settings
        where = data or (Path(settings.machine.data) if settings.machine.data else None)
        bank = load(settings.dataset, where)  # says what is missing now, not after hours of other cells
        if not yes:
            affordable(settings, bank)  # likewise, what is too large
        if limited(settings):
            prepare(settings.model_copy(update={"seeds": 1}), data, yes=True)  # and which mode can send nothing
    if len(left) < len(cells):
        say(f"{len(cells) - len(left)} of {len(cells)} runs need no training: finished, or the same as another")
    with bars(left) as begin:
        if staff and left:
            from shoal.runs.beside import trained

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


teach(app.registered_commands)
teach(app.registered_groups)
teach(data_app.registered_commands, "data ")
