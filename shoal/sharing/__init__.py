"""Sharing: a mode is three verbs, `ask`, `answer` and `absorb`; the table MODES, and `meet`, which lets them act.

A new mode is a file with a settings class that has these verbs, and a line in MODES; the contract tests find it there.
"""

from collections.abc import Sequence

from shoal.mode import Sharing
from shoal.sharing.clock import due
from shoal.sharing.federated import FedAvg, FedCurv, FedFish, FedProx
from shoal.sharing.modmod import ModMod
from shoal.sharing.post import Post, carry
from shoal.sharing.quote import Quote
from shoal.sharing.recv import Recv
from shoal.sharing.simp import Simp
from shoal.sharing.uniform import Uniform
from shoal.stack import Stack
from shoal.world import World

__all__ = ["MODES", "Quote", "due", "meet"]

MODES: dict[str, type[Sharing]] = {
    "recv": Recv,
    "simp": Simp,
    "uniform": Uniform,
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "fedcurv": FedCurv,
    "fedfish": FedFish,
    "modmod": ModMod,
}


def meet(fleet: Sequence[tuple[World, Stack]], ended: bool = False) -> None:
    """Let every mode act that is due at the stacks' clock, one after the other, each for all lanes of all stacks at
    once. The stacks have one clock and one ledger."""
    world, stack = fleet[0]
    for mode in due(world.settings, stack.task, stack.epoch, ended):
        posts = [Post(*one, mode) for one in fleet]
        act(mode, posts)
        for post in posts:
            post.audit()


def act(mode: Sharing, posts: Sequence[Post]) -> None:
    """One exchange of one mode: everybody sees the state in which it began, because nobody absorbs before all have
    answered."""
    questions = carry(posts, [mail for post in posts for mail in mode.ask(post)])
    asked = {(mail.sender, mail.receiver): mail for box in questions for mail in box}
    for post in posts:
        post.asked = asked
    both = list(zip(posts, questions, strict=True))
    answers = carry(posts, [mail for post, mine in both for mail in mode.answer(post, mine)])
    for (post, mine), arrived in zip(both, answers, strict=True):
        mode.absorb(post, mine, arrived)
