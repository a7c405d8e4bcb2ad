"""Small fleets on the digits, or on made-up images, and how two ends of them are compared."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from shoal import data
from shoal.agents import received
from shoal.agents.engine import parted
from shoal.agents.stack import MODEL, PARAMS, RECORD, Stack, start
from shoal.agents.world import World
from shoal.agents.worlds import world
from shoal.contracts.law import law
from shoal.data import Bank
from shoal.data.tasks import Lane
from shoal.doors import Table
from shoal.errors import SettingsError, UserError
from shoal.fleet.run import simulate
from shoal.learners.table import LEARNERS
from shoal.letters.mail import ACCEPTED, Mail
from shoal.models.contract import Usage
from shoal.models.table import MODELS
from shoal.runs.examined import difference as difference
from shoal.runs.record import Record
from shoal.settings.groups import Settings

T = TypeVar("T")

# With four of ten classes in a task, agents have classes in common.
TASKS: dict[str, Any] = {"count": 3, "classes": 4, "initial": 1, "train": 6, "validation": 4, "common": False}
# Heads begin at random: behind a head of zeros first gradients vanish, and Adam makes whole steps of how they round.
NET: dict[str, Any] = {"width": 8, "depth": 3, "head": "random"}
LEARNER: dict[str, Any] = {"epochs": 4, "batch": 16, "memory": 4, "rate": 3e-3}
# What others send: images, which are learned from, and weights, which are replaced.
SHARED: tuple[dict[str, Any], ...] = ({"mode": "recv", "every": 2}, {"mode": "fedavg", "every": 2})
# Up to rounding: a gradient that is nothing but rounding becomes a step of full size in Adam, so a few may differ.
ROUNDING, FEW = 1e-5, 0.002


@cache
def colours() -> Bank:
    """Made-up images [N, 3, 16, 16] of 10 classes: a pattern of the class under noise."""
    rng = np.random.default_rng(0)
    patterns = rng.integers(0, 256, (10, 3, 16, 16))
    labels = np.tile(np.arange(10), 60)
    noisy = 0.5 * patterns[labels] + rng.integers(0, 128, (len(labels), 3, 16, 16))
    return Bank(
        name="colours",
        images=noisy.clip(0, 255).astype(np.uint8),
        labels=labels,
        source=np.zeros(len(labels), np.int64),
        test=np.arange(len(labels)) % 3 == 2,
        peak=255,
        classes=tuple(f"colours/{at}" for at in range(10)),
        sources=("colours",),
    )


def settings_of(model: str, **changes: Any) -> Settings:
    """A small fleet's settings; `changes` replace single settings, or some of a group."""
    method = changes.get("learner", {}).get("method", MODELS.find(model).learner)
    raw: dict[str, Any] = {
        "model": model,
        "tasks": TASKS,
        "net": NET,
        "learner": {"method": method, **LEARNER, **LEARNERS.find(method).example},
    }
    for name, value in changes.items():
        raw[name] = {**raw.get(name, {}), **value} if isinstance(value, dict) else value
    return Settings(**raw)


def bank_of(model: str) -> Bank:
    """The digits, if a model can read them, or else made-up colour images."""
    digits, made_up = data.load("digits"), colours()
    first = reads(model, digits)
    if first is None or reads(model, made_up) is not None:
        if isinstance(first, UserError):
            raise first
        return digits
    return made_up


def reads(model: str, bank: Bank) -> Exception | None:
    """Why a model cannot read a bank; None: it can."""
    try:
        made = world(settings_of(model), bank, [Lane(0, 0)])
        params, usage = net_of(made, start(made), 0, 0)
        made.model.logits(params, made.inputs[:2], 0, **usage)
    except (RuntimeError, ValueError, IndexError) as error:  # a net can complain in any of these ways
        return error
    return None


def net_of(made: World, stack: Stack, row: int, task: int) -> tuple[dict[str, Tensor], Usage]:
    """One agent's parameters, and how its net is used by the time of a task."""
    params = {name: tensor[row] for name, tensor in stack.params.items()}
    usage = parted(made.model.usage(stack.of(MODEL), task), [1] * len(stack.lanes), single=True)
    return params, usage[row]


def fleet(model: str, lanes: Sequence[Lane] | None = None, **changes: Any) -> World:
    """A small fleet of one kind."""
    return world(settings_of(model, **changes), bank_of(model), lanes)


