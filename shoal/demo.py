"""The demo: two small fleets on the digits that come with shoal, seen in the terminal."""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text
from torch import Tensor

from shoal.config import Settings, Tasks, resolve
from shoal.record import create
from shoal.session import carry_out, done, prepare, units
from shoal.stack import Stack

FLEETS = {"mlp": "one net for all tasks", "modular-mlp": "nets that grow modules"}
RAW: dict[str, Any] = {
    "dataset": "digits",
    "agents": 8,
    "tasks": {"count": 8, "train": 32, "validation": 10},
    "net": {"width": 32},
    "learner": {"epochs": 60, "batch": 16, "rate": 5e-3, "memory": 16},
}
STORY = """\
Eight agents meet handwritten digits. Each has its own stream of 8 tasks (tell a 3 from a 7, ...) and learns them one
after the other, from 64 images a task, of which it keeps 16 to remember the task by. The first 4 tasks are common to
all agents and learned together. Two fleets do the same: in one, every agent has a single net for all its tasks; in the
other, an agent composes small modules, anew for each task, and adds a module where the old ones do not do.
Below: accuracy on test images, mean over agents and {seeds} seeds.
"""
WIDTH = 20  # of a bar


def show(out: Path, seeds: int, console: Console) -> None:
    """Train both fleets with a live view, then say what came out."""
    console.print(STORY.format(seeds=seeds), highlight=False)
    seen: dict[str, Stack] = {}
    summaries: dict[str, dict[str, Any]] = {}
    with Live(console=console, refresh_per_second=4) as live:

        def watch(settings: Settings, stacks: tuple[Stack, ...]) -> None:
            (seen[settings.model],) = stacks
            share = done(settings, stacks[0]) / units(settings)
            live.update(picture(seen, f"training {FLEETS[settings.model]}: {100 * share:.0f} %"))

        for model in FLEETS:
            settings = resolve({**RAW, "model": model, "seeds": seeds})
            fleet = prepare(settings)
            record = create(unused(out / model), settings)
            summaries[model] = carry_out(fleet, record, partial(watch, settings))
        live.update(picture(seen, ""))
    for line in verdict(summaries):
        console.print(line, highlight=False)


def unused(folder: Path) -> Path:
    """The folder itself if there is none yet, else the first free number behind its name."""
    number = 1
    free = folder
    while free.exists():
        number += 1
        free = folder.with_name(f"{folder.name}-{number}")
    return free


def picture(seen: dict[str, Stack], status: str) -> Group:
    """A row per task: how well each fleet did before training, when it had just learned it, and does now."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("task", justify="right")
    for model, about in FLEETS.items():
        if model in seen:
            table.add_column(f"{about}:\nbefore", justify="right")
            table.add_column("\nlearned", justify="right")
            table.add_column("\nnow")
    columns = {model: progress(stack) for model, stack in seen.items()}
    for task in range(RAW["tasks"]["count"]):
        cells = [cell for three in columns.values() for cell in row(*(float(one[task]) for one in three))]
        table.add_row(str(task + 1), *cells)
    return Group(table, Text(status))


def row(before: float, learned: float, now: float) -> list[str]:
    """One fleet's cells for one task; a bar begins at chance."""
    if now != now:  # not met yet
        return ["", "", ""]
    filled = round(WIDTH * max(0.0, 2 * now - 1))
    shown = "" if learned != learned else f"{100 * learned:.0f} %"
    return [f"{100 * before:.0f} %", shown, f"{'█' * filled:<{WIDTH}} {100 * now:.0f} %"]


def progress(stack: Stack) -> tuple[Tensor, Tensor, Tensor]:
    """Accuracy per task [T], mean over lanes: before it was trained, when it was just learned, and now."""
    mean = stack.accuracy.mean(0)
    tasks = len(mean)
    first = torch.arange(tasks).clamp(min=Tasks().initial - 1)  # the task at whose end each was first learned
    own = torch.arange(tasks)
    measured = mean.flatten(0, 1)
    measured = measured[~measured[:, 0].isnan()]
    return mean[own, 0, own], mean[first, -1, own], measured[-1]


def verdict(summaries: dict[str, dict[str, Any]]) -> list[str]:
    """What came out, in words."""
    lines = [""]
    for model, about in FLEETS.items():
        one = summaries[model]
        lines.append(
            f"{about}: {one['final_accuracy']:.1f} % over all tasks at the end "
            f"(± {one['final_accuracy_se']:.1f}), {one['modules']:.1f} modules, "
            f"forgot {one['forgetting']:.1f} points, {one['seconds']:.0f} s; records in {one['out']}"
        )
    return [*lines, "", "next: shoal run experiments/digits.toml; shoal list settings"]
