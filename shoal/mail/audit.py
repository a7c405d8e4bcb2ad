"""The audit: after an exchange, no edge has carried more than its limit allows, whatever its filters have let pass."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.mail.post import Post


def audit(post: "Post") -> None:
    """The constraint of the paper's equation 1, size(K_ji) <= b_ji f_ji C, for every edge, with 1 / `every` as the
    frequency: an edge can have been used once at the start and once for each of its periods that have passed. Of a
    budget per task, a task is the period."""
    if post.world.free:
        return
    for (sender, receiver), edge in post.world.edges.items():
        most = edge.limit
        if most is None or sender not in post.world.row:
            continue
        total = getattr(post.stack.ledger.use(sender, receiver).total, most.unit)
        times = post.now // edge.every + 1 if most.per == "exchange" else post.stack.task + 1
        if total > (allowed := most.amount * times):
            raise RuntimeError(f"edge {sender} -> {receiver} carried {total} {most.unit} where {allowed} are allowed")
