"""The audit: after an exchange, no edge has carried more than its limit allows, whatever its filters have let pass."""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from shoal.mail.post import Post


def audit(post: "Post") -> None:
    """The constraint of the paper's equation 1, size(K_ji) <= b_ji f_ji C, for every edge, with 1 / `every` as the
    frequency: an edge can have been used once at the start and once for each of its periods that have passed. Of a
    budget per task, a task is the period."""
    links, roads = post.world.links(post.mode), post.world.roads(post.mode)
    most = roads.limits
    if np.isinf(most.amount).all():
        return
    total = post.stack.ledger.every.of(links).total
    times = np.where(most.task, post.stack.task + 1, post.now // roads.every + 1)
    over = np.flatnonzero(total[np.arange(len(links)), most.bytes.astype(np.int64)] > most.amount * times)
    for at in over.tolist():
        (sender, receiver), unit = links.pairs[at], "bytes" if most.bytes[at] else "floats"
        raise RuntimeError(
            f"edge {sender} -> {receiver} carried {total[at, int(most.bytes[at])]} {unit} where "
            f"{most.amount[at] * times[at]:.0f} are allowed"
        )
