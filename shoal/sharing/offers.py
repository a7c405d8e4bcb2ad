"""Offers: modules of neighbours, and how they become candidates."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from torch import Tensor

from shoal.fleet.stack import Stack
from shoal.fleet.world import World
from shoal.mail.mail import Mail
from shoal.models import Modular


class Offer(NamedTuple):
    """A module that a neighbour offers for the coming task."""

    score: float
    source: int  # the sender's task that it was grown for
    sender: int
    parts: Mapping[str, Tensor]

    @property
    def order(self) -> tuple[float, int, int, int]:
        """The best first; of equals one that comes with more, then that of the earlier task, then of the agent with the
        lower number."""
        return -self.score, -len(self.parts), self.source, self.sender


def sorted_offers(mails: Sequence[Mail]) -> list[Offer]:
    """All modules in some mails, the best first."""
    offers = [
        Offer(float(mail.payload["scores"][at]), int(mail.payload["sources"][at]), mail.sender.agent, parts)
        for mail in mails
        for at in range(len(mail.payload["sources"]))
        for parts in [{name: tensor[at] for name, tensor in mail.payload.items()}]
    ]
    return sorted(offers, key=lambda one: one.order)


def settle(world: World, stack: Stack, row: int, offers: Sequence[Offer], frozen: bool = False) -> None:
    """Make offered modules a lane's candidates, frozen or not; head and structure are those of the first."""
    task, model = stack.task, modular(world)
    slot = model.slot(task)
    for place, offer in enumerate(offers):
        for name in ("module.weight", "module.bias"):
            stack.params[name][row, slot + place] = offer.parts[name].to(world.device)
        stack.alive[row, slot + place] = True
        stack.frozen[row, slot + place] = frozen
    first = offers[0].parts
    if "head.weight" in first:
        theirs = first["classes"].tolist()
        for name in ("head.weight", "head.bias"):
            own = stack.params[name][row, task]
            own.zero_()
            for local, one in enumerate(world.streams[world.row[stack.lanes[row]]][task].classes):
                if one in theirs:
                    own[local] = first[name][theirs.index(one)].to(world.device)
    if "structure" in first:
        # The lane's own added modules count as little as a logit of 0; its own basis as the sender's.
        own = stack.params["structure"][row, task]
        own[:slot] = 0
        own[: model.basis] = first["structure"][:-1].to(world.device)
        own[slot] = first["structure"][-1].to(world.device)


def modular(world: World) -> Modular:
    assert isinstance(world.model, Modular)
    return world.model
