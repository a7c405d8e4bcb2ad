"""Sharing: a mode is three verbs, `ask`, `answer` and `absorb`; the table MODES, and `exchange`, which lets them act.

A new mode is a file with a settings class that has these verbs, and a line in MODES; the contract tests find it there.
"""

from collections.abc import Mapping

from shoal.config import Settings, Sharing
from shoal.mail import Expected
from shoal.sharing.federated import FedAvg, FedCurv, FedFish, FedProx
from shoal.sharing.post import Post
from shoal.sharing.quote import Quote
from shoal.sharing.recv import Recv
from shoal.sharing.simp import Simp
from shoal.sharing.uniform import Uniform
from shoal.stack import Stack
from shoal.world import World

__all__ = ["MODES", "Quote", "due", "exchange"]

MODES: dict[str, type[Sharing]] = {
    "recv": Recv,
    "simp": Simp,
    "uniform": Uniform,
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "fedcurv": FedCurv,
    "fedfish": FedFish,
}


def exchange(world: World, stack: Stack, ended: bool = False) -> None:
    """Let every mode act that is due at the stack's clock, one after the other, each for all lanes at once."""
    for mode in due(world.settings, stack.task, stack.epoch, ended):
        post = Post(world, stack, mode)
        act(mode, post)
        post.audit()


def act(mode: Sharing, post: Post) -> None:
    """One exchange of one mode: everybody sees the state in which it began."""

    def expects(kind: str) -> Mapping[str, Expected]:
        return mode.expects(post.world, kind)

    asked = post.carry(mode.ask(post), expects)
    mode.absorb(post, asked, post.carry(mode.answer(post, asked), expects))


def due(settings: Settings, task: int, epoch: int, ended: bool = False) -> list[Sharing]:
    """The modes that act when `epoch` epochs of a task are done: those `after` them, then those `before` the next.

    Training is cut at every multiple of any mode's period, and at the end. A mode `before` acts ahead of the chunks
    that end at a multiple of its own period (protocol 6). `ended` leaves out what belongs to the next task.
    """
    initial, epochs = settings.tasks.initial, settings.learner.epochs
    modes = [one for one in settings.sharing if task >= (initial if one.start == "initial" else one.start)]
    after = [one for one in modes if one.when == "after" and epoch and epoch % one.every == 0]
    ends = [min(epochs, (epoch // one.every + 1) * one.every) for one in modes]
    if ended or epoch >= epochs or not ends:
        return after
    starts = epoch == 0 or any(epoch % one.every == 0 for one in modes)
    end = min(ends)
    return after + [one for one in modes if one.when == "before" and starts and end % one.every == 0]
