"""Lies: what faulty agents send instead of what their mode says, as `faulty` in the settings has it.

A lie is told at the post, on the sender's side, so that every mode can be attacked; what the liar itself learns stays
honest. A lie sees one payload and what its receiver expects of it, and keeps its names, types and shapes; what there is
nothing to lie about in leaves as it is. Lies that adapt see the weights of honest agents, too, which no agent could:
they say what the worst liar can do. A new one is a function and a line in `BUILT_IN`.
"""

from collections.abc import Callable, Mapping
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal import doors
from shoal.letters.mail import Expected, Mail
from shoal.letters.table import Table
from shoal.models.contract import body_units
from shoal.rng import key
from shoal.settings.safety import Fault

if TYPE_CHECKING:
    from shoal.mail.post import Post

OWNER = "lies"  # of what liars remember
HIGH = 1e6  # a score, where scores have no highest
Payload = Mapping[str, Tensor]


class Truth(NamedTuple):
    """What an agent would send, and what a lie may use."""

    payload: Payload
    expected: Mapping[str, Expected]
    rng: np.random.Generator
    strength: float
    first: Payload  # the weights of the first model that it sent, as much of them as is in this mail
    honest: Payload  # of lies that adapt: the same weights of the receiver and of the honest agents that it hears
    liars: int  # that the receiver hears


class Lie(NamedTuple):
    """How an agent lies, and how strongly where nobody says it."""

    tell: Callable[[Truth], Payload]
    strength: float = 1.0
    adapts: bool = False  # to what honest agents have, and so to each receiver

    @property
    def about(self) -> str:
        return (self.tell.__doc__ or "").replace("\n", " ")


def weights(payload: Payload) -> dict[str, Tensor]:
    """The weights of models and modules in a payload."""
    return {
        name: tensor
        for name, tensor in payload.items()
        if tensor.is_floating_point() and tensor.ndim > 1 and name != "images"
    }


def sign_flip(truth: Truth) -> Payload:
    """Weights times -1"""
    return {name: -truth.strength * tensor for name, tensor in weights(truth.payload).items()}


def scaled(truth: Truth) -> Payload:
    """Weights times 5"""
    return {name: truth.strength * tensor for name, tensor in weights(truth.payload).items()}


def random(truth: Truth) -> Payload:
    """Normal noise as large as the weights, and images of noise"""
    return {
        name: drawn(truth, tensor, truth.expected[name])
        for name, tensor in truth.payload.items()
        if name == "images" or name in weights(truth.payload)
    }


def constant(truth: Truth) -> Payload:
    """The same number for all weights, or for all pixels: their mean"""
    told = weights(truth.payload) | {name: one for name, one in truth.payload.items() if name == "images"}
    return {
        name: torch.full_like(one, round(mean) if not one.is_floating_point() else mean)
        for name, one in told.items()
        if one.numel()
        for mean in [float(one.double().mean())]
    }


def stale(truth: Truth) -> Payload:
    """The weights of the first model that it sent, again and again"""
    return truth.first


def a_little(truth: Truth) -> Payload:
    """A little is enough: the mean of honest models, each weight 1.5 of their standard deviations lower"""
    return {name: one.mean(0) - truth.strength * one.std(0, correction=0) for name, one in truth.honest.items()}


def inner_product(truth: Truth) -> Payload:
    """The mean of honest models times -0.1, so that averages point the other way and none stands out by its length"""
    return {name: -truth.strength * one.mean(0) for name, one in truth.honest.items()}


def dissensus(truth: Truth) -> Payload:
    """The receiver's own model, pushed away from where honest neighbours pull it, 1.5 times as far"""
    return {
        name: one[0] - truth.strength / truth.liars * (one[1:] - one[0]).sum(0) for name, one in truth.honest.items()
    }


def label_flip(truth: Truth) -> Payload:
    """Images with the label of another class: the next one in the mail or, if it has one class, of all"""
    labels = truth.payload.get("labels")
    if labels is None or not len(labels) or "images" not in truth.payload:
        return {}
    known = labels.unique()
    below = truth.expected["labels"].below or int(known.max()) + 2
    if len(known) == 1:
        return {"labels": (labels + 1) % below}
    return {"labels": known[(torch.searchsorted(known, labels) + 1) % len(known)].to(labels.dtype)}


def poison(truth: Truth) -> Payload:
    """Noise for weights and images, with the highest score that there can be"""
    most = {name: truth.expected[name].most for name in truth.payload if name == "scores"}
    best = {name: torch.full_like(truth.payload[name], one if isfinite(one) else HIGH) for name, one in most.items()}
    return {**random(truth), **best}


