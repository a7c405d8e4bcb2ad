"""What an exchange will cost, before anything runs."""

from typing import NamedTuple


class Quote(NamedTuple):
    """The largest mail of one kind on a directed edge at one exchange."""

    kind: str
    items: int
    floats: int


def fitting(wanted: int, each: int, budget: int | None) -> int:
    """How many of `wanted` items of `each` floats fit the budget; at least one, so that a refusal is seen."""
    return wanted if budget is None else max(1, min(wanted, budget // each))
