"""What scores promise and what modules deliver: transferability between the tasks of a finished run, and real gains.

A pair is a task of one agent, the receiver, and an earlier one of another agent of its seed that kept a module. Its
gain is found by learning the receiver's task again for a while, once with that module as the candidate (as modmod
shares it) and once with a fresh one.
"""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, nan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import torch

from shoal.agents import received
from shoal.agents.engine import kept_memory
from shoal.agents.evaluate import accuracy
from shoal.agents.stack import Stack, drawn
from shoal.agents.world import World
from shoal.data.tasks import JOINT, lanes_of
from shoal.doors import is_door
from shoal.errors import SettingsError, UserError
from shoal.fleet.run import one_thread
from shoal.learners.candidates import Offer, alive, forgetful, modular, plant, rehearse, settle
from shoal.mail.post import Post
from shoal.models.families import family
from shoal.models.modular import STRUCTURE
from shoal.models.table import GROWTH, modular_form
from shoal.rng import key
from shoal.runs.execute import prepare
from shoal.runs.files import RecordError
from shoal.runs.metrics import error
from shoal.runs.record import reopen
from shoal.settings.groups import Settings
from shoal.sharing import promises
from shoal.sharing.mode import agent_of
from shoal.sharing.modmod import ModMod
from shoal.sharing.scores import SCORES

ROWS = 64  # lanes that learn at once


class NoModulesError(UserError):
    """No module of a seed could have gone from one agent to another."""


class Route(NamedTuple):
    """Who could have learned which task with which module."""

    agent: int
    task: int
    sender: int
    source: int  # the sender's task that the module was grown for


class Trial(NamedTuple):
    """A route, what each metric says about it (NaN: nothing) and the validation accuracies with and without it."""

    route: Route
    scores: Mapping[str, float]
    received: float
    fresh: float

    @property
    def gain(self) -> float:
        """Points of accuracy that the received module brings over a fresh one."""
        return 100 * (self.received - self.fresh)


class Rank(NamedTuple):
    """How well a metric ranks modules: Spearman's rho with their gains."""

    rho: float  # over all pairs; NaN: one of the two is constant
    within: float  # the mean of the receiving tasks' own: a receiver only compares what it is offered
    tasks: int  # of them
    pairs: int
    left: int  # pairs for which there is no score


@dataclass(frozen=True)
class Found:
    """All that was measured in one seed of a run."""

    seed: int
    epochs: int
    metrics: tuple[str, ...]
    trials: tuple[Trial, ...]
    why: Mapping[str, str]  # why the first pair without a score has none, by metric

    @property
    def ranks(self) -> dict[str, Rank]:
        return {metric: rank(metric, self.trials) for metric in self.metrics}

    @property
    def gain(self) -> float:
        """The mean over all pairs."""
        return float(np.mean([trial.gain for trial in self.trials]))


def measure(
    folder: Path,
    metrics: Sequence[str] = ("iou",),
    seed: int | None = None,
    epochs: int = 20,
    data: Path | None = None,
    tell: Callable[[int, int], None] = lambda done, total: None,
    most: int | None = None,
) -> Found:
    """Scores and gains of all pairs of tasks in one seed of a finished run, or of at most so many, drawn from the seed.
    `tell` hears of lanes done, of how many."""
    metrics = tuple(dict.fromkeys(metrics))
    for name in metrics:
        if name not in SCORES and not is_door(name):
            close = difflib.get_close_matches(name, list(SCORES), n=1)
            mean = f"did you mean `{close[0]}`? " if close else ""
            raise SettingsError(f"unknown metric `{name}`; {mean}allowed: {', '.join(SCORES)}")
    world, stack = opened(folder, seed, data)
    routes = some_routes(folder, world, stack, most)
    with kept_memory(), one_thread():
        told = {name: scored(world, stack, name, routes) for name in metrics}
        results = delivered(world, stack, routes, epochs, tell)
    trials = tuple(
        Trial(route, {name: told[name][0][at] for name in metrics}, *results[route]) for at, route in enumerate(routes)
    )
    return Found(world.lanes[0].seed, epochs, metrics, trials, {name: why for name, (_, why) in told.items() if why})


