"""Amounts as people write them: `20 kB` is 20,000 bytes, `20 kB/task` what a link carries in a task."""

import re
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import cache
from math import inf
from typing import Literal, NamedTuple

from shoal.errors import SettingsError

FLOAT = 4  # bytes
UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
FLOATS = ("float", "floats")
NAMES = {name.lower(): size for name, size in UNITS.items()} | {
    "byte": 1, "bytes": 1, **dict.fromkeys(FLOATS, FLOAT),
}  # fmt: skip
AMOUNT = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-z]+)\s*")
RATE = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-z]+)\s*(?:/\s*s|ps|per second)\s*")
TIME = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(ms|s|min|h)\s*")
BITS = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
LONG = {"ms": Fraction(1, 1000), "s": Fraction(1), "min": Fraction(60), "h": Fraction(3600)}
RATES = 'a number of bytes above 0, or an amount per second such as "1 Mbit/s" or "50 kB/s"'
DURATIONS = 'a number of seconds from 0, or a time such as "20 ms"'
UNLIMITED = "unlimited"
PERIODS: dict[str, Literal["exchange", "task"]] = {"exchange": "exchange", "task": "task"}
SECONDS = ("s", "sec", "second", "seconds", "min", "minute", "h", "hour", "day")
BUDGETS = (
    'a whole number of floats per exchange from 0, an amount such as "20 kB" (per exchange), "20 kB/task" or '
    '"500 floats/task", or "unlimited"'
)


def plural(number: int, word: str) -> str:
    """So many of something: `1 link`, `64 links`."""
    return f"{number:,} {word}{'s' * (number != 1)}"


def listed(names: Iterable[object], most: int = 8) -> str:
    """Some names in a sentence; of many, the first, and how many more there are."""
    words = [str(name) for name in names]
    return ", ".join(words[:most]) + f" and {len(words) - most} more" * (len(words) > most)


def some(words: Sequence[str], most: int) -> str:
    """Words in a sentence; of many, the first. One is not left out for the sake of saying so."""
    rest = len(words) - most
    return ", ".join(words) if rest <= 1 else f"{', '.join(words[:most])} and {rest} others"


def size(said: str) -> int:
    """The bytes of an amount such as `20 kB`, `1.5MB` or `500 floats`."""
    found = AMOUNT.fullmatch(said)
    if found is None or found[2].lower() not in NAMES:
        raise SettingsError(f"{said!r} is no amount of data; say a number and a unit: {', '.join(UNITS)} or floats")
    return round(Fraction(found[1]) * NAMES[found[2].lower()])


def shown(count: float) -> str:
    """Bytes for people, with three digits and never rounded to nothing: `5.04 kB`."""
    if count < 999.5:
        return f"{count:.3g} B"
    unit = next((unit for unit in ("kB", "MB", "GB") if count < 999.5 * UNITS[unit]), "TB")
    number = count / UNITS[unit]
    return f"{number:,.0f} {unit}" if number >= 999.5 else f"{number:.3g} {unit}"


def carried(count: float) -> str:
    """What was sent, for people: who shares nothing has sent `nothing`, not `0 B`."""
    return shown(count) if count else "nothing"


class Limit(NamedTuple):
    """How much a link carries, of what, and in which time."""

    amount: int
    unit: Literal["floats", "bytes"]
    per: Literal["exchange", "task"]

    def __str__(self) -> str:
        """In words, to the last byte: `20 kB per task`, `5,000 floats per exchange`."""
        amount = f"{self.amount:,} floats" if self.unit == "floats" else exact(self.amount)
        return f"{amount} per {self.per}"

    @property
    def said(self) -> int | str:
        """As a setting."""
        if not self.amount or (self.unit == "floats" and self.per == "exchange"):
            return self.amount
        amount = f"{self.amount} floats" if self.unit == "floats" else exact(self.amount)
        return amount if self.per == "exchange" else f"{amount}/task"


