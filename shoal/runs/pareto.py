"""The Pareto front of what runs cost and what they are worth."""

from collections.abc import Sequence


def on_front(costs: Sequence[float], values: Sequence[float]) -> list[bool]:
    """Which points are on the Pareto front: no other costs at most as much and is worth at least as much, and is
    better in one of the two."""
    points = list(zip(costs, values, strict=True))
    return [not any(c <= cost and v >= value and (c, v) != (cost, value) for c, v in points) for cost, value in points]
