"""Which of its images a sender sends: orders and counts."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def herd(x: Tensor, most: int) -> list[int]:
    """The first `most` rows of x[n, F], of length one each, in the order in which their running mean stays nearest to
    the direction of the mean of all (iCaRL; Rebuffi et al. 2017)."""
    mean = torch.nn.functional.normalize(x.mean(0), dim=0)
    total, free = torch.zeros_like(mean), torch.ones(len(x), dtype=torch.bool)
    order: list[int] = []
    for count in range(1, min(most, len(x)) + 1):
        far = (mean - (total + x) / count).norm(dim=1).masked_fill(~free, torch.inf)
        best = int(far.argmin())
        free[best] = False
        total = total + x[best]
        order.append(best)
    return order


def spread(x: Tensor, sent: Tensor, free: Tensor, most: int) -> list[int]:
    """Up to `most` rows of x[n, F] that are `free` [n], each the farthest from all that was sent[m, F] and chosen; the
    very first is the nearest to the mean (greedy k-centre; Gonzalez 1985)."""
    free = free.clone()
    near = torch.cdist(x, sent).amin(1) if len(sent) else None
    order: list[int] = []
    while len(order) < most and bool(free.any()):
        if near is None:
            best = int((x - x.mean(0)).norm(dim=1).masked_fill(~free, torch.inf).argmin())
            near = (x - x[best]).norm(dim=1)
        else:
            best = int(near.masked_fill(~free, -1).argmax())
            near = torch.minimum(near, (x - x[best]).norm(dim=1))
        free[best] = False
        order.append(best)
    return order


def levelled(have: Sequence[int], own: Sequence[int], total: int) -> list[int]:
    """How many of `total` images each class gets so that what a receiver will have of each is as even as can be, where
    there are `own` to give: always one to the class with the fewest (Akcin et al. 2022 with one uniform target)."""
    then, left, given = list(have), list(own), [0] * len(own)
    for _ in range(total):
        some = [at for at, count in enumerate(left) if count]
        if not some:
            break
        least = min(some, key=lambda at: then[at])
        then[least], left[least], given[least] = then[least] + 1, left[least] - 1, given[least] + 1
    return given


def class_by_class(
    x: Tensor, labels: np.ndarray, free: np.ndarray, most: int, have: np.ndarray | None = None
) -> np.ndarray:
    """Up to `most` of the `free` rows of x[n, F], a herd of each class in turn: as many of each or, where a receiver is
    known to `have` so many, what levels them."""
    classes = np.unique(labels[free]).tolist()
    places, counts = [free[labels[free] == one] for one in classes], [most] * len(classes)
    if have is not None:
        counts = levelled(have[classes].tolist(), [len(one) for one in places], most)
    orders = [at[herd(x[at], count)].tolist() for at, count in zip(places, counts, strict=True)]
    return np.array(in_turn(orders, most), np.int64)


def in_turn(orders: Sequence[Sequence[int]], most: int) -> list[int]:
    """Up to `most` places: the first of every order, the second, and so on."""
    longest = max((len(one) for one in orders), default=0)
    return [one[at] for at in range(longest) for one in orders if at < len(one)][:most]


def greedy(scores: np.ndarray, free: np.ndarray, most: int, chance: float, rng: np.random.Generator) -> np.ndarray:
    """Up to `most` of the places that are `free`, each random with some chance and of the highest score otherwise."""
    count = min(most, len(free))
    lucky = int(rng.binomial(count, chance))
    best = free[np.argsort(-scores[free], kind="stable")][: count - lucky]
    rest = rng.permutation(np.setdiff1d(free, best))[:lucky]
    return np.concatenate([best, rest])


def quotas(worth: np.ndarray, total: int, rule: str) -> list[int]:
    """How many of `total` images each class gets in proportion to its worth; equally, if none is worth anything."""
    if not len(worth):
        return []
    worth = np.maximum(worth, 0)
    shares = total * worth / worth.sum() if worth.sum() > 0 else np.full(len(worth), total / len(worth))
    counts = np.floor(shares).astype(int)
    if rule == "remainder":
        order = np.argsort(-(shares - counts), kind="stable")
        counts[order[: total - counts.sum()]] += 1
    return [int(count) for count in counts]
