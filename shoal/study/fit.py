"""Are agents alone fitted? What they share can seem to help only because they learn badly by themselves.

A few plain configurations race by validation rows, agents alone, and two yardsticks stand beside them that need no
training to speak of: a regularised linear model of each task's own rows, and one of the rows that all agents have of
its classes.
"""

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from shoal.agents.lanes import Split
from shoal.agents.world import World
from shoal.agents.worlds import worlds
from shoal.data import Bank
from shoal.runs.files import read_whole
from shoal.runs.paired import Gain
from shoal.settings.groups import Settings
from shoal.study.candidates import Candidate, with_seeds
from shoal.study.race import CHOICE, NONE, Measure, race

SHALLOW = 2  # layers of a plain net
RIDGES = (1e-3, 1e-1, 10.0)  # of the mean square of a row
POOLED = 2000  # rows of others that a yardstick reads, at most
LOOK = 2e10  # multiplications that a note may cost, about a second
SEEN = 20  # validation rows, below which nothing is said
CLEAR = 5  # points by which a linear model is clearly better
Changes = dict[str, float | int]  # by name, as in `net.dropout=0`


class Fit(NamedTuple):
    """How well agents learn alone, in % of validation rows (or of R2)."""

    alone: float  # as they are set
    changes: Changes  # what makes them better; nothing: they are fitted
    gain: Gain | None  # of the best configuration, shown or not
    linear: float | None  # a linear model of each task's own rows
    pooled: float | None  # and of the rows of all agents

    @property
    def words(self) -> str:
        """The changes, as on the command line."""
        return " ".join(f"{name}={value:g}" for name, value in self.changes.items())

    @property
    def good(self) -> bool:
        """Is nothing plain better than the agents as they are set?"""
        return not self.changes and (self.linear is None or self.linear <= self.alone + 1)

    def said(self) -> str:
        """What is said before sharing is compared."""
        beside = f" (a linear model of each task has {self.linear:.1f} %" if self.linear is not None else ""
        if beside:
            beside += f", one of all agents' rows {self.pooled:.1f} %)" if self.pooled is not None else ")"
        if self.changes and self.gain is not None:
            return (
                f"Agents alone are not fitted as set: {self.alone:.1f} % of validation rows, "
                f"{self.alone + self.gain.mean:.1f} % with {self.words}{beside}; sharing is compared with these "
                "settings."
            )
        if not self.good:
            return (
                f"Agents alone are not fitted: {self.alone:.1f} % of validation rows{beside}, and no plain change of "
                "their settings is better; what follows may hold for such agents alone."
            )
        return f"Agents alone are fitted: {self.alone:.1f} % of validation rows{beside}."


def configurations(settings: Settings) -> dict[str, Changes]:
    """A few plain configurations of agents alone, by name."""
    net, learner = settings.net, settings.learner
    plain: Changes = {"net.dropout": 0.0} if net.dropout else {}
    found: list[Changes] = [plain]
    if net.depth > SHALLOW:
        found.append({**plain, "net.depth": SHALLOW})
    shallow = found[-1]
    found += [{**shallow, "learner.epochs": 2 * learner.epochs}, {**shallow, "learner.rate": 3 * learner.rate}]
    found.append({**shallow, "learner.rate": learner.rate / 3})
    return {"-".join(f"{name}-{value:g}" for name, value in one.items()): one for one in found if one}


def changed(settings: Settings, changes: Changes) -> Settings:
    """The settings with some changes."""
    groups: dict[str, Any] = {}
    for name, value in changes.items():
        group, key = name.split(".")
        groups[group] = groups.get(group, getattr(settings, group)).model_copy(update={key: value})
    return settings.model_copy(update=groups)


def fitted(
    base: Candidate, bank: Bank, seeds: int, effect: float, measure: Callable[[dict[str, Candidate]], Measure]
) -> Fit:
    """Race plain configurations against the settings as they are, by the validation rows of so many seeds: better is
    what gains `effect` points at least, and twice its error."""
    every = configurations(base.settings)
    racers = {NONE: base} | {name: Candidate(name, changed(base.settings, one)) for name, one in every.items()}
    ended = race(list(every), seeds, measure(racers))
    best = next(iter(ended.verdict.gains), None)
    gain = ended.verdict.gains[best] if best else None
    better = gain is not None and gain.mean >= effect and (gain.error is None or gain.mean > 2 * gain.error)
    own = [one[CHOICE] for one in ended.scores[NONE].values()]
    linear, pooled = yardsticks(worlds(with_seeds(base.settings, 0, 1), bank)[0])
    return Fit(sum(own) / len(own), every[best] if better and best else {}, gain, linear, pooled)


