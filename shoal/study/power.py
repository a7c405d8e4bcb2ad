"""How many seeds would decide: the power of a paired t-test."""

import math

from shoal.runs.paired import SURE, critical

POWER = 0.8  # the chance that a difference of the size that was seen would be shown
MOST = 1000  # seeds; more would be no advice
STEPS = 400  # of the integral, an even number


def power(effect: float, seeds: int, level: float = SURE) -> float:
    """The chance that a two-sided paired t-test over so many seeds shows a difference of `effect` standard deviations.

    It is the mass of the noncentral t distribution beyond the critical values: the normal one, given the spread that is
    measured, averaged over that spread by Simpson's rule.

    >>> round(power(0.5, 34), 2)
    0.81
    """
    freedom, shift = seeds - 1, effect * math.sqrt(seeds)
    limit = critical(freedom, level)
    # The spread that is measured, over the true one: a chi variable over the root of its degrees of freedom.
    scale = math.log(2) + freedom / 2 * math.log(freedom / 2) - math.lgamma(freedom / 2)
    # Beyond nine standard deviations, of either, there is nothing to add.
    width = min(1 + 9 / math.sqrt(2 * freedom), (abs(shift) + 9) / limit) / STEPS

    def part(at: int) -> float:
        spread = at * width
        if not at:
            dense = math.exp(scale) if freedom == 1 else 0.0
        else:
            dense = math.exp(scale + (freedom - 1) * math.log(spread) - freedom * spread * spread / 2)
        return dense * (above(limit * spread - shift) + above(limit * spread + shift))

    ends = part(0) + part(STEPS)
    inner = sum((4 if at % 2 else 2) * part(at) for at in range(1, STEPS))
    return min(1.0, (ends + inner) * width / 3)


def above(z: float) -> float:
    """The chance that a standard normal variable is above z."""
    return math.erfc(z / math.sqrt(2)) / 2


def needed(mean: float, spread: float, level: float = SURE) -> int | None:
    """The least number of seeds with which a difference of this mean and standard deviation over seeds would be shown
    with a chance of 80 %; None, if it is more than 1,000.

    >>> needed(1.0, 2.0)
    34
    """
    if not spread:
        return 2 if mean else None
    low, high = 1, 2
    while power(mean / spread, high, level) < POWER:
        low, high = high, 2 * high
        if low >= MOST:
            return None
    while low + 1 < high:  # more seeds have more power
        middle = (low + high) // 2
        low, high = (low, middle) if power(mean / spread, middle, level) >= POWER else (middle, high)
    return high if high <= MOST else None
