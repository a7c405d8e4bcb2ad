"""Averaging for all agents of a stack at once: what the definitions of its modes say, on arrays, where all send whole
models as they are."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.agents.world import World
from shoal.learners.fisher import fisher, snapshot
from shoal.learners.second import second_learned
from shoal.learners.step import Tensors
from shoal.letters.links import Links
from shoal.letters.mail import noted
from shoal.letters.table import Table
from shoal.mail.post import Post
from shoal.models.contract import body_units
from shoal.sharing.agent import ON
from shoal.sharing.body import LARGEST, fresh, largest, remember, sizes_of, write_all
from shoal.sharing.combine import RULES, averaged
from shoal.sharing.drafts import fitted
from shoal.sharing.fedavg import FedAvg
from shoal.sharing.fedcurv import FedCurv
from shoal.sharing.federated import Federated, made_one
from shoal.sharing.mode import Mode, agent_of
from shoal.sharing.personal import Ditto, second
from shoal.sharing.tracking import Tracking


def ask(mode: Mode, post: Post) -> Table | None:
    """Receipts, where they are wanted, are each agent's own."""
    return None


def answer(mode: Mode, post: Post, questions: Table) -> Table | None:
    """Everybody's modules, and what it sends of each beside, to all its neighbours."""
    assert isinstance(mode, Federated)
    world, stack, count = post.world, post.stack, body_units(post.world.model)
    items = np.full(len(post.links), count)
    if not post.batched or not world.edges or not mode.whole or mode.receipts:
        return None
    if (fitted(post, "model", post.links, items) < items).any():  # not all modules fit every link
        return None
    content = seconds(post) if isinstance(mode, Ditto) else snapshot(world, stack)
    if isinstance(mode, FedCurv):
        matters = fisher(world, stack, mode.fisher, mode.samples)
        content |= {f"{mode.beside}.{name}": tensor for name, tensor in matters.items()}
    if isinstance(mode, Tracking):
        tracked = [mode.tracked(agent_of(post, lane)) for lane in world.lanes]
        content |= {f"{mode.beside}.{name}": torch.stack([one[name] for one in tracked]) for name in tracked[0]}
    flat = {name: tensor.flatten(0, 1) for name, tensor in content.items()}
    flat["modules"] = torch.arange(count, dtype=torch.int32).repeat(len(world.lanes))
    return post.table("model", flat, post.rows(post.links.senders) * count, items)


