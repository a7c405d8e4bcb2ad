"""The command line. Heavy imports happen inside the commands: `--help` must not wait for torch."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

if TYPE_CHECKING:
    from shoal.config import Settings
    from shoal.record import Record
    from shoal.stack import Stack
    from shoal.world import World

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

out = Console()
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
Seeds = Annotated[int | None, typer.Option(min=1, help="Repetitions of the whole fleet.", show_default=False)]


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
    except Exception as error:
        from shoal.config import SettingsError
        from shoal.data import DataError

        foreseen: tuple[type[Exception], ...] = (SettingsError, DataError, ValueError)
        if "shoal.record" in sys.modules:
            from shoal.record import RecordError

            foreseen = (*foreseen, RecordError)
        if not isinstance(error, foreseen):
            raise
        err.print(f"[bold red]error:[/] {error}", highlight=False, soft_wrap=True)
        sys.exit(2)


@app.command()
def run(
    file: Annotated[Path, typer.Argument(help="A settings file, e.g. experiments/mnist.toml.")],
    words: Words = None,
    seeds: Seeds = None,
    out: Out = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Train a fleet. Ctrl-C stops it after the current epoch; `shoal resume` goes on.

    `shoal list settings` explains every KEY that a settings file or KEY=VALUE can set.
    """
    from shoal.config import read

    settings = read(file, [*(words or []), *([f"seeds={seeds}"] if seeds else [])])
    from shoal.record import create
    from shoal.session import prepare

    folder = out or Path("runs") / f"{file.stem}-{settings.model}-{settings.identity()}"
    fleet = prepare(settings, data)  # before anything is written
    report(train(fleet, create(folder, settings)), json)


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(help="A run directory.")], data: Data = None, json: Json = False
) -> None:
    """Go on with a run that was stopped; it ends bit for bit as if it had not been."""
    from shoal.record import reopen

    record = reopen(folder)
    if record.finished:
        report(json_read(record.summary), json)
        err.print(f"{folder} was finished already")
        return
    from shoal.session import prepare

    report(train(prepare(record.settings, data), record), json)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="The run directory.")] = Path("runs/demo"),
    seeds: Annotated[int, typer.Option(min=1, help="Repetitions of the whole fleet.")] = 4,
) -> None:
    """Watch a small fleet learn handwritten digits: embedded images, no download, about a minute."""
    from shoal.demo import show

    show(out, seeds)


@app.command()
def reproduce(
    what: Annotated[str, typer.Argument(help="table1")],
    dataset: Annotated[
        list[str] | None, typer.Option(help="One or more of mnist, kmnist, fashionmnist, combined, cifar100.")
    ] = None,
    model: Annotated[list[str] | None, typer.Option(help="monolithic, modular, or both.")] = None,
    method: Annotated[list[str] | None, typer.Option(help="vanilla (no sharing).")] = None,
    protocol: Annotated[str, typer.Option(help="paper or fair.")] = "paper",
    seeds: Annotated[int, typer.Option(min=1, help="Seeds, the paper has 8.")] = 8,
    out: Annotated[Path, typer.Option(help="Finished cells are kept here and found again.")] = Path("runs/table1"),
    data: Data = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per finished cell on stdout.")] = False,
) -> None:
    """Train cells of the paper's Table 1 and set them beside the printed numbers."""
    from shoal import reproduce as cells
    from shoal.session import prepare

    chosen = cells.choose(what, dataset, model, method, protocol, seeds)
    rows = []
    for cell in chosen:
        record = cells.open_cell(cell, out)
        done = record.finished
        summary = json_read(record.summary) if done else train(prepare(cell.settings, data), record)
        rows.append(cells.row(cell, summary))
        if json:
            print(dumps(rows[-1]), flush=True)
    show_cells(rows)


