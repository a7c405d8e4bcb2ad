"""Commands for agents that one keeps: out of a run into a file, and from rows to predictions."""

import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from shoal.console import plainly, say

KINDS = ".safetensors (all of it, for `shoal predict`), .onnx or .pt2"
From = Annotated[
    Path | None,
    typer.Option(
        "--from", help="Go on from this finished run, with FILE as the rows that have come.", show_default=False
    ),
]
Task = Annotated[
    int | None,
    typer.Option(help="The task whose head answers, counted from 1 (default: the last).", min=1, show_default=False),
]


def export(
    folder: Annotated[Path, typer.Argument(help="A finished run directory.", metavar="RUN")],
    agent: Annotated[str, typer.Option(help="A site's name, or a number counted from 0.")] = "0",
    seed: Annotated[int | None, typer.Option(help="Of which seed (default: the first).", show_default=False)] = None,
    out: Annotated[
        Path | None, typer.Option(help=f"The file: {KINDS} (default: NAME.safetensors).", show_default=False)
    ] = None,
    task: Task = None,
    memory: Annotated[
        bool, typer.Option("--memory", help="With what it needs to go on learning, among it rows of its data.")
    ] = False,
) -> None:
    """Take an agent out of a finished run, as one file."""
    from shoal.errors import UserError
    from shoal.python.results import Result

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what it would warn of is an error here
        found = Result.read(folder).agent(agent, seed)
    if found.ended:
        raise UserError(found.ended)
    file = out or Path(f"{found.name.replace('/', '-').replace(' ', '-')}.safetensors")
    if file.suffix == ".safetensors":
        if task is not None:
            raise UserError(f"{file} holds all tasks of {found.name}, so --task means nothing; leave it out")
        found.save(file, memory)
    else:
        if memory:
            raise UserError(f"{file} holds a net alone, so --memory means nothing; leave it out")
        found.export(file, task)
    plainly(f"{file}: {found!r}")


def go_on(folder: Path, rows: str, words: Sequence[str], out: Path | None) -> dict[str, Any]:
    """Let the fleet of a finished run go on with the rows that a name says, and return the summary."""
    from shoal.errors import UserError
    from shoal.keep.going import brought
    from shoal.python.results import Result
    from shoal.study.cells import shown_summary

    if words:
        raise UserError(f"a run that goes on keeps its settings, so `{words[0]}` means nothing; leave it out")
    name = rows.removeprefix("data=")
    new = brought(name)  # before anything is said of a directory
    before = Result.read(folder)
    place = out or after(folder)
    if (place / "summary.json").exists():
        say(f"{place} was finished already")
    else:
        say(f"run directory {place}")
    before.continue_with(new, place, progress=True)
    return shown_summary(place)


def after(folder: Path) -> Path:
    """Where a run that goes on from the one in a folder is kept: RUN-on, RUN-on-2, and so on."""
    found = re.fullmatch(r"(.+)-on(?:-(\d+))?", folder.name)
    if not found:
        return folder.with_name(f"{folder.name}-on")
    return folder.with_name(f"{found[1]}-on-{int(found[2] or 1) + 1}")


def predict(
    file: Annotated[Path, typer.Argument(help="An agent, as `shoal export` writes it.", metavar="AGENT")],
    rows: Annotated[Path, typer.Argument(help="A CSV or Parquet file with the columns that the agent reads.")],
    out: Annotated[Path | None, typer.Option(help="Write a CSV here (default: to stdout).", show_default=False)] = None,
    task: Task = None,
    trust: Annotated[bool, typer.Option("--trust", help="Import the net's own code, which the file names.")] = False,
) -> None:
    """Say what an agent predicts for the rows of a table: a column for the answer and, of classes, one for how likely
    each is."""
    import polars as pl

    from shoal.data.sources.table import frame_of
    from shoal.files import save
    from shoal.keep.agent import Agent

    agent = Agent.load(file, trust=trust)
    given = frame_of(rows)
    said = agent.predict(given, task)
    names = list(agent.source.wanted) or ["predicted"]
    if agent.source.numeric:
        wide = said.reshape(len(given), -1)
        names = names if len(names) == wide.shape[1] else [f"predicted_{at + 1}" for at in range(wide.shape[1])]
        table = pl.DataFrame(dict(zip(names, wide.T, strict=True)))
    else:
        likely = agent.probabilities(given, task)
        columns = {f"p({one})": likely[:, at].round(6) for at, one in enumerate(agent.classes(task))}
        table = pl.DataFrame({names[0]: said, **columns})
    if out is None:
        typer.echo(table.write_csv(), nl=False)
    else:
        save(out, table.write_csv(), "give --out another place")
        say(f"{out}: {len(table)} rows by {agent.name}")
