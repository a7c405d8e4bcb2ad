"""What several commands take, and what completes it in a shell."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer


def begins(names: Iterable[str], text: str) -> list[str]:
    """What can be said by someone who has begun to type."""
    return [name for name in names if name.startswith(text)]


def complete_file(incomplete: str) -> list[str]:
    """The names of experiments; if none fits, the shell goes on with files."""
    from shoal.configure.reading import experiments

    return begins(experiments(), incomplete)


def complete_word(incomplete: str) -> list[str]:
    """KEY= of every setting, and what can stand behind it if it is one of some words."""
    from shoal.cli.choices import choices
    from shoal.configure.checks import fields

    key, equals, _ = incomplete.partition("=")
    if not equals:
        return begins([f"{name}=" for name, _ in fields()], incomplete)
    found = dict(fields()).get(key)
    words = [] if found is None else ["true", "false"] if found.annotation is bool else choices(found.annotation)
    return begins([f"{key}={word}" for word in words], incomplete)


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
        help="Settings to change, e.g. learner.epochs=50; they win over the file.",
        metavar="[KEY=VALUE]...",
        autocompletion=complete_word,
    ),
]
Figures = Annotated[
    Path | None, typer.Option(help="Also write every chart here, as PNG, SVG and PDF.", show_default=False)
]
Page = Annotated[bool, typer.Option("--page/--no-page", help="End with OUT/report.html (see `shoal report`).")]
Seeds = Annotated[int | None, typer.Option(help="Repetitions of the whole fleet.", show_default=False)]
Yes = Annotated[
    bool, typer.Option("--yes", help="Run it even if it needs more memory than is free, or would take years.")
]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Load the code, the files elsewhere and the cluster that a settings file or run directory names.",
    ),
]
Workers = Annotated[
    str | None,
    typer.Option(
        help="Split the work (agents, or runs) among this many processes or `ray` actors; the result is the same.",
        metavar="N|ray",
        show_default=False,
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        help="The Ray cluster to join (default: one is started for this command).",
        metavar="HOST:PORT",
        show_default=False,
    ),
]
Stacks = Annotated[
    int | None,
    typer.Option(help="With `--workers ray`, how many actors (default: one for each CPU).", min=1, show_default=False),
]
Track = Annotated[
    list[str] | None,
    typer.Option(help="Also follow the run with tensorboard, wandb (offline) or mlflow (local).", show_default=False),
]
