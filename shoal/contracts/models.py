"""The laws of models."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shoal.contracts.fleets import bank_of, difference, engines_agree, fleet, listed, net_of, ran
from shoal.contracts.law import finishes, law
from shoal.data import Bank
from shoal.fleet.run import simulate
from shoal.fleet.stack import PARAMS, Stack
from shoal.fleet.world import World, world
from shoal.mail.mail import ACCEPTED
from shoal.models.table import MODELS, Entry

SHARED: tuple[dict[str, Any], ...] = ({"mode": "recv", "every": 2}, {"mode": "fedavg", "every": 2})


def check(model: str | Entry, bank: Bank | None = None) -> None:
    """All laws, on images of a bank, or on what the model can read."""
    with listed(MODELS, model) as name, finishes(f"`{name}`"):
        case = Case(name, bank or bank_of(name))
        draws_what_it_says(case)
        run = ran(case.small())
        for task in range(run.world.settings.tasks.count):
            reads_images(case, run.world, run.stack, task)
        engines_agree(case.what, run, name, (PARAMS,), **case.raw)
        learns_and_shares(case, run.stack)


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
        made = fleet(self.name, **self.raw, **changes)
        return made if self.bank is made.bank else world(made.settings, self.bank)


def draws_what_it_says(case: Case) -> None:
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
    for name, units in model.body.items():
        law(name in one, f"{case.what}: `{name}` is of the body, but no parameter")
        law(0 < units <= len(one[name]), f"{case.what}: `{name}` has {len(one[name])} units, and {units} of the body")
    for name in model.heads:
        law(name in one and len(one[name]) == tasks.count, f"{case.what}: `{name}` has a head for every task")
        law(name not in model.body, f"{case.what}: heads are every agent's own, but `{name}` is of the body")
    law(set(model.pieced) <= one.keys(), f"{case.what}: what is taken in pieces is a parameter")


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


def learns_and_shares(case: Case, alone: Stack) -> None:
    """Alone, from others' images, and with others' weights."""
    more: dict[str, Any] = {"tasks": {"train": 20, "count": 2}, "learner": {"epochs": 30, "rate": 5e-3}}
    accuracy = float(simulate(case.small(**more)).accuracy[:, -1, -1].mean())
    law(accuracy > 0.4, f"{case.what}: a net learns, but has {accuracy:.0%} of four classes after 30 epochs")
    for mode in SHARED:
        stack = simulate(case.small(sharing=[mode]))
        accepted = int(stack.ledger.among("verdict", [ACCEPTED]).sum())
        law(accepted > 0, f"{case.what}: no mail of `{mode['mode']}` was accepted, so there is nothing to test")
        name = difference(stack, alone, lambda name: not name.startswith(f"{PARAMS}/"))
        law(bool(name), f"{case.what}: a net learns from what it receives by `{mode['mode']}`")
