"""Privacy: models leave an agent clipped and noised, and what that spends is counted, as the policy of its site says.

What an agent has sent of its model before is known to all who heard it, and so is what it began with, which depends on
no data of its own. A release is what was known, plus the change since, shortened to `clip`, plus Gaussian noise of
`noise` times `clip` on every weight:

    known <- known + u min(1, clip / |u|) + N(0, (noise clip)^2),   u = weights - known

It is what all neighbours get at an exchange. Whatever data the agent has, the change that is sent is no longer than
`clip`, so that any two sets of data differ by 2 clip at most: the noise is noise / 2 times that. All releases of an
agent compose (dp-accounting, Renyi differential privacy, adaptively). Noise comes from a named random path like all
else: who knows the seed of a run knows its noise.
"""

import sys
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from shoal.agents.released import OWNER
from shoal.data.tasks import Lane
from shoal.errors import SettingsError
from shoal.letters.mail import ACCEPTED, NOT_CLIPPED, SPENT, Mail, fault
from shoal.letters.table import Table, Words
from shoal.models.contract import body_shapes
from shoal.rng import key
from shoal.settings.policies import Policy

if TYPE_CHECKING:
    from shoal.agents.world import World
    from shoal.mail.post import Post
    from shoal.settings.groups import Settings
    from shoal.sharing.contract import Sharing

BESIDE = ("modules", "degree")  # what may stand beside weights, and says nothing of data


def unclipped(world: "World", mode: "Sharing", kind: str, sender: Lane) -> bool:
    """Does mail of a kind hold more of a model than plain weights, from a sender whose models are to be clipped?"""
    carried = mode.carries(kind)
    if sender.agent not in world.fleet.privacy or (carried is not None and "models" not in carried.what):
        return False
    if carried is None or carried.what != ("models",):
        return True
    shapes, looks = body_shapes(world.model), mode.expects(world, kind, sender)
    plain = (
        name in shapes and (one.dtype, one.shape[1:]) == (torch.float32, shapes[name]) for name, one in looks.items()
    )
    return not all(fine or name in BESIDE for fine, name in zip(plain, looks, strict=True))


def released(post: "Post", table: Table, rows: np.ndarray, why: Words) -> Table:
    """Letters of which some may leave: those as they may leave. Why one may not is written down."""
    policies, payloads = post.world.fleet.privacy, dict[int, Mapping[str, Tensor]]()
    for place, at in enumerate(rows.tolist()) if policies else ():
        mail = table[at]
        policy, carried = policies.get(mail.sender.agent), post.mode.carries(mail.kind)
        if why[place] or policy is None or (carried is not None and "models" not in carried.what):
            continue
        why[place], payloads[at] = clipped(post, mail, policy)
    return table.holding(payloads)


def clipped(post: "Post", mail: Mail, policy: Policy) -> tuple[str, Mapping[str, Tensor]]:
    """Why a mail with models may not leave, and what it holds when it does."""
    if not post.known(mail.kind) or unclipped(post.world, post.mode, mail.kind, mail.sender):
        return NOT_CLIPPED, mail.payload
    if fault(mail.payload, post.look(mail.kind, mail.sender)) != ACCEPTED:  # its receivers would not take it either
        return NOT_CLIPPED, mail.payload
    payload = post.once(("released", mail.kind, mail.sender), mail.payload, lambda: release(post, policy, mail))
    return (SPENT, mail.payload) if payload is None else ("", payload)


def release(post: "Post", policy: Policy, mail: Mail) -> dict[str, Tensor] | None:
    """The clipped and noised weights that all neighbours get; None: the account has no room for them."""
    state, row = post.stack.of(OWNER), post.world.row[mail.sender]
    before = int(state["releases"][row])
    if before >= affordable(policy):
        return None
    assert policy.clip is not None
    names = [name for name in post.world.model.body if name in mail.payload]
    at = mail.payload["modules"].long() if "modules" in mail.payload else slice(None)
    known = {name: state[f"known.{name}"][row] for name in names}
    change = torch.cat([(mail.payload[name].double() - known[name][at].double()).flatten() for name in names])
    change *= min(1.0, policy.clip / max(float(change.norm()), 1e-300))
    if policy.noise:
        luck = key(*mail.sender, "privacy", before).standard_normal(len(change))
        change += policy.noise * policy.clip * torch.from_numpy(luck)
    payload, first = dict(mail.payload), 0
    for name in names:
        part = change[first : first + mail.payload[name].numel()].view(mail.payload[name].shape)
        payload[name] = (known[name][at].double() + part).float()
        known[name][at] = payload[name]
        first += part.numel()
    state["releases"][row] += 1
    return payload


@cache
def epsilon(noise: float, delta: float, releases: int) -> float:
    """What so many releases have spent, at some delta."""
    if not releases:
        return 0.0
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    account = RdpAccountant()
    account.compose(dp_accounting.GaussianDpEvent(noise / 2), releases)
    return float(account.get_epsilon(delta))


@cache
def affordable(policy: Policy) -> int:
    """How many releases an account has room for."""
    if policy.epsilon is None:
        return sys.maxsize
    fits, over = 0, 1
    while epsilon(policy.noise, policy.delta, over) <= policy.epsilon:
        fits, over = over, 2 * over
    while over - fits > 1:
        middle = (fits + over) // 2
        if epsilon(policy.noise, policy.delta, middle) <= policy.epsilon:
            fits = middle
        else:
            over = middle
    return fits


def needs_account(settings: "Settings") -> None:
    """Raise where privacy cannot be counted, or not even one model could leave."""
    for policy in dict.fromkeys(settings.privacy.values()):
        if policy.noise and find_spec("dp_accounting") is None:
            raise SettingsError(
                "policy.noise needs the package dp-accounting, which counts epsilon; install it: pip install "
                "'shoal[privacy]', or leave out noise"
            )
        if not affordable(policy):
            one = epsilon(policy.noise, policy.delta, 1)
            raise SettingsError(
                f"policy.epsilon = {policy.epsilon:g} is spent before the first model leaves: with noise = "
                f"{policy.noise:g} one costs epsilon = {one:.3g} at delta = {policy.delta:g}; raise noise or epsilon"
            )