def drawn(truth: Truth, tensor: Tensor, expected: Expected) -> Tensor:
    """Numbers of a tensor's shape and size, or whole ones that are expected, drawn anew."""
    shape = tuple(tensor.shape)
    if not tensor.is_floating_point():
        return torch.from_numpy(truth.rng.integers(0, expected.below or 2, shape)).to(tensor.dtype)
    size = float(tensor.double().square().mean().sqrt()) if tensor.numel() else 0.0
    return torch.from_numpy(truth.strength * size * truth.rng.standard_normal(shape)).to(tensor.dtype)


BUILT_IN: dict[str, Lie] = {
    "sign-flip": Lie(sign_flip),
    "scaled": Lie(scaled, 5.0),
    "random": Lie(random),
    "constant": Lie(constant),
    "stale": Lie(stale),
    "a-little": Lie(a_little, 1.5, adapts=True),
    "inner-product": Lie(inner_product, 0.1, adapts=True),
    "dissensus": Lie(dissensus, 1.5, adapts=True),
    "label-flip": Lie(label_flip),
    "poison": Lie(poison),
}
LIES: doors.Table[Lie] = doors.Table("lie", BUILT_IN, "shoal.lies", lambda entry: isinstance(entry, Lie))


def lied(post: "Post", table: Table, rows: np.ndarray) -> Table:
    """The same letters, with what liars among the senders of some of them say instead."""
    faults = post.world.fleet.faults
    if not faults:
        return table
    mails = {at: mail for at in rows.tolist() if (mail := table[at]).sender.agent in faults and post.known(mail.kind)}
    return table.holding({at: told(post, mail, faults[mail.sender.agent]) for at, mail in mails.items()})


def told(post: "Post", mail: Mail, fault: Fault) -> Payload:
    """What a liar sends instead of a mail."""
    lie = LIES.find(fault.does)

    def find() -> Payload:
        expected = post.look(mail.kind, mail.sender)
        if mail.payload.keys() != expected.keys():
            return mail.payload
        luck = key(*mail.sender, "lie", mail.mode, mail.kind, mail.task, mail.epoch)
        strength = lie.strength if fault.strength is None else fault.strength
        first = remembered(post, mail) if lie.tell is stale else {}
        honest, liars = heard(post, mail) if lie.adapts else ({}, 1)
        said = lie.tell(Truth(mail.payload, expected, luck, strength, first, honest, liars))
        return {**mail.payload, **{name: within(expected[name], one) for name, one in said.items()}}

    to = (mail.receiver,) if lie.adapts else ()
    return post.once(("lie", mail.kind, mail.sender, *to), mail.payload, find)


def heard(post: "Post", mail: Mail) -> tuple[Payload, int]:
    """The weights in a mail as the receiver has them, and after it each honest agent that it hears and whose net is
    alike; and how many liars it hears. The receiver counts as an honest one, so that there is a spread if it hears one.
    """
    world, body = post.world, post.world.model.body
    senders = [sender for sender, receiver in world.edges if receiver == mail.receiver]
    lying = [one for one in senders if one.agent in world.fleet.faults]
    rows = [world.row[one] for one in (mail.receiver, *senders) if one not in lying and one in world.row]
    if "modules" not in mail.payload:
        return {}, len(lying)
    at = mail.payload["modules"].long()
    names = [name for name in weights(mail.payload) if name in body and (at < body[name]).all()]
    return {name: post.stack.params[name][rows][:, at].cpu() for name in names}, len(lying)


def within(expected: Expected, tensor: Tensor) -> Tensor:
    """A lie that its receiver does not see at once."""
    return tensor.clamp(expected.least, expected.most) if tensor.is_floating_point() else tensor


def remembered(post: "Post", mail: Mail) -> Payload:
    """The first weights that a lane sent of the modules in a mail, which are remembered if they are the first."""
    if "modules" not in mail.payload:
        return {}
    at, row, state = mail.payload["modules"].long(), post.world.row[mail.sender], post.stack.of(OWNER)
    found = {}
    for name, tensor in weights(mail.payload).items():
        word = f"{mail.mode}.{name}"
        if word not in state:
            shape = len(post.stack.lanes), body_units(post.world.model)
            state[word] = tensor.new_zeros(*shape, *tensor.shape[1:])
            state[f"{word}.there"] = torch.zeros(shape, dtype=torch.bool)
        kept, there = state[word], state[f"{word}.there"]
        new = ~there[row, at]
        kept[row, at[new]] = tensor[new]
        there[row, at[new]] = True
        found[name] = kept[row, at].clone()
    return found
