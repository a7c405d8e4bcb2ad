"""What an agent makes of the models that have arrived and its own, by the rule (`combine`), weights (`mixing`) and form
(`compress`, `copies`, `power`) of its mode."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from shoal.learners.step import Tensors
from shoal.models.contract import body_units
from shoal.sharing.codecs import POWER
from shoal.sharing.combine import RULES, Heard
from shoal.sharing.compress import COPIES, DIFFERENCE, as_sent, opened
from shoal.sharing.copies import copied_gaps
from shoal.sharing.mixing import METROPOLIS, PUSH_SUM, gap_to, mixed, pushed
from shoal.sharing.mode import Present, Received
from shoal.sharing.power import low_gaps
from shoal.sharing.turns import remember_turns

if TYPE_CHECKING:
    from shoal.sharing.federated import Federated


def combined(mode: "Federated", agent: Present, letters: Sequence[Received], own: Tensors) -> Tensors:
    """What a mode makes of an agent's own modules, [units, ...] by name, and those that have arrived; nothing, if none
    have. What it keeps of its neighbours is written down also then."""
    if mode.way == COPIES:
        return mixed(agent, own, copied_gaps(mode, agent, letters), mode.step)
    if mode.way == POWER:
        return mixed(agent, own, low_gaps(mode, agent, letters), 1.0)
    remember_turns(agent, letters, mode.receipts)
    if mode.weights == PUSH_SUM:
        return pushed(agent, own, letters)
    if mode.way == DIFFERENCE:
        said = as_sent(mode, agent, own) if letters else own
        gaps = [gap_to(letter, opened(mode, agent, letter), said) for letter in letters]
        return mixed(agent, own, gaps, mode.step)
    if mode.weights == METROPOLIS:
        return mixed(agent, own, [gap_to(letter, letter.tensors, own) for letter in letters], mode.step)
    return by_rule(mode, agent, letters, own) if letters else {}


def by_rule(mode: "Federated", agent: Present, letters: Sequence[Received], own: Tensors) -> Tensors:
    """What a mode's rule makes of modules.

    In double precision and in the order of agents: agents with the same neighbourhood get the same bits from rules that
    ask nothing else, and what comes of equal weights is these weights.
    """
    count = body_units(agent.model)
    mine = {name: tensor.cpu() for name, tensor in own.items()} | {"modules": torch.arange(count)}
    every = sorted([(one.sender, one.tensors) for one in letters] + [(agent.number, mine)], key=lambda one: one[0])
    here = torch.zeros(len(every), count, dtype=torch.bool)
    tables = {name: mine[name].new_zeros(len(every), *mine[name].shape) for name in own}
    for at, (_, tensors) in enumerate(every):
        which = tensors["modules"].long()
        here[at, which] = True
        for name in own:
            tables[name][at, which] = tensors[name]
    place = [sender for sender, _ in every].index(agent.number)
    found = {name: mine[name].clone() for name in own}
    for pattern in here.unique(dim=1).T:  # modules that came from the same agents are one model
        units, who = (here == pattern[:, None]).all(0), pattern.nonzero()[:, 0]
        if len(who) > 1:  # somebody has sent these
            parts = {name: table[who][:, units] for name, table in tables.items()}
            for name, value in made_one(mode, parts, int((who == place).nonzero())).items():
                found[name][units] = value
    return {name: tensor.to(agent.device) for name, tensor in found.items()}


def made_one(mode: "Federated", models: Tensors, own: int) -> Tensors:
    """What a mode's rule makes of models, tensors [n, ...] by name of which one is the agent's own: tensors [...]."""
    flat = torch.cat([tensor.flatten(1) for tensor in models.values()], 1).double().numpy()
    heard = Heard(flat, own, mode.tolerates, None if mode.radius == "adaptive" else mode.radius)
    one = torch.from_numpy(RULES.find(mode.combine).combine(heard)).float()
    parts = one.split([tensor[0].numel() for tensor in models.values()])
    return {name: part.view(tensor.shape[1:]) for part, (name, tensor) in zip(parts, models.items(), strict=True)}