def exact(count: int) -> str:
    """Bytes in the largest unit that needs at most three decimals, so that nothing is lost: `1.5 MB`, `20.001 kB`."""
    unit = next(unit for unit in ("TB", "GB", "MB", "kB", "B") if count >= UNITS[unit] or unit == "B")
    while count * 1000 % UNITS[unit]:
        unit = {"TB": "GB", "GB": "MB", "MB": "kB"}[unit]
    whole, part = divmod(count, UNITS[unit])
    return f"{whole}{f'.{part * 1000 // UNITS[unit]:03}'.rstrip('0').rstrip('.')} {unit}"


@cache
def limit(said: int | str | None) -> Limit | None:
    """The limit that a budget means: `5000` are floats per exchange; `"unlimited"` and None mean that there is none.

    >>> limit("20 kB/task")
    Limit(amount=20000, unit='bytes', per='task')
    """
    if said is None or said == UNLIMITED:
        return None
    if isinstance(said, int):
        if said < 0:
            raise SettingsError(f"a budget cannot be {said!r}; allowed: {BUDGETS}")
        return Limit(said, "floats", "exchange")
    text, slash, period = said.partition("/")
    found, per = AMOUNT.fullmatch(text), period.strip().lower().removeprefix("per ")
    if found is None or found[2].lower() not in NAMES:
        raise SettingsError(f"a budget cannot be {said!r}; allowed: {BUDGETS}")
    if per in SECONDS:
        raise SettingsError(
            f"a budget cannot be {said!r}: it is per exchange or per task; say what a link carries per second as "
            f'network.bandwidth = "{text.strip()}/s", or as a budget per task, "{text.strip()}/task"'
        )
    if slash and per not in PERIODS:
        raise SettingsError(
            f'a budget cannot be {said!r}: it is per exchange or per task; say "{text.strip()}" or '
            f'"{text.strip()}/task"'
        )
    floats = found[2].lower() in FLOATS
    exactly = Fraction(found[1]) * (1 if floats else NAMES[found[2].lower()])
    amount = round(exactly)
    if (floats or not amount) and amount != exactly:
        unit = "floats" if floats else "bytes"
        raise SettingsError(f"a budget cannot be {said!r}, which is no whole number of {unit}; allowed: {BUDGETS}")
    return Limit(amount, "floats" if floats else "bytes", PERIODS.get(per, "exchange"))


def rate(said: float | str) -> float:
    """The bytes per second that are said.

    >>> rate("1 Mbit/s")
    125000.0
    """
    wrong = SettingsError(f"cannot be {said!r}; allowed: {RATES}")
    if isinstance(said, bool) or not isinstance(said, int | float | str):
        raise wrong
    found = float(said) if isinstance(said, int | float) else 0.0
    if isinstance(said, str) and (words := RATE.fullmatch(said)):
        unit = words[2].lower()
        if unit in BITS:
            found = float(Fraction(words[1]) * BITS[unit] / 8)
        elif unit in NAMES:
            found = float(Fraction(words[1]) * NAMES[unit])
    if not 0 < found < inf:
        raise wrong
    return found


def duration(said: float | str) -> float:
    """The seconds that are said.

    >>> duration("20 ms")
    0.02
    """
    wrong = SettingsError(f"cannot be {said!r}; allowed: {DURATIONS}")
    if isinstance(said, bool) or not isinstance(said, int | float | str):
        raise wrong
    found = float(said) if isinstance(said, int | float) else -1.0
    if isinstance(said, str) and (words := TIME.fullmatch(said)):
        found = float(Fraction(words[1]) * LONG[words[2]])
    if not 0 <= found < inf:
        raise wrong
    return found


def plain(said: int | str) -> int | str:
    """A budget in the one way in which it is kept: what means the same is the same. Floats per exchange are a number,
    and a link that is closed has 0."""
    most = limit(said)
    return UNLIMITED if most is None else most.said
