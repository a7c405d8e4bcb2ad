"""Turns: where not all modules fit a link, with which the next letter goes on; and receipts, by which a sender knows
what has come."""

from collections.abc import Sequence

import torch

from shoal.models.contract import body_units
from shoal.sharing.mode import Draft, Present, Received


def turn_of(agent: Present, to: int) -> int:
    """With which module an agent goes on to a neighbour to which not all modules went: that after the last one that has
    left or, if receivers confirm what they accept, after the last one confirmed."""
    if to in agent.told:
        return after(agent, agent.told[to])
    kept = agent.kept
    return int(kept["turn"][agent.slot(to)]) if "turn" in kept else 0


def after(agent: Present, receipt: Received) -> int:
    return (int(receipt["last"]) + 1) % body_units(agent.model)


def remember_turns(agent: Present, letters: Sequence[Received], confirmed: bool) -> None:
    """Remember with which module every edge goes on and, if receipts are wanted, what is to be confirmed."""
    count, kept = body_units(agent.model), agent.kept
    if confirmed:
        turns = {other: after(agent, receipt) for other, receipt in agent.told.items()}
    else:
        sent = agent.sent("model").items()
        left = {other: one.tensors["modules"] for other, one in sent if "modules" in one.tensors}
        turns = {other: (int(some[-1]) + 1) % count for other, some in left.items() if 0 < len(some) < count}
    if turns:
        every = kept["turn"].clone() if "turn" in kept else torch.zeros(agent.slots, dtype=torch.int64)
        for other, turn in turns.items():
            every[agent.slot(other)] = turn
        agent.keep(turn=every)
    if confirmed:
        owed = kept["owed"].clone() if "owed" in kept else torch.zeros(agent.slots, dtype=torch.int64)
        for other in agent.sent("receipt"):
            owed[agent.slot(other)] = 0
        for letter in letters:
            owed[agent.slot(letter.sender)] = 1 + int(letter["modules"][-1])
        agent.keep(owed=owed)


def receipts_owed(agent: Present) -> dict[int, Draft]:
    """Receipts for what has come at earlier exchanges: the last module of each letter that was accepted."""
    owed = agent.kept.get("owed")
    if owed is None:
        return {}
    last = {other: int(owed[agent.slot(other)]) - 1 for other in agent.neighbours}
    return {other: {"last": torch.tensor([module])} for other, module in last.items() if module >= 0}
