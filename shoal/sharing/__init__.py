"""Sharing: a mode is three verbs, `ask`, `answer` and `absorb`; the table MODES, and `exchange`, which lets them act.

A new mode is a file with a settings class that has these verbs, and a line in MODES; the contract tests find it there.
"""

from shoal.config import Sharing
from shoal.mail import Mail, fault
from shoal.sharing.clock import due
from shoal.sharing.federated import FedAvg, FedCurv, FedFish, FedProx
from shoal.sharing.modmod import ModMod
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
    "modmod": ModMod,
}


def exchange(world: World, stack: Stack, ended: bool = False) -> None:
    """Let every mode act that is due at the stack's clock, one after the other, each for all lanes at once."""
    for mode in due(world.settings, stack.task, stack.epoch, ended):
        post = Post(world, stack, mode)
        act(mode, post)
        post.audit()


def act(mode: Sharing, post: Post) -> None:
    """One exchange of one mode: everybody sees the state in which it began."""

    def judge(mail: Mail) -> int:
        return fault(mail.payload, mode.expects(post.world, mail.kind)) or mode.objects(post, mail)

    asked = post.carry(mode.ask(post), judge)
    post.asked = {(mail.sender, mail.receiver): mail for mail in asked}
    mode.absorb(post, asked, post.carry(mode.answer(post, asked), judge))
