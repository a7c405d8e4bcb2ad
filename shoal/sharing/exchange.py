"""Exchanges: every mode that is due acts for all lanes of all stacks at once."""

from collections.abc import Sequence

from shoal.fleet.stack import Stack
from shoal.fleet.world import World
from shoal.mail.post import Post, carry
from shoal.sharing.clock import due
from shoal.sharing.contract import Sharing


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
