"""The laws of models."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shoal.agents.stack import PARAMS, Stack
from shoal.agents.world import World
from shoal.agents.worlds import world
from shoal.contracts.fleets import (
    Run,
    bank_of,
    engines_agree,
    learns_of_others,
    listed,
    net_of,
    ran,
    settings_of,
)
from shoal.contracts.law import Law, finishes, law, laws_of
from shoal.data import Bank
from shoal.fleet.run import simulate
from shoal.models.table import MODELS


@contextmanager
def laws(model: Any, bank: Bank | None = None) -> Iterator[list[Law]]:
    """The laws of a model."""
    with listed(MODELS, model) as name, finishes(f"`{name}`"):
        yield laws_of(LAWS, Case(name, bank or bank_of(name)))


@dataclass
class Case:
    """A model under test."""

    name: str
    bank: Bank

    @property
    def what(self) -> str:
        return f"`{self.name}`"

    @property
    def raw(self) -> dict[str, Any]:
        return {"agents": 2, "net": {"dropout": 0.2}}

    def small(self, **changes: Any) -> World:
        return world(settings_of(self.name, **self.raw, **changes), self.bank)

    @cached_property
    def run(self) -> Run:
        """A small fleet, at its end."""
        return ran(self.small())


def it_draws_what_it_says(case: Case) -> None:
    """Units first, heads by task, the body among the parameters; the same from the same generator."""
    made = case.small()
    model, tasks = made.model, made.settings.tasks
    one, two, other = (model.start(np.random.default_rng(seed)) for seed in (1, 1, 2))
    law(one.keys() == two.keys(), f"{case.what}: every agent has the same parameters")
    law(
        all(torch.equal(one[name], two[name]) for name in one),
        f"{case.what}: the same generator draws the same weights (draw from it alone)",
    )
    law(any(not torch.equal(one[name], other[name]) for name in one), f"{case.what}: another one draws others")
    count = sum(tensor.numel() for tensor in one.values())
    law(model.numbers == count, f"{case.what}: parameters are {count} numbers, it says {model.numbers}")
    for name, units in model.body.items():
        law(name in one, f"{case.what}: `{name}` is of the body, but no parameter")
        law(0 < units <= len(one[name]), f"{case.what}: `{name}` has {len(one[name])} units, and {units} of the body")
    for name in model.heads:
        law(name in one and len(one[name]) == tasks.count, f"{case.what}: `{name}` has a head for every task")
        law(name not in model.body, f"{case.what}: heads are every agent's own, but `{name}` is of the body")
    law(set(model.pieced) <= one.keys(), f"{case.what}: what is taken in pieces is a parameter")


def heads_read_features_and_say_logits(case: Case) -> None:
    """For one task or each image's own; also of a net that is cut down."""
    for task in range(case.run.world.settings.tasks.count):
        reads_images(case, case.run.world, case.run.stack, task)


@torch.no_grad()
def reads_images(case: Case, made: World, stack: Stack, task: int) -> None:
    """What the head reads, and what it says, for one task or each image's own; also of a net that is cut down."""
    model, classes = made.model, made.settings.tasks.classes
    for row in range(len(stack.lanes)):
        params, usage = net_of(made, stack, row, made.settings.tasks.count - 1)
        x = made.inputs[made.test.rows[row, task, :5]]
        features, logits = model.features(params, x, task, **usage), model.logits(params, x, task, **usage)
        want = (len(x), model.read), (len(x), classes)
        found = tuple(features.shape), tuple(logits.shape)
        law(found == want, f"{case.what}: features and logits have shapes {found} where {want} are needed")
        law(bool(logits.isfinite().all()), f"{case.what}: logits are finite")
        each = model.logits(params, x, torch.full((len(x),), task), **usage)
        agree(case, logits, each, "images of one task have the logits that each has as its own task's")
        agree(case, logits, model.logits(params, x[:1], task, **usage).expand_as(logits)[:1], "an image is read alone")
        for how, cut in (("trimmed", model.trimmed), ("composed", model.composed)):
            less, used = cut(params, usage, task)
            agree(case, logits, model.logits(less, x, task, **used), f"a {how} net says what the whole net says")


def agree(case: Case, one: Tensor, other: Tensor, sentence: str) -> None:
    count = len(other)
    law(torch.allclose(one[:count], other, rtol=1e-4, atol=1e-5), f"{case.what}: {sentence}")


def loop_and_vmap_agree(case: Case) -> None:
    """Or it says why not."""
    engines_agree(case.what, case.run, case.name, (PARAMS,), case.bank, **case.raw)


def it_learns_alone_and_with_others(case: Case) -> None:
    """Alone, from others' images, and with others' weights."""
    more: dict[str, Any] = {"tasks": {"train": 20, "count": 2}, "learner": {"epochs": 30, "rate": 5e-3}}
    accuracy = float(simulate(case.small(**more)).accuracy[:, -1, -1].mean())
    law(accuracy > 0.4, f"{case.what}: a net learns, but has {accuracy:.0%} of four classes after 30 epochs")
    learns_of_others(case.what, case.small, case.run.stack)


LAWS: tuple[Callable[[Case], None], ...] = (
    it_draws_what_it_says,
    heads_read_features_and_say_logits,
    loop_and_vmap_agree,
    it_learns_alone_and_with_others,
)
