"""The command line. Heavy imports happen inside the commands: `--help` must not wait for torch."""

import sys
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import shoal
from shoal.cli.arguments import (
    Address,
    Data,
    Figures,
    File,
    Json,
    Out,
    Seeds,
    Stacks,
    Track,
    Trust,
    Words,
    Workers,
    Yes,
    begins,
)
from shoal.cli.choices import show_data, show_entries, show_entry, show_experiments, show_settings
from shoal.cli.door import COMMANDS, bring
from shoal.cli.examples import EXAMPLES, name_of, teach
from shoal.cli.graph import network
from shoal.cli.keep import From, export, go_on, predict
from shoal.cli.live import app as live_app
from shoal.cli.plans import FEW, show_fleet, show_plan
from shoal.cli.sentences import sentences
from shoal.cli.studies import advise, compare, sweep
from shoal.cli.work import one_run, report, save_film, save_page, train
from shoal.console import Stream, console, plainly, say, visible
from shoal.errors import UserError
from shoal.files import replaceable
from shoal.progress import downloads
from shoal.trust import give, within_command

if TYPE_CHECKING:
    from shoal.agents.world import World

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
app.add_typer(live_app, name="live")


def complete_list(incomplete: str) -> list[str]:
    """What can be listed."""
    return begins(LISTED, incomplete)


def version(wanted: bool) -> None:
    if wanted:
        plainly(f"shoal {shoal.__version__}")
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
    if any(visible(word) != word for word in sys.argv):
        sys.stdout, sys.stderr = Stream(sys.stdout), Stream(sys.stderr)
    with within_command(sys.argv[1:]), sentences():
        COMMANDS.points()  # says whose command has the name of another
        app()


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
    trust: Trust = False,
    start: From = None,
) -> None:
    """Train a fleet. Ctrl-C stops it after the current epoch; `shoal resume` continues.

    `shoal list settings` explains every KEY that a settings file or KEY=VALUE can set. With --from, FILE is data that
    has come since, such as data=csv:week2.csv?label=state&agent=site, and the fleet of that run goes on with it.
    """
    from shoal.cli.trackers import needs
    from shoal.configure.reading import not_taken, read

    give(trust)
    if start is not None:
        more = {"seeds": seeds, "data": data, "track": track, "workers": workers, "address": address, "stacks": stacks}
        said = [f"--{name}" for name, value in more.items() if value]
        report(go_on(start, str(file), [*(words or []), *said], out), json)
        return
    needs(track or [])
    said = [*(words or []), *([f"seeds={seeds}"] if seeds is not None else [])]
    settings = read(file, [*said, *([f"machine.data={data.resolve()}"] if data else [])])
    from shoal.settings.staff import staffed

    settings = staffed(settings, workers, address, stacks)
    from shoal.runs.execute import prepare
    from shoal.runs.record import create

    folder = out or Path("runs") / f"{stem_of(file)}-{settings.model}-{settings.identity()}"
    if (folder / "summary.json").exists():
        from shoal.runs.held import held
        from shoal.study.cells import shown_summary

        held(folder, settings)  # another run in this folder is an error
        report(shown_summary(folder), json)
        say(f"{folder} was finished already")
        return
    fleet = prepare(settings, data, yes=yes, tell=say)  # before anything is written
    for sentence in [not_taken(file, said), *meant(fleet)]:
        if sentence:
            say(sentence)
    report(train(fleet, create(folder, settings), track or []), json)
    from shoal.study.fit import note

    if sentence := note(fleet, folder):
        say(sentence)


def stem_of(file: Path) -> str:
    """What a run of a settings file, or of data that is named in its place, is called."""
    from shoal.data.sources import is_source

    name = str(file).partition("?")[0].partition(":")[2] if is_source(str(file)) else str(file)
    return Path(name).stem


def meant(fleet: Sequence["World"]) -> list[str]:
    """What data of one's own means to a fleet, and what looks wrong."""
    from shoal.data.sources import is_source
    from shoal.data.sources.meaning import fleets

    return fleets(fleet[0].bank, fleet[0].fleet.agents, fleet) if is_source(fleet[0].fleet.dataset) else []


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
    trust: Trust = False,
) -> None:
    """Continue a run that was stopped; the result is the same, bit for bit, as without the stop."""
    from shoal.cli.trackers import needs
    from shoal.configure.reading import is_there
    from shoal.runs.record import reopen
    from shoal.study.cells import shown_summary
    from shoal.study.compare import finished

    give(trust)
    needs(track or [])
    if is_there(folder / "settings.toml") and (folder / "summary.json").exists():
        finished(folder)  # to say what came out, nothing is loaded
        report(shown_summary(folder), json)
        say(f"{folder} was finished already")
        return
    record = reopen(folder)
    from shoal.runs.execute import prepare
    from shoal.settings.staff import staffed

    record.settings = staffed(record.settings, workers, address, stacks)

    report(train(prepare(record.settings, data, yes=yes, tell=say), record, track or []), json)


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


