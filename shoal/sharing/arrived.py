"""What agents make of the models that have arrived and their own: who combines which, by the rule (`combine`), weights
(`mixing`) and form (`compress`, `power`) of their mode."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.agents.world import World
from shoal.learners.step import Tensors
from shoal.letters.bundle import Bundle, Links
from shoal.letters.mail import Mail, by_receiver
from shoal.mail.post import Post
from shoal.models.contract import body_units
from shoal.sharing.codecs import POWER
from shoal.sharing.combine import RULES, Heard, averaged
from shoal.sharing.compress import COPIES, DIFFERENCE, as_sent, copied_gaps, opened
from shoal.sharing.federated import Federated
from shoal.sharing.mixing import METROPOLIS, PUSH_SUM, mixed, plain_gaps, pushed
from shoal.sharing.power import low_gaps
from shoal.sharing.turns import remember_turns


def combined(post: Post, receipts: Sequence[Mail], answers: Sequence[Mail]) -> tuple[Tensor, Tensors]:
    """What a mode's rule makes of one's own modules and those that have arrived, [R, units, ...], of the rows to which
    something has come.

    In double precision and in the order of agents: agents with the same neighbourhood get the same bits from rules that
    ask nothing else, and what comes of equal weights is these weights.
    """
    world, stack, count, mode = post.world, post.stack, body_units(post.world.model), post.mode
    names = tuple(world.model.body)
    assert isinstance(mode, Federated)
    if mode.way == COPIES:
        return mixed(post, copied_gaps(post, mode, receipts, answers), mode.step)
    if mode.way == POWER:
        return mixed(post, low_gaps(post, mode, answers), 1.0)
    remember_turns(post, receipts, answers, mode.receipts)
    if mode.way == DIFFERENCE:
        own = as_sent(post, mode) if answers else None
        return mixed(post, plain_gaps(post, opened(post, mode, answers), own), mode.step)
    if mode.weights == PUSH_SUM:
        return pushed(post, answers)
    if mode.weights == METROPOLIS:
        return mixed(post, plain_gaps(post, answers), mode.step)
    if isinstance(answers, Bundle):
        return combined_of(post, mode, answers)
    rows: list[int] = []
    found: dict[str, list[Tensor]] = {name: [] for name in names}
    for lane, mails in by_receiver(answers).items():
        row = world.row[lane]
        rows.append(row)
        own = {name: stack.params[name][row, :count].cpu() for name in names} | {"modules": torch.arange(count)}
        letters = sorted([(mail.sender, mail.payload) for mail in mails] + [(lane, own)], key=lambda one: one[0])
        here = torch.zeros(len(letters), count, dtype=torch.bool)
        tables = {name: own[name].new_zeros(len(letters), *own[name].shape) for name in names}
        for at, (_, payload) in enumerate(letters):
            which = payload["modules"].long()
            here[at, which] = True
            for name in names:
                tables[name][at, which] = payload[name]
        mine = [sender for sender, _ in letters].index(lane)
        whole = {name: own[name].clone() for name in names}
        for pattern in here.unique(dim=1).T:  # modules that came from the same agents are one model
            units, who = (here == pattern[:, None]).all(0), pattern.nonzero()[:, 0]
            if len(who) == 1:  # nobody has sent these
                continue
            parts = {name: tables[name][who][:, units] for name in names}
            for name, value in made_one(mode, parts, int((who == mine).nonzero())).items():
                whole[name][units] = value
        for name in names:
            found[name].append(whole[name])
    now = {name: stack.params[name][:0, :count] for name in names}
    stacked = {name: torch.stack(one).to(world.device) if one else now[name] for name, one in found.items()}
    return torch.tensor(rows, dtype=torch.int64), stacked


def made_one(mode: Federated, models: Tensors, own: int) -> Tensors:
    """What a mode's rule makes of models, tensors [n, ...] by name of which one is the agent's own: tensors [...]."""
    flat = torch.cat([tensor.flatten(1) for tensor in models.values()], 1).double().numpy()
    heard = Heard(flat, own, mode.tolerates, None if mode.radius == "adaptive" else mode.radius)
    one = torch.from_numpy(RULES.find(mode.combine).combine(heard)).float()
    parts = one.split([tensor[0].numel() for tensor in models.values()])
    return {name: part.view(tensor.shape[1:]) for part, (name, tensor) in zip(parts, models.items(), strict=True)}


def combined_of(post: Post, mode: Federated, bundle: Bundle) -> tuple[Tensor, Tensors]:
    """`combined` of whole models, in the same order of sums. Agents with the same neighbourhood, themselves among it,
    have one sum."""
    world, count = post.world, body_units(post.world.model)
    theirs = {name: [one[name].unflatten(0, (-1, count)) for one in bundle.contents] for name in world.model.body}
    own = {name: post.stack.params[name][:, :count] for name in theirs}
    lanes, sent = len(world.lanes), sum(map(len, next(iter(theirs.values()))))
    # Who has sent its weights as they are is the same in its own mean as in those of others.
    same = torch.full((lanes,), sent == lanes)
    if sent == lanes:
        for name in theirs:
            same &= (bundle.content[name].unflatten(0, (-1, count)) == own[name]).flatten(1).all(1)
    mine = np.where(same.numpy(), 0, sent) + np.arange(lanes)
    tables = {name: held if bool(same.all()) else [*held, own[name]] for name, held in theirs.items()}
    rule = RULES.find(mode.combine)
    senders = bundle.first // count
    what = rule.common, senders.tobytes(), mine.tobytes(), world.rows.tobytes()
    who = bundle.links.once(what, lambda: circles(world, bundle.links, senders, mine, rule.common))
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