def opened(folder: Path, seed: int | None, data: Path | None) -> tuple[World, Stack]:
    """The lanes of one seed of a finished run, the first if not given, as they were at its end."""
    record = reopen(folder)
    settings = record.settings
    if not record.finished:
        raise RecordError(f"{folder} is not finished; go on with `shoal resume {folder}`")
    if settings.kinds:
        raise UserError(f"{folder} is a fleet of several kinds, whose tasks are not compared; give a run of one kind")
    if family(settings) != GROWTH:
        raise UserError(
            f"{folder} has no modules: its model is `{settings.model}`; "
            f"give a run with model = {modular_form(settings.model)}"
        )
    seed = seed_of(folder, settings, seed)
    again = f"make it again with `shoal run {folder / 'settings.toml'}`"
    if not (record.checkpoint.exists() or record.earlier.exists()):
        raise RecordError(f"{record.checkpoint} is missing, and the nets with it; {again}")
    lanes = [lane for lane in lanes_of(settings) if lane.seed == seed]
    (world,) = prepare(settings, data, lanes)

    def of_seed(held: tuple[Stack, ...]) -> tuple[Stack, ...]:
        (stack,) = held
        return (stack.take([stack.lanes.index(lane) for lane in lanes], lanes),)

    (stack,) = record.load([world], of_seed) or ()
    if stack.task < settings.tasks.count:
        raise RecordError(
            f"{record.checkpoint} is not of the end: {stack.task} of {settings.tasks.count} tasks were done; {again}"
        )
    rows = [row for row, lane in enumerate(lanes) if lane not in stack.silent]
    if not rows:
        raise UserError(
            f"all agents of seed {seed} of {folder} diverged, and nothing is left to transfer; give another"
        )
    return world.piece(rows), stack.take(rows, [lanes[row] for row in rows])


def seed_of(folder: Path, settings: Settings, seed: int | None) -> int:
    """A seed that the run has, the first if none is said."""
    seed = settings.seed if seed is None else seed
    if seed not in range(settings.seed, settings.seed + settings.seeds):
        last = settings.seed + settings.seeds - 1
        has = f"seeds {settings.seed} to {last}" if settings.seeds > 1 else f"seed {last} alone"
        raise UserError(f"{folder} has no seed {seed}, it has {has}; give one of them with --seed")
    return seed


def routes_of(world: World, stack: Stack) -> list[Route]:
    """Every task with every module that another agent grew for an earlier task and kept."""
    model, agents, there = modular(world), range(len(world.lanes)), alive(stack)
    kept = {(b, u) for b in agents for u in range(model.initial, model.tasks) if there[b, model.slot(u)]}
    receivers = [(a, t) for a in agents for t in range(model.initial, model.tasks)]
    return [Route(a, t, b, u) for a, t in receivers for b, u in sorted(kept) if b != a and u < t]


def some_routes(folder: Path, world: World, stack: Stack, most: int | None) -> list[Route]:
    """`routes_of` a run that has any: all, or a sample of so many that depends on the seed alone."""
    found = routes_of(world, stack)
    if not found:
        raise NoModulesError(
            f"{folder} has no modules to compare: in seed {world.lanes[0].seed} no agent kept one before another's "
            "last task; try another --seed, or a run with more epochs or a lower learner.accept"
        )
    if most is None or most >= len(found):
        return found
    some = key(world.lanes[0].seed, "routes").choice(len(found), most, replace=False)
    return [found[at] for at in sorted(some.tolist())]


