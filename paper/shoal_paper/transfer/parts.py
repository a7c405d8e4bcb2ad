"""Which part of what is received helps? Every route learned again with each part of an offer, and each choice of parts.

An offer has three parts: the module's weights, the structure (how much each module counts at each depth) and the head.
What is not taken from the offer is fresh, as it would be without it.

A received head is zero for classes that the sender does not have, a fresh one is random. So there is a control in which
nothing is received and the head begins at zero: without a class in common it is the same as the head alone.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import nan
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from torch import Tensor

from shoal.agents.engine import kept_memory
from shoal.agents.evaluate import accuracy
from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.fleet.run import one_thread
from shoal.learners.candidates import Offer, adopt, modular, plant, rehearse, settle
from shoal.letters.mail import wire
from shoal.models.modular import STRUCTURE
from shoal.runs.metrics import error, mean
from shoal_paper.transfer.measure import ROWS, NoModulesError, Route, before, offered, opened, some_routes

PARTS = ("module", "structure", "head")
CHOICES = tuple(chosen for count in range(1, 4) for chosen in combinations(PARTS, count))
CONTROL = ("zero head",)
Choice = tuple[str, ...]


class Size(NamedTuple):
    """What a mail has: numbers, and bytes on the wire."""

    floats: int
    bytes: int


class Gain(NamedTuple):
    """What some parts of an offer brought on a route: validation accuracies with them, and with nothing received."""

    route: Route
    common: bool  # have both tasks a class in common?
    chosen: Choice
    received: float
    fresh: float

    @property
    def points(self) -> float:
        return 100 * (self.received - self.fresh)


@dataclass(frozen=True)
class Parts:
    """All that was measured in one seed of a run."""

    seed: int
    epochs: int
    gains: tuple[Gain, ...]
    sizes: Mapping[Choice, Size]  # of a mail with these parts of one module

    def count(self, common: bool | None) -> int:
        """How many routes there are: all, or those with or without a class in common."""
        return sum(one.chosen == PARTS and common in (None, one.common) for one in self.gains)

    def mean(self, chosen: Choice, common: bool | None = None) -> float:
        """Points of accuracy over a fresh start, the mean over routes: all, or those with or without a class in common.
        NaN: there are none."""
        found = [one.points for one in self.gains if one.chosen == chosen and common in (None, one.common)]
        return float(np.mean(found)) if found else nan


def measure(
    folder: Path,
    seed: int | None = None,
    epochs: int = 20,
    data: Path | None = None,
    tell: Callable[[int, int], None] = lambda done, total: None,
    most: int | None = None,
) -> Parts:
    """The gains of every choice of parts on every route of one seed of a finished run, or on at most so many."""
    world, stack = opened(folder, seed, data)
    routes = some_routes(folder, world, stack, most)
    if not world.settings.tasks.common:
        raise NoModulesError(
            f"the agents of {folder} have no common start, so that heads and structures of one mean nothing to "
            "another; give a run with tasks.common=true"
        )
    with kept_memory(), one_thread():
        found = tuple(learned_again(world, stack, routes, epochs, tell))
    offer = offered(world, stack, routes[0]).parts
    sizes = {chosen: size(taken(world, offer, chosen)) for chosen in CHOICES} | {CONTROL: Size(0, 0)}
    return Parts(world.lanes[0].seed, epochs, found, sizes)


def taken(world: World, offer: Mapping[str, Tensor], chosen: Choice) -> dict[str, Tensor]:
    """Some parts of an offer."""
    names = {
        "module": modular(world).block.names,
        "structure": (STRUCTURE,),
        "head": (*modular(world).heads, "classes"),
    }
    return {name: offer[name] for part in chosen for name in names[part]}


def size(parts: Mapping[str, Tensor]) -> Size:
    """What a mail with these parts of one module has."""
    shapes = tuple((name, one.dtype, (1, *one.shape)) for name, one in sorted(parts.items()))
    return Size(sum(one.numel() for one in parts.values()), wire(shapes))


def learned_again(
    world: World, stack: Stack, routes: Sequence[Route], epochs: int, tell: Callable[[int, int], None]
) -> Iterator[Gain]:
    """Every route's task, learned with every choice of parts of its offer, and with nothing received, once with a fresh
    head and once with a zero one."""
    receivers = list(dict.fromkeys((route.agent, route.task) for route in routes))
    total, done = len(routes) * len(CHOICES) + 2 * len(receivers), 0
    for task in sorted({task for _, task in receivers}):
        past = before(world, stack, task)
        here = [route for route in routes if route.task == task]
        trials: list[tuple[int, Route | None, Choice]] = [
            (agent, None, chosen) for agent, t in receivers if t == task for chosen in ((), CONTROL)
        ]
        trials += [(route.agent, route, chosen) for route in here for chosen in CHOICES]
        results: list[float] = []
        for first in range(0, len(trials), ROWS):
            some = trials[first : first + ROWS]
            results += learned(world, stack, past, some, epochs)
            done += len(some)
            tell(done, total)
        ended = list(zip(trials, results, strict=True))
        alone = {(agent, chosen): result for (agent, route, chosen), result in ended if route is None}
        for (agent, route, chosen), result in ended:
            if route is not None:
                yield Gain(route, shared(world, route), chosen, result, alone[agent, ()])
        for route in here:
            own = (alone[route.agent, chosen] for chosen in (CONTROL, ()))
            yield Gain(route, shared(world, route), CONTROL, *own)


def shared(world: World, route: Route) -> bool:
    """Have the two tasks of a route a class in common?"""
    mine, theirs = world.streams[route.agent][route.task], world.streams[route.sender][route.source]
    return bool(set(mine.classes) & set(theirs.classes))


def learned(
    world: World, stack: Stack, past: Stack, trials: Sequence[tuple[int, Route | None, Choice]], epochs: int
) -> list[float]:
    """The validation accuracies of a task after learning it in some rows, each with some parts of an offer."""
    rows = [row for row, _, _ in trials]
    there, copies = world.piece(rows), past.take(rows, [past.lanes[row] for row in rows])
    for at, (_, route, chosen) in enumerate(trials):
        parts = {} if route is None else taken(world, offered(world, stack, route).parts, chosen)
        if route is not None and "module" in chosen:
            settle(there, copies, at, [Offer(0.0, route.source, route.sender, parts)])
        else:
            plant(there, copies, at)
            adopt(there, copies, at, parts)
        if chosen == CONTROL:
            for name in modular(there).heads:
                copies.params[name][at, copies.task] = 0
    rehearse(there, copies, epochs)
    found: list[float] = accuracy(there, copies, "validation", [past.task])[:, 0].tolist()
    return found


def table(every: Sequence[Parts]) -> pl.DataFrame:
    """A row for each choice of parts, the control, and each group of routes: mean gain over the seeds that have such
    routes and what is lost against all three parts (`lost`), paired over seeds, with standard errors; and what such a
    mail weighs."""
    rows = []
    for chosen in (*CHOICES, CONTROL):
        for name, common in (("all", None), ("a class in common", True), ("none in common", False)):
            gains, whole = (np.array([one.mean(parts, common) for one in every]) for parts in (chosen, PARTS))
            seeds = int((~np.isnan(gains)).sum())
            rows.append(
                {
                    "parts": "+".join(chosen),
                    "routes": name,
                    "pairs": sum(one.count(common) for one in every),
                    "seeds": seeds,
                    "epochs": every[0].epochs,
                    "gain": float(mean(gains)),
                    "gain_se": float(error(gains)) if seeds > 1 else None,
                    "lost": float(mean(whole - gains)),
                    "lost_se": float(error(whole - gains)) if seeds > 1 else None,
                    **every[0].sizes[chosen]._asdict(),
                }
            )
    return pl.DataFrame(rows, infer_schema_length=None)