def yardsticks(world: World) -> tuple[float | None, float | None]:
    """What two linear models reach on the validation rows (%), the mean over agents and tasks: one of each task's
    training rows, and one of all rows of its classes that agents of its seed train on. Nothing, where an agent has to
    tell its task too, which these models are told."""
    if world.named:
        return None, None
    inputs = world.inputs.flatten(1).double().cpu().numpy()
    numeric = world.bank.targets is not None
    own: list[list[float]] = []
    pooled: list[list[float]] = []
    held = [[part(world, row, task, world.train) for task in range(int(end))] for row, end in enumerate(world.ends)]
    for row, lane in enumerate(world.lanes):
        theirs = [one for at, one in enumerate(held) if world.lanes[at].seed == lane.seed]
        rows = np.concatenate([one[0] for group in theirs for one in group])
        answers = np.concatenate([one[1] for group in theirs for one in group])
        rows, once = np.unique(rows, return_index=True)  # agents may have rows in common
        answers = answers[once]
        for task in range(int(world.ends[row])):
            (mine, known), (check, right) = held[row][task], part(world, row, task, world.validation)
            outputs = world.streams[row][task].outputs
            among = np.full(len(rows), True) if numeric else np.isin(answers, outputs)
            some = np.flatnonzero(among)[:: max(1, int(among.sum()) // POOLED)]
            own.append(scored(inputs[mine], known, inputs[check], right, numeric))
            pooled.append(scored(inputs[rows[some]], answers[some], inputs[check], right, numeric))
    return tuple(100 * float(np.array(one).mean(0).max()) for one in (own, pooled))  # type: ignore[return-value]


def note(fleet: Sequence[World], folder: Path) -> str:
    """What to say after a run whose agents look underfitted: by the validation rows of the last task of each agent of
    the first seed, which it had no time to forget, a linear model of the task's own rows is clearly better. Nothing,
    where the two cannot be compared, or to look would take longer than a moment."""
    world = fleet[0]
    if len(fleet) > 1 or world.named:
        return ""
    lanes = [(row, lane) for row, lane in enumerate(world.lanes) if lane.seed == world.lanes[0].seed]
    last = {row: int(world.ends[row]) - 1 for row, _ in lanes}
    sizes = [int(world.train.sizes[row, task]) for row, task in last.items() if task >= 0]
    wide = world.inputs[0].numel()
    if sum(size * wide * min(size, wide) + min(size, wide) ** 3 for size in sizes) > LOOK or not sizes:
        return ""
    table = pl.read_parquet(io.BytesIO(read_whole(folder / "validation.parquet")))
    known = {(seed, agent, task): one for seed, agent, task, one in table.rows()}
    inputs, numeric = world.inputs.flatten(1).cpu().numpy(), world.bank.targets is not None
    own, theirs, rows = [], [], 0
    kind = np.float64 if numeric else np.float32  # of classes the largest counts, and it is a matter of whole points
    for row, lane in lanes:
        task = last[row]
        alone = known.get((*lane, task))
        if task < 0 or alone is None or not int(world.validation.sizes[row, task]):
            continue
        (mine, wanted), (check, right) = (part(world, row, task, one) for one in (world.train, world.validation))
        x, y = (inputs[places].astype(kind) for places in (mine, check))
        theirs.append(scored(x, wanted, y, right, numeric))
        own.append(alone)
        rows += len(check)
    if rows < SEEN:
        return ""
    alone, linear = 100 * float(np.mean(own)), 100 * float(np.array(theirs).mean(0).max())
    doubt = 200 * float(np.sqrt(0.25 / rows))  # twice the standard error of a share, at most
    if linear < alone + max(CLEAR, doubt):
        return ""
    net = world.settings.net
    plain = "net.dropout=0, " * bool(net.dropout) + "a smaller net.depth, " * (net.depth > SHALLOW)
    return (
        f"agents look underfitted: they know {alone:.1f} % of the validation rows of the task that they learned last, "
        f"and a regularised linear model of its own rows knows {linear:.1f} %; try {plain}more learner.epochs or "
        "another learner.rate before you compare what agents share (`shoal advise` does)"
    )


def part(world: World, row: int, task: int, split: Split) -> tuple[np.ndarray, np.ndarray]:
    """The places of a lane's rows of a task among the inputs, to train or validate on, and their classes or numbers."""
    size = int(split.sizes[row, task])
    labels = split.labels[row, task, :size].cpu().numpy()
    if world.bank.targets is None:
        labels = np.array(world.streams[row][task].outputs)[labels]
    return split.rows[row, task, :size].cpu().numpy(), labels


def scored(x: np.ndarray, y: np.ndarray, check: np.ndarray, right: np.ndarray, numeric: bool) -> list[float]:
    """How well ridge regression of y, or of which class it is, does on other rows, for some strengths."""
    middle = x.mean(0)
    x, check = x - middle, check - middle
    classes = np.unique(y) if not numeric else np.zeros(0)
    wanted = y.astype(x.dtype) if numeric else (y[:, None] == classes).astype(x.dtype)
    level = wanted.mean(0)
    # Of rows or of columns, whichever are fewer: both come to the same.
    turned = len(x) > x.shape[1]
    gram, across = (x.T @ x, check) if turned else (x @ x.T, check @ x.T)
    pull = x.T @ (wanted - level) if turned else wanted - level
    size = max(float(np.trace(gram)) / len(x), 1e-12)
    found = []
    for ridge in RIDGES:
        said = across @ np.linalg.solve(gram + ridge * size * np.eye(len(gram), dtype=x.dtype), pull) + level
        if numeric:
            spread = float(((right - right.mean(0)) ** 2).sum())
            found.append(1 - float(((said - right) ** 2).sum()) / spread if spread else 0.0)
        else:
            found.append(float((classes[said.argmax(1)] == right).mean()))
    return found