def scored(world: World, stack: Stack, metric: str, routes: Sequence[Route]) -> tuple[list[float], str]:
    """What a metric says about each route by the nets of the end, and why if it says nothing (NaN) about some."""
    mode = ModMod.model_validate({"metric": metric})
    last = stack.take(range(len(stack.lanes)), stack.lanes)
    last.task = world.settings.tasks.count - 1  # a clock at which every earlier task has its memory
    post, form = Post(world, last, mode), mode.letters["question"].look(world)
    found, why = [], ""
    with torch.inference_mode():
        for agent, task, sender, source in routes:
            receiver, giver = agent_of(post, world.lanes[agent]), agent_of(post, world.lanes[sender])
            draft = promises.described(receiver, task, metric, mode.examples)
            asked = {
                name: world.images(draft[name]) if name == "images" else torch.as_tensor(draft[name]) for name in form
            }
            try:
                score = SCORES.find(metric).score(promises.seen(giver, asked, source, metric))
                if not isfinite(score):
                    raise UserError(f"{metric} is {score}, which no picture can show; use another metric")
            except UserError as error:
                score, why = nan, why or str(error)
            found.append(score)
    return found, why


def delivered(
    world: World, stack: Stack, routes: Sequence[Route], epochs: int, tell: Callable[[int, int], None]
) -> dict[Route, tuple[float, float]]:
    """The validation accuracies of each route's task, with its module and with a fresh one."""
    receivers = list(dict.fromkeys((route.agent, route.task) for route in routes))
    total, done = len(routes) + len(receivers), 0
    found: dict[tuple[int, int, Route | None], float] = {}
    for task in sorted({task for _, task in receivers}):
        past = before(world, stack, task)
        own: list[tuple[int, int, Route | None]] = [(a, t, None) for a, t in receivers if t == task]
        own += [(route.agent, task, route) for route in routes if route.task == task]
        for first in range(0, len(own), ROWS):
            some = own[first : first + ROWS]
            offers = [(agent, offered(world, stack, route) if route else None) for agent, _, route in some]
            found |= zip(some, learned(world, past, offers, epochs), strict=True)
            done += len(some)
            tell(done, total)
    return {route: (found[route.agent, route.task, route], found[route.agent, route.task, None]) for route in routes}


def before(world: World, stack: Stack, task: int) -> Stack:
    """The lanes ahead of a task, as far as their end can tell: the modules they had then, with what has become of them,
    and the task's head and structure as they began. Nothing has been received for it, and nothing is in memory."""
    model, common = modular(world), world.settings.tasks.common
    past = stack.take(range(len(stack.lanes)), stack.lanes)
    past.task = task
    alive(past)[:, model.slot(task) :] = False
    past.of(received.OWNER)["fill"].zero_()
    forgetful(past).forget_moments()
    for row, lane in enumerate(stack.lanes):
        # With a common start all agents are copies of the joint agent, heads of tasks to come included.
        first = drawn(world, lane.seed, JOINT if common else lane.agent, "weights")
        for name in (STRUCTURE, *model.heads):
            past.params[name][row, task] = first[name][task].to(world.device)
    return past


def offered(world: World, stack: Stack, route: Route) -> Offer:
    """A route's module and what comes with it, as its sender would send it."""
    mode = ModMod()
    agent = agent_of(Post(world, stack, mode), world.lanes[route.sender])
    packed, form = mode.offer(agent, [route.source], {route.source: 0.0}) or {}, mode.letters["modules"].look(world)
    return Offer(0.0, route.source, route.sender, {name: packed[name][0] for name in form})


def learned(world: World, past: Stack, offers: Sequence[tuple[int, Offer | None]], epochs: int) -> list[float]:
    """The validation accuracy of the stack's task after learning it in some rows, each with an offered module as the
    candidate, or a fresh one."""
    rows, task = [row for row, _ in offers], past.task
    there, copies = world.piece(rows), past.take(rows, [past.lanes[row] for row in rows])
    for at, (_, offer) in enumerate(offers):
        if offer is None:
            plant(there, copies, at)
        else:
            settle(there, copies, at, [offer])
    rehearse(there, copies, epochs)
    found: list[float] = accuracy(there, copies, "validation", [task])[:, 0].tolist()
    return found


