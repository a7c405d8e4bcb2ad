"""What agents are given before they exchange anything: nobody sends it, and nobody pays for it."""

from typing import NamedTuple

from shoal.settings.groups import Settings
from shoal.study.cells import Row
from shoal_paper.table1 import MLP, MODELS, settings

PIXELS = 28 * 28
CLASSES = {"combined": 30}  # of all sources together; each of the others has 10


class Given(NamedTuple):
    """Floats that an agent has for nothing."""

    projection: int  # of the input: drawn from the seed, so that all agents of a fleet have the same
    classes: int  # their ids, which mean the same to everybody
    weights: int = 0  # of the joint agent that learned the initial tasks
    images: int = 0  # of these tasks, for training and validation, with their classes

    @property
    def total(self) -> int:
        return sum(self)


def given(fleet: Settings, classes: int = 10, pixels: int = PIXELS) -> Given:
    """What every agent of a fleet of the paper's MLPs is given."""
    width, tasks = fleet.net.width, fleet.tasks
    always = Given((pixels + 1) * width, classes)
    if not tasks.common:
        return always
    module = width * (width + 1)
    head = tasks.classes * (width + 1)
    basis: int | None = getattr(fleet.net, "basis", None)  # of modular nets
    structure = fleet.net.depth * (basis or 0)
    modules = basis or fleet.net.depth
    images = tasks.initial * tasks.classes * (int(tasks.train) + int(tasks.validation))
    return always._replace(weights=modules * module + tasks.initial * (head + structure), images=images * (pixels + 1))


def section() -> list[str]:
    """The sizes, and a sentence on each."""
    lines = [
        "## What agents are given",
        "",
        "An agent learns of another one only through mail that is paid for. But whatever a row shares, its agents "
        "begin with things that nobody sends: the frozen projection of the input, drawn from the seed, the same for "
        "all; class ids, which mean the same to everybody; and, with a common start, the weights of the joint agent "
        "that learned the initial tasks, and the images of these tasks (training and validation, with their classes). "
        "In floats per agent; rows without a common start have the first two only:",
        "",
        "| dataset | model | projection | class ids | weights of the start | images of the start | all |",
        "| --- " * 7 + "|",
    ]
    for dataset in MLP:
        for model in MODELS:
            one = given(settings(dataset, model, "fedavg", "fair", 1), CLASSES.get(dataset, 10))
            lines.append(f"| {dataset} | {model} | {' | '.join(f'{size:,}' for size in (*one, one.total))} |")
    return [*lines, ""]


def costs(rows: list[Row]) -> list[str]:
    """What rows of Table 1 cost per link and task, all in one denominator."""
    sharing = [row for row in rows if row.get("bytes_per_link_task")]
    if not sharing:
        return []
    lines = [
        "## What sharing costs",
        "",
        "The mean over every directed link and every task in which it was used, the same for floats and bytes. (modmod "
        "acts once per task, from the second task after the start on.) A float is one number: one of an image takes a "
        "byte, one of a weight four. The paper's rule counts pixels and weights alone, and every answer as full.",
        "",
        "| protocol | dataset | model | method | floats by the paper's rule | floats as sent | bytes |",
        "| --- " * 7 + "|",
    ]
    names = ("paper_floats_per_edge_task", "floats_per_edge_task", "bytes_per_link_task")
    for row in sharing:
        head = " | ".join(str(row[name]) for name in ("protocol", "dataset", "model", "method"))
        lines.append(f"| {head} | {' | '.join(f'{row[name]:,.0f}' for name in names)} |")
    return [*lines, ""]