@app.command("report")
def report_(
    folders: Annotated[
        list[Path], typer.Argument(help="Run directories, or folders that hold some.", metavar="DIR...")
    ],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
    figures: Figures = None,
    film: Annotated[
        Path | None, typer.Option(help="Also draw the run as a picture that moves, here (SVG).", show_default=False)
    ] = None,
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
    loads it again by itself. With --film one run is also a picture in which letters travel and accuracy grows.
    """
    from shoal.report import needs

    needs()
    folders = [one_run(folder) for folder in folders]
    if watch:
        from shoal.report import page
        from shoal.report.watch import watch as follow_runs

        replaceable(out, page.PAGE)
        follow_runs(folders, out, say)
    if figures or not watch:
        save_page(folders, out, figures)
    if film:
        save_film(folders, film)


app.command()(network)


@app.command()
def check(
    file: File,
    words: Words = None,
    seeds: Seeds = None,
    data: Data = None,
    workers: Workers = None,
    address: Address = None,
    stacks: Stacks = None,
    trust: Trust = False,
    time: Annotated[
        bool, typer.Option("--time", help="Also say how long it takes, by the time of its first steps.")
    ] = False,
) -> None:
    """Say what data means and who has how much of it, what a run's sharing will cost, per link and in all, and what
    will be refused. Nothing is trained.

    With `--workers`, also which agents each worker gets, what will go from one worker to another, and the memory that
    each needs.
    """
    from shoal.configure.reading import not_taken, resolve, said
    from shoal.data.sources import is_source
    from shoal.settings.staff import staffed

    give(trust)
    told = said(file, [*(words or []), *([f"seeds={seeds}"] if seeds is not None else [])])
    early = False
    if is_source(str(told.get("dataset", ""))):  # what it is needs nothing heavy, and modes wait for torch
        first = resolve({**told, "sharing": ()})
        early = first.agents * first.seeds <= FEW
        if early:
            show_fleet(first, data)
    if sentence := not_taken(file, words or []):
        say(sentence)
    settings = staffed(resolve(told), workers, address, stacks)
    from shoal.runs.prepare import prepare

    fleet = prepare(settings, data, tell=say)
    if not early:
        show_fleet(settings, data)
    show_plan(fleet, time)


# What can be listed beside settings, datasets and experiments: tables of names, and what else there is to say.
NAMED = {
    "sharing": ("shoal.sharing.modes:MODES", "`shoal list sharing NAME` has the settings of one"),
    "learners": ("shoal.learners.table:LEARNERS", "`shoal list learners NAME` has the settings of one"),
    "graphs": ("shoal.network.graphs:GRAPHS", "or a file: an edge list or GraphML; `shoal network GRAPH` shows one"),
    "models": (
        "shoal.models.table:MODELS",
        "or a net of your own: package.module:Net (any nn.Module), modular-package.module:Block for your own modules",
    ),
    "detectors": ("shoal.data.detectors:DETECTORS", "for tasks.detector; or yours: package.module:Name"),
    "backbones": ("shoal.backbones.table:BACKBONES", "for backbone; or FILE.onnx, or yours: package.module:make"),
    "scenarios": ("shoal.data.scenarios:SCENARIOS", "for tasks.scenario; or yours: package.module:function"),
    "scores": ("shoal.sharing.scores:SCORES", "for sharing.modmod.metric"),
    "rules": ("shoal.sharing.combine:RULES", "for `combine` of fedavg, fedprox, fedcurv and fedfish"),
    "lies": ("shoal.mail.lies:LIES", "for `faulty`; strength multiplies the weights or the noise"),
    "metrics": ("shoal.runs.metrics:METRICS", "in every summary"),
    "draws": ("shoal.data.draws:DRAWS", "for tasks.draw"),
    "protocols": ("shoal.settings.protocols:PROTOCOLS", "for protocol; `shoal list settings` has what they set"),
}
LISTED = ("settings", *NAMED, "datasets", "experiments")


@app.command("list")
def list_(
    what: Annotated[
        str, typer.Argument(help=f"{', '.join(LISTED[:-1])} or {LISTED[-1]}", autocompletion=complete_list)
    ] = "settings",
    name: Annotated[
        str, typer.Argument(help="One of them, e.g. recv: what it is, and its settings.", show_default=False)
    ] = "",
) -> None:
    """List what there is to choose from, a line each; or what one of them is, with its settings."""
    what = {"modes": "sharing", "topologies": "graphs"}.get(what, what)
    if what in NAMED:
        door, also = NAMED[what]
        module, _, attribute = door.partition(":")
        table = getattr(import_module(module), attribute)
        if name:
            show_entry(what, table, name)
        else:
            show_entries(what, table, also)
    elif what not in LISTED:
        raise UserError(f"cannot list `{what}`; allowed: {', '.join(LISTED)}")
    elif name:
        raise UserError(
            f"`shoal list {what}` shows all and takes no name, got `{name}`; leave it out, or name something among "
            f"{', '.join(NAMED)}"
        )
    elif what == "settings":
        show_settings()
    elif what == "datasets":
        list_data()
    else:
        show_experiments()


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


for command in (compare, sweep, advise, export, predict):
    app.command()(command)
own = {name_of(one): one.callback for one in app.registered_commands if one.callback} | {"data": list_data}
for name, brought in bring(app, own).items():
    EXAMPLES.setdefault(name, (brought.heading, brought.examples))
teach(app.registered_commands)
teach(app.registered_groups)
teach(data_app.registered_commands, "data ")
teach(live_app.registered_commands, "live ")