def welcomes(mode: Mode, post: Post, table: Table) -> bool:
    """Are all models whole, and none of them far larger than those of its receivers?"""
    assert isinstance(mode, Federated)
    if not mode.whole or not whole_models(post, table):
        return False
    count = body_units(post.world.model)
    largest_module = sizes_of(table, tuple(post.world.model.body), count)[torch.from_numpy(table.start // count)]
    if bool((largest_module <= LARGEST * fresh(post.world.model)).all()):  # whatever the receivers' own are like
        return True
    rows = torch.from_numpy(post.rows(table.links.receivers))
    return bool((largest_module <= largest(post)[rows]).all())


def whole_models(post: Post, table: Table) -> bool:
    """Does a table hold nothing but whole models, all modules in their order?"""
    count = body_units(post.world.model)
    if not table.alike or table.kind[0] != "model":
        return False
    if (table.items != count).any() or (table.start % count).any():
        return False

    def find(modules: Tensor) -> bool:
        every = torch.arange(count, dtype=torch.int32).repeat(len(modules) // count)
        return torch.equal(modules, every)

    whole = (noted(one, ("whole", count), lambda one=one: find(one["modules"])) for one in table.contents)  # type: ignore[misc]
    return all(whole)


def absorb(mode: Mode, post: Post, questions: Table, answers: Table) -> bool:
    """The mean of every agent to which something has come. What becomes of it, if it is not just written, each agent
    does for itself."""
    assert isinstance(mode, Federated)
    if isinstance(mode, Ditto):
        return learns_apart(mode, post, questions, answers)
    if not mode.whole or not whole_models(post, answers):
        return False
    own = {name: post.stack.params[name][:, :units] for name, units in post.world.model.body.items()}
    rows, mean = combined_of(post, mode, answers, own)
    if type(mode) is FedAvg:
        write_all(post.stack, rows, mean)
        return True
    post.means = {row: {name: one[at] for name, one in mean.items()} for at, row in enumerate(rows.tolist())}
    return False


# Ditto: second nets, which learn together


def seconds(post: Post) -> Tensors:
    """The second nets of all lanes, [L, units, ...]."""
    found, state = snapshot(post.world, post.stack), post.stack.of(post.mode.owner)
    on = state[ON] > 0 if ON in state else None
    return {
        name: own if on is None else torch.where(on.view(-1, *[1] * (own.ndim - 1)), state[f"shared.{name}"], own)
        for name, own in found.items()
    }


def learns_apart(mode: Ditto, post: Post, questions: Table, answers: Table) -> bool:
    """`Ditto.absorb` of all lanes, of which second nets learn as one stack."""
    weights = seconds(post)
    if mode.whole and whole_models(post, answers):
        rows, mean = combined_of(post, mode, answers, weights)
    else:
        heard = {}
        for agent, letters in mode.at_end(post, questions, answers):
            if found := mode.combined(agent, letters, second(agent)):
                heard[agent._row] = found
        rows = torch.tensor(list(heard), dtype=torch.int64)
        mean = {name: torch.stack([one[name] for one in heard.values()]) for name in weights if heard}
    if len(rows):
        for name, value in mean.items():
            weights[name][rows] = value
        learned = second_learned(post.world, post.stack, weights, mode.every)
        for row in rows.tolist():
            agent = agent_of(post, post.world.lanes[row])
            remember(agent, shared={name: tensor[row] for name, tensor in learned.items()})
    return True


# What agents make of models


def combined_of(post: Post, mode: Federated, table: Table, own: Tensors) -> tuple[Tensor, Tensors]:
    """`by_rule` of all agents to which something has come, by their rows, and in the same order of sums. Agents with
    the same neighbourhood, themselves among it, have one sum."""
    world, count = post.world, body_units(post.world.model)
    theirs = {name: [one[name].unflatten(0, (-1, count)) for one in table.contents] for name in world.model.body}
    lanes, sent = len(world.lanes), sum(map(len, next(iter(theirs.values()))))
    # Who has sent its weights as they are is the same in its own mean as in those of others.
    same = torch.full((lanes,), sent == lanes)
    if sent == lanes:
        for name in theirs:
            same &= (table.content[name].unflatten(0, (-1, count)) == own[name]).flatten(1).all(1)
    mine = np.where(same.numpy(), 0, sent) + np.arange(lanes)
    tables = {name: held if bool(same.all()) else [*held, own[name]] for name, held in theirs.items()}
    rule = RULES.find(mode.combine)
    senders = table.start // count
    ends = table.links.codes.tobytes()
    what = rule.common, ends, senders.tobytes(), mine.tobytes(), world.rows.tobytes()
    who = world.links(mode).once(what, lambda: circles(world, table.links, senders, mine, rule.common))
    if rule is RULES["mean"]:
        found = {name: averaged(one, who.sets, who.sizes, world.compiled) for name, one in tables.items()}
    else:
        each = [
            made_one(mode, {name: torch.cat(table)[one[:size]] for name, table in tables.items()}, int(place))
            for one, size, place in zip(torch.from_numpy(who.sets), who.sizes.tolist(), who.places, strict=True)
        ]
        found = {name: torch.stack([one[name] for one in each]) for name in tables}
    at = torch.from_numpy(who.group)
    return torch.from_numpy(who.rows), {name: tensor[at] for name, tensor in found.items()}


class Circles(NamedTuple):
    """Which models agents combine; those with the same have one circle."""

    rows: np.ndarray  # int64 [R]: the receivers, by their rows here,
    group: np.ndarray  # int64 [R]: and the circle of each
    sets: np.ndarray  # int64 [C, n]: the models of each circle, padded, in the order of agents,
    sizes: np.ndarray  # int64 [C]: how many they are,
    places: np.ndarray  # int64 [C]: and which is the receiver's own, where that matters


def circles(world: World, links: Links, models: np.ndarray, mine: np.ndarray, common: bool) -> Circles:
    """Who combines what: the model that comes over each of some links, and the own one of each lane that is here, which
    matters to rules that are not `common`."""
    receivers = world.rows[links.receivers]
    rows = np.unique(receivers)
    agents = links.lanes[:, 1]
    who = np.concatenate([agents[links.senders], agents[world.spots[rows]]])
    from_, to = np.concatenate([models, mine[rows]]), np.concatenate([receivers, rows])
    order = np.lexsort([who, to])
    sizes = np.diff(np.searchsorted(to[order], rows), append=len(to))
    sets = np.full((len(rows), int(sizes.max())), -1)
    sets[np.arange(sets.shape[1]) < sizes[:, None]] = from_[order]
    places = np.zeros(len(rows), np.int64) if common else np.argmax(sets == mine[rows][:, None], 1)
    known: dict[bytes, int] = {}
    names = (one.tobytes() + at.tobytes() for one, at in zip(sets, places, strict=True))
    group = np.array([known.setdefault(name, len(known)) for name in names])
    _, alike = np.unique(group, return_index=True)
    return Circles(rows, group, sets[alike], sizes[alike], places[alike])
