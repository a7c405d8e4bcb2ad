"""Trackers: a run in TensorBoard, Weights & Biases or MLflow, beside shoal's own records, which stay the truth.

Each is an extra, imported when it is asked for; it writes inside the run directory and sends nothing anywhere. At every
evaluation it gets the mean test accuracy over the tasks so far, that on the current task, the modules per agent, and
messages and bytes so far; at the start the settings, at the end the summary. A step is an evaluation's label (protocol
4) plus `epochs + 2` for every task before. What fails in a tracker costs its view, never the run.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from math import isfinite
from typing import TYPE_CHECKING, Any, Protocol

from shoal.errors import UserError

if TYPE_CHECKING:
    from shoal.fleet.run import Moment
    from shoal.runs.record import Record

Say = Callable[[str], None]
Values = Mapping[str, float]


class Tracker(Protocol):
    """What follows a run: made from its record, then told values, the summary if it gets there, and the end."""

    def __init__(self, record: "Record") -> None: ...

    def log(self, step: int, values: Values) -> None: ...

    def conclude(self, summary: Mapping[str, Any]) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """Event files in RUN/tensorboard; `tensorboard --logdir RUN` shows them."""

    def __init__(self, record: "Record") -> None:
        from shoal.settings.writing import toml

        self.writer = import_module("torch.utils.tensorboard").SummaryWriter(str(record.folder / "tensorboard"))
        self.writer.add_text("settings", fenced(toml(record.settings)))

    def log(self, step: int, values: Values) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)

    def conclude(self, summary: Mapping[str, Any]) -> None:
        self.writer.add_text("summary", fenced(json.dumps(summary, indent=2)))
        self.log(0, numbers(summary))

    def close(self) -> None:
        self.writer.close()


class Wandb:
    """An offline run in RUN/wandb; `wandb sync` sends it, if you want that."""

    def __init__(self, record: "Record") -> None:
        wandb = import_module("wandb")
        self.run = wandb.init(
            mode="offline", project="shoal", name=record.folder.name, dir=str(record.folder),
            config=record.settings.model_dump(mode="json"), settings=wandb.Settings(silent=True, console="off"),
        )  # fmt: skip

    def log(self, step: int, values: Values) -> None:
        self.run.log(dict(values), step=step)

    def conclude(self, summary: Mapping[str, Any]) -> None:
        self.run.summary.update(numbers(summary))

    def close(self) -> None:
        self.run.finish()


class Mlflow:
    """A store of plain files in RUN/mlflow."""

    def __init__(self, record: "Record") -> None:
        from shoal.settings.part import flatten

        # Newer versions keep a store of files, which needs no database, only for those who say so.
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        store = (record.folder / "mlflow").resolve().as_uri()
        self.client = import_module("mlflow").MlflowClient(tracking_uri=store)
        found = self.client.get_experiment_by_name("shoal")
        experiment = found.experiment_id if found else self.client.create_experiment("shoal")
        self.run = self.client.create_run(experiment, run_name=record.folder.name).info.run_id
        for name, value in flatten(record.settings.model_dump(mode="json")):
            self.client.log_param(self.run, name, value)

    def log(self, step: int, values: Values) -> None:
        for name, value in values.items():
            self.client.log_metric(self.run, name, value, step=step)

    def conclude(self, summary: Mapping[str, Any]) -> None:
        self.log(0, numbers(summary))

    def close(self) -> None:
        self.client.set_terminated(self.run)


# By name: the package that is imported, the one that is installed (also an extra of that name), and what uses it.
TRACKERS: dict[str, tuple[str, str, type[Tracker]]] = {
    "tensorboard": ("tensorboard", "tensorboard", TensorBoard),
    "wandb": ("wandb", "wandb", Wandb),
    "mlflow": ("mlflow", "mlflow-skinny", Mlflow),
}


def needs(names: Sequence[str]) -> None:
    """Raise if a tracker does not exist or its package is not here."""
    for name in names:
        if name not in TRACKERS:
            raise UserError(f"there is no tracker `{name}`; allowed: {', '.join(TRACKERS)}")
        package, installed, _ = TRACKERS[name]
        found = find_spec(package)
        if found is None or found.origin is None:  # a folder of that name, such as wandb leaves behind, is no package
            raise UserError(
                f"`--track {name}` needs {package}, which is not installed; "
                f"say `pip install {installed}`, or install shoal with its extra `{name}`"
            )


class Crowd:
    """All trackers of a run. One that fails is let go, with a line."""

    def __init__(self, names: Sequence[str], record: "Record", say: Say) -> None:
        self.epochs = record.settings.learner.epochs
        self.say = say
        self.trackers: dict[str, Tracker | None] = dict.fromkeys(names)
        self.each(lambda name, _: self.trackers.update({name: TRACKERS[name][2](record)}))

    def each(self, act: Callable[[str, Any], object]) -> None:
        for name, tracker in list(self.trackers.items()):
            try:
                act(name, tracker)
            except Exception as error:
                del self.trackers[name]
                why = " ".join(str(error).split())[:160] or type(error).__name__
                self.say(f"{name} failed ({why}); the run continues without it")

    def note(self, moment: "Moment") -> None:
        """Tell what was measured since the last epoch."""
        if not self.trackers:
            return
        for step, values in news(moment, self.epochs):
            self.each(lambda _, tracker, step=step, values=values: tracker.log(step, values))  # type: ignore[misc]

    def conclude(self, summary: Mapping[str, Any]) -> None:
        self.each(lambda _, tracker: tracker.conclude(summary))

    def close(self) -> None:
        self.each(lambda _, tracker: tracker.close())


@contextmanager
def follow(names: Sequence[str], record: "Record", say: Say) -> Iterator[Crowd]:
    """Trackers while a run lasts; they are closed however it ends."""
    crowd = Crowd(names, record, say)
    try:
        yield crowd
    finally:
        crowd.close()


def news(moment: "Moment", epochs: int) -> list[tuple[int, dict[str, float]]]:
    """The evaluations that the last epoch, or the end of a task, has brought, with their steps."""
    import numpy as np
    import torch

    from shoal.agents.stack import grid
    from shoal.learners.candidates import modules

    labels, task, epoch = grid(epochs), moment.task, moment.epoch
    if epoch == 0:
        task, fresh = task - 1, labels[-1:]
    else:  # the one before a task's first epoch is told with that after it
        fresh = labels[:2] if epoch == 1 else [epoch] if epoch in labels[:-1] else []
    if not fresh:
        return []
    stacks = moment.stacks
    sent = stacks[0].ledger.sent
    counts = np.concatenate([modules(stack) for stack in stacks])
    found = []
    for label in fresh:
        measured = torch.cat([stack.accuracy[:, task, labels.index(label), : task + 1] for stack in stacks]).double()
        values = {
            "accuracy/so_far": float(measured.nanmean()),
            "accuracy/current": float(measured[:, -1].nanmean()),
            **({"modules": float(counts.mean())} if len(counts) else {}),
            "mail/messages": float(sent[0]),
            "mail/bytes": float(sent[1]),
        }
        found.append((task * (epochs + 2) + label, values))
    return found


def numbers(summary: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a summary, by names of their own."""
    return {
        f"summary/{name}": float(value)
        for name, value in summary.items()
        if isinstance(value, int | float) and isfinite(value)
    }


def fenced(text: str) -> str:
    """Text that TensorBoard shows as it is: Markdown's code."""
    return "\n".join(f"    {line}" for line in text.splitlines())