@app.command("list")
def list_(
    what: Annotated[str, typer.Argument(help="settings, models or datasets")] = "settings",
) -> None:
    """List what there is to choose from."""
    from shoal import config

    if what == "settings":
        table = Table("setting", "default", "meaning", box=None)
        for name, field in config.fields():
            default = field.default if not hasattr(field.default, "model_dump") else ""
            table.add_row(name, repr(default), field.description)
        out.print(table)
        out.print("\nThe protocol sets what the user does not: `fair` and `paper` differ in these.")
        for protocol in ("fair", "paper"):
            out.print(protocol, config.switches(protocol, "modular-mlp", "mnist"))
    elif what == "models":
        for name in config.MODELS:
            out.print(name)
    elif what == "datasets":
        list_data()
    else:
        raise ValueError(f"cannot list `{what}`; allowed: settings, models, datasets")


@data_app.command("list")
def list_data(data: Data = None) -> None:
    """Show which datasets are here, where, and what they are."""
    from shoal.data import status

    table = Table("dataset", "here", "where", "MB", "note", box=None)
    for row in status(data):
        size = f"{row.size / 1e6:.1f}" if row.present else ""
        table.add_row(row.name, "yes" if row.present else "no", str(row.where or ""), size, row.note)
    out.print(table)


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
    out.print(f"{name} is in {folder}")


def train(fleet: "World", record: "Record") -> dict[str, Any]:
    """Train with a progress bar; on Ctrl-C say how to go on."""
    from shoal import session

    err.print(f"run directory {record.folder}", highlight=False)
    try:
        with bar(record.settings) as show:
            return session.carry_out(fleet, record, show)
    except session.Stopped:
        err.print(f"stopped and saved; go on with `shoal resume {record.folder}`", highlight=False)
        sys.exit(130)


@contextmanager
def bar(settings: "Settings") -> Iterator[Any]:
    """A progress bar on a terminal; a line per task elsewhere."""
    from shoal.session import done, units

    if not err.is_terminal:
        yield lambda stack: line(settings, stack)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("left"))
    with Progress(*columns, TimeRemainingColumn(), console=err) as progress:
        job = progress.add_task(describe(settings, None), total=units(settings))

        def show(stack: "Stack") -> None:
            progress.update(job, completed=done(settings, stack), description=describe(settings, stack))

        yield show


def line(settings: "Settings", stack: "Stack") -> None:
    if stack.epoch == 0:
        err.print(describe(settings, stack), highlight=False)


def describe(settings: "Settings", stack: "Stack | None") -> str:
    """Where a run is and how well it does."""
    if stack is None:
        return "reading data"
    lanes, count = len(stack.lanes), settings.tasks.count
    if stack.epoch == 0:
        mean = stack.accuracy[:, stack.task - 1, -1, : stack.task].mean()
        return f"{lanes} lanes, task {stack.task}/{count} done, accuracy {100 * mean:.1f}%"
    return f"{lanes} lanes, task {stack.task + 1}/{count}, epoch {stack.epoch}/{settings.learner.epochs}"


def report(summary: dict[str, Any], json: bool) -> None:
    """A finished run as a table, or as a JSON object on one line."""
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
    out.print(table)
    head = ("dataset", "model", "protocol", "agents", "seeds", "tasks", "seconds")
    out.print(", ".join(f"{name} {summary[name]}" for name in head), highlight=False)
    out.print(f"in {summary['out']}", highlight=False)


def show_cells(rows: list[dict[str, Any]]) -> None:
    """Cells of Table 1 beside the paper's."""
    table = Table("dataset", "model", "method", "protocol", "seeds", "final", "paper", "AUC", "paper", "s", box=None)
    for row in rows:
        table.add_row(
            row["dataset"], row["model"], row["method"], row["protocol"], str(row["seeds"]),
            f"{number(row['final_accuracy'])} ± {number(row['final_accuracy_se'])}",
            number(row["paper_final_accuracy"]),
            f"{number(row['auc'])} ± {number(row['auc_se'])}", number(row["paper_auc"]), f"{row['seconds']:.0f}",
        )  # fmt: skip
    err.print(table)


def number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def json_read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def dumps(content: dict[str, Any]) -> str:
    return json.dumps(content)


if __name__ == "__main__":
    main()
