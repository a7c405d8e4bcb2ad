"""Exchanges: every mode that is due acts for all lanes of all stacks at once."""

from collections.abc import Sequence

from shoal.fleet.stack import Stack
from shoal.fleet.world import World
from shoal.mail.mail import Mail
from shoal.mail.post import Observe, Post, deliver
from shoal.sharing.clock import due
from shoal.sharing.contract import Sharing


def meet(fleet: Sequence[tuple[World, Stack]], ended: bool = False, observe: Observe | None = None) -> None:
    """Let every mode act that is due at the stacks' clock, one after the other, each for all lanes of all stacks at
    once. The stacks have one clock and one ledger. `observe` is told of every mail and its verdict."""
    world, stack = fleet[0]
    for mode in due(world.settings, stack.task, stack.epoch, ended):
        posts = [Post(*one, mode) for one in fleet]
        act(mode, posts, observe)
        for post in posts:
            post.audit()


def act(mode: Sharing, posts: Sequence[Post], observe: Observe | None = None) -> None:
    """One exchange of one mode: everybody sees the state in which it began, because nobody absorbs before all have
    answered. What has been under way since an earlier exchange and is due now counts as if it came now."""
    deliver(posts, [ask(mode, post) for post in posts], observe)
    questions = [post.collect(asked=True) for post in posts]
    deliver(posts, [mode.answer(post, mine) for post, mine in zip(posts, questions, strict=True)], observe)
    for post, mine in zip(posts, questions, strict=True):
        mode.absorb(post, mine, post.collect(asked=False))


def ask(mode: Sharing, post: Post) -> list[Mail]:
    """The questions of a stack. Their kinds are known, because one that has been long under way must not be taken for
    an answer."""
    mails = mode.ask(post)
    for mail in mails:
        if mail.kind not in mode.asking:
            raise ValueError(f"mode `{mode.mode}` asks by mail of kind `{mail.kind}`; name that kind in its `asking`")
    return mails