def rank(metric: str, trials: Sequence[Trial]) -> Rank:
    """How well a metric's scores rank gains."""
    told = [trial for trial in trials if isfinite(trial.scores[metric])]
    groups: dict[tuple[int, int], list[Trial]] = {}
    for trial in told:
        groups.setdefault(trial.route[:2], []).append(trial)

    def rho(some: Sequence[Trial]) -> float:
        return spearman([trial.scores[metric] for trial in some], [trial.gain for trial in some])

    own = [one for one in map(rho, groups.values()) if isfinite(one)]
    return Rank(rho(told), float(np.mean(own)) if own else nan, len(own), len(told), len(trials) - len(told))


def spearman(x: Sequence[float], y: Sequence[float]) -> float:
    """Spearman's rank correlation: Pearson's of ranks. NaN if either is constant, or there are fewer than two."""
    a, b = (ranks - ranks.mean() if len(ranks) else ranks for ranks in (ranked(x), ranked(y)))
    size = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / size if size else nan


def ranked(values: Sequence[float]) -> np.ndarray:
    """Ranks from 0; equal values have the mean of theirs. What differs by rounding alone is equal."""
    _, place, counts = np.unique(np.round(values, 9), return_inverse=True, return_counts=True)
    ranks: np.ndarray = (np.cumsum(counts) - (counts + 1) / 2)[place]
    return ranks


class Mean(NamedTuple):
    """A mean over seeds and its standard error; NaN: not defined."""

    mean: float
    error: float


class Means(NamedTuple):
    """What several seeds say: the gain of a received module, and how well metrics rank them."""

    seeds: int
    pairs: int  # of all seeds
    gain: Mean
    rho: dict[str, Mean]
    within: dict[str, Mean]


def over_seeds(found: Sequence[Found]) -> Means:
    """The means of several seeds."""

    def mean(values: Sequence[float]) -> Mean:
        return Mean(float(np.mean(values)), float(error(np.array(values))))

    names = found[0].metrics
    rho = {name: mean([one.ranks[name].rho for one in found]) for name in names}
    within = {name: mean([one.ranks[name].within for one in found]) for name in names}
    return Means(len(found), sum(len(one.trials) for one in found), mean([one.gain for one in found]), rho, within)


def table(found: Found) -> pl.DataFrame:
    """A row per pair; accuracies in %, the gain in points; no score where a metric has none."""
    rows = [
        {"seed": found.seed, **trial.route._asdict()}
        | {name: score if isfinite(score) else None for name, score in trial.scores.items()}
        | {"received": 100 * trial.received, "fresh": 100 * trial.fresh, "gain": trial.gain}
        for trial in found.trials
    ]
    floats = dict.fromkeys([*found.metrics, "received", "fresh", "gain"], pl.Float64)
    return pl.DataFrame(rows, schema_overrides=floats)


def summary(found: Found) -> dict[str, Any]:
    """What `shoal transfer --json` says; None: not defined."""
    metrics = {
        metric: {name: value if isfinite(value) else None for name, value in one._asdict().items()}
        for metric, one in found.ranks.items()
    }
    receivers = len({trial.route[:2] for trial in found.trials})
    return {
        "seed": found.seed, "epochs": found.epochs, "pairs": len(found.trials), "receivers": receivers,
        "gain": found.gain, "metrics": metrics,
    }  # fmt: skip


def described(means: Means) -> dict[str, Any]:
    """What `shoal transfer --json` says of several seeds; None: not defined."""
    metrics = {name: {"rho": both(means.rho[name]), "within": both(means.within[name])} for name in means.rho}
    return {"seeds": means.seeds, "gain": both(means.gain), "metrics": metrics}


def mean_rows(means: Means) -> list[dict[str, Any]]:
    """A row for each metric, of several seeds; None: not defined."""

    def of(word: str, one: Mean) -> dict[str, float | None]:
        return dict(zip((word, f"{word}_se"), both(one), strict=True))

    head = {"seeds": means.seeds, "pairs": means.pairs}
    gain = of("gain", means.gain)
    return [
        {"metric": name, **head, **of("rho", rho), **of("within", means.within[name]), **gain}
        for name, rho in means.rho.items()
    ]


def both(one: Mean) -> list[float | None]:
    """A mean and its error; None: not defined."""
    return [value if isfinite(value) else None for value in one]