@contextmanager
def listed(table: Table[T], entry: Any) -> Iterator[str]:
    """The name of an entry; one that is in no table is in this one for as long as it is checked."""
    if isinstance(entry, str):
        table.find(entry)
        yield entry
        return
    name = getattr(entry, "__name__", "")
    name = name if name.isidentifier() and name not in table else "checked"
    table.add(name, entry)
    try:
        yield name
    finally:
        table.remove(name)


@dataclass
class Run:
    """A run with all that was posted, and its stack after every epoch and task."""

    world: World
    stack: Stack
    posted: list[tuple[Mail, str]]
    states: list[Stack]

    def rows(self, lanes: Sequence[Lane]) -> Stack:
        """Some lanes at the end."""
        return self.stack.take([self.world.row[lane] for lane in lanes], lanes)


def ran(world: World, stack: Stack | None = None) -> Run:
    """A run to its end."""
    posted: list[tuple[Mail, str]] = []
    states: list[Stack] = []
    end = simulate(
        world, stack, lambda now: states.append(deepcopy(now)), lambda mail, verdict: posted.append((mail, verdict))
    )
    return Run(world, end, posted, states)


class StoppedError(Exception):
    """A run that is broken off on purpose."""


def next_of(world: World, stack: Stack) -> Stack:
    """A copy of a stack, trained to the next moment at which a run can be watched."""
    copy = deepcopy(stack)

    def stop(stack: Stack) -> None:
        raise StoppedError

    try:
        simulate(world, copy, watch=stop)
    except StoppedError:
        return copy
    raise AssertionError("a run that is not at its end comes to another moment")


def saved(fleet: Sequence[World], stacks: Sequence[Stack]) -> tuple[Stack, ...]:
    """Stacks of a fleet as they come back from a checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        record = Record(Path(folder), fleet[0].fleet)
        record.save(stacks)
        found = record.load(fleet)
    law(found is not None, "what was saved as a checkpoint can be loaded")
    return found or ()


def shared_only(owners: Sequence[str]) -> Callable[[str], bool]:
    """The names of what an agent has only because modes are listed: their own state, and room for what may come."""
    room = [f"{received.OWNER}/{name}" for name in ("x", "y", "marks")]
    return lambda name: name in room or name.partition("/")[0] in owners


def learns_of_others(what: str, small: Callable[..., World], alone: Stack) -> None:
    """Something learns from others' images, and with others' weights, in fleets of which one has learned alone."""
    for mode in SHARED:
        try:
            world = small(sharing=[mode])
        except SettingsError:  # a mode, a learner or a model may say that it is not for the others
            continue
        stack = simulate(world)
        accepted = int(stack.ledger.among("verdict", [ACCEPTED]).sum())
        law(accepted > 0, f"{what}: no mail of `{mode['mode']}` was accepted, so there is nothing to test")
        name = difference(stack, alone, lambda name: not name.startswith(f"{PARAMS}/"))
        law(bool(name), f"{what}: agents learn from what they receive by `{mode['mode']}`")


def engines_agree(
    what: str, run: Run, model: str, owners: Sequence[str], bank: Bank | None = None, **changes: Any
) -> None:
    """From one moment to the next, because over many steps rounding grows where a net has a kink or a choice is close.

    A model that one of the engines cannot map says so when it is made.
    """
    other = {"loop": "vmap", "vmap": "loop"}[run.world.engine]
    try:
        own = bank or bank_of(model)
        made = world(settings_of(model, **changes, machine={"engine": other}), own, run.world.lanes)
    except SettingsError:
        return
    for before, want in zip(run.states, run.states[1:], strict=False):
        found = next_of(made, before)
        where = f"{what}: from task {before.task}, epoch {before.epoch}, `loop` and `vmap` do not agree"
        law((found.task, found.epoch) == (want.task, want.epoch), f"{where} in the clock")
        law(np.array_equal(found.ledger.rows, want.ledger.rows), f"{where} in what was sent")
        gaps = [torch.zeros(0)]
        for name, tensor in found.tensors.items():
            owner, there = name.partition("/")[0], want.tensors[name]
            if not tensor.is_floating_point():
                law(torch.equal(tensor, there), f"{where} in `{name}`")
            elif owner == RECORD:
                gap = (tensor - there).nan_to_num().abs()
                law(bool((gap <= 0.03).all()), f"{where} in `{name}`")
            elif owner in owners:
                gaps.append((tensor - there).nan_to_num().float().abs().flatten())
        gap = torch.cat(gaps)
        law(not len(gap) or float((gap > ROUNDING).float().mean()) < FEW, f"{where} in {', '.join(owners)}")
