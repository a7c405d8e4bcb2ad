"""Amounts of data as people write and read them, and the budgets of links that they make."""

import tomllib
from collections.abc import Callable
from typing import Any

import pytest

from shoal.configure.reading import override, resolve
from shoal.errors import SettingsError
from shoal.settings.groups import Network, Settings
from shoal.units import Limit, carried, limit, plain, shown, size


@pytest.mark.parametrize(
    ("said", "count"),
    [("20 kB", 20_000), ("1.5MB", 1_500_000), ("500 floats", 2_000), ("0 B", 0), (".5 KiB", 512), ("7 bytes", 7)],
)
def test_an_amount_is_read_in_bytes(said: str, count: int) -> None:
    assert size(said) == count


@pytest.mark.parametrize("said", ["", "20", "kB", "-3 kB", "1e3 kB", "20 parsecs", "20 kB/task"])
def test_what_is_no_amount_is_named(said: str) -> None:
    with pytest.raises(SettingsError, match="is no amount of data"):
        size(said)


@pytest.mark.parametrize(
    ("count", "said"),
    [(0, "0 B"), (3, "3 B"), (0.4, "0.4 B"), (5040, "5.04 kB"), (999_600, "1 MB"), (2e15, "2,000 TB")],
)
def test_an_amount_is_shown_with_three_digits(count: float, said: str) -> None:
    assert shown(count) == said


def test_who_shares_nothing_has_sent_nothing() -> None:
    assert carried(0) == "nothing"
    assert carried(5040) == shown(5040) == "5.04 kB"


@pytest.mark.parametrize(
    ("said", "most", "kept", "words"),
    [
        (5000, Limit(5000, "floats", "exchange"), 5000, "5,000 floats per exchange"),
        ("5000 floats", Limit(5000, "floats", "exchange"), 5000, "5,000 floats per exchange"),
        ("500 floats/task", Limit(500, "floats", "task"), "500 floats/task", "500 floats per task"),
        ("20 kB", Limit(20_000, "bytes", "exchange"), "20 kB", "20 kB per exchange"),
        ("20000B/exchange", Limit(20_000, "bytes", "exchange"), "20 kB", "20 kB per exchange"),
        ("0.02 MB / task", Limit(20_000, "bytes", "task"), "20 kB/task", "20 kB per task"),
        ("20 KB/Task", Limit(20_000, "bytes", "task"), "20 kB/task", "20 kB per task"),
        ("1234567 B", Limit(1_234_567, "bytes", "exchange"), "1234.567 kB", "1234.567 kB per exchange"),
        ("0 kB/task", Limit(0, "bytes", "task"), 0, "0 B per task"),
    ],
)
def test_a_budget_is_an_amount_in_a_time_and_kept_in_one_way(
    said: int | str, most: Limit, kept: int | str, words: str
) -> None:
    assert (limit(said), plain(said), str(most)) == (most, kept, words)
    assert limit(kept) == most or not most.amount
    assert limit("unlimited") is None


def test_what_means_the_same_budget_is_the_same_run() -> None:
    def name(budget: int | str) -> str:
        return Settings(sharing="recv", network={"budget": budget}).identity()

    assert name(5000) == name("5000 floats") == name("5000 floats/exchange")
    assert name("20 kB/task") == name("20000 B/task") != name("20 kB")


BAD = [
    ("20 parsecs", "allowed: a whole number of floats per exchange from 0, an amount such as"),
    ("-5 kB", "allowed: a whole number"),
    (-5, "allowed: a whole number"),
    ("20 kB/fortnight", 'it is per exchange or per task; say "20 kB" or "20 kB/task"'),
    ("20 kB/s", "it is per exchange or per task; say what a link carries per second as network.bandwidth"),
    ("1e999", "allowed: a whole number"),
    ("true", "allowed: a whole number"),
    ("2.5", "allowed: a whole number"),
    ("2.5 floats", "no whole number of floats"),
    ("0.1 B", "no whole number of bytes"),
    ("[20]", "allowed: a whole number"),
    ("{ bytes = 20 }", "allowed: a whole number"),
    ("lots", "allowed: a whole number"),
    ("", "allowed: a whole number"),
]


def value(said: Any) -> Any:
    """What TOML reads, or else the words themselves."""
    try:
        return tomllib.loads(f"x = {said}")["x"]
    except tomllib.TOMLDecodeError:
        return said


@pytest.mark.parametrize(("said", "why"), BAD)
@pytest.mark.parametrize("where", ["network.budget", "sharing.recv.budget", "network.edges[0].budget"])
def test_what_is_no_budget_is_one_sentence_wherever_it_stands(said: Any, why: str, where: str) -> None:
    raw: dict[str, Any] = {"sharing": [{"mode": "recv"}]}
    if where.startswith("network.edges"):
        raw["network"] = {"graph": "edges", "edges": [{"sender": 0, "receiver": 1, "budget": value(said)}]}
        tries: list[Callable[[], Settings]] = [lambda: resolve(raw), lambda: Settings(**raw)]
    else:
        group, _, last = where.rpartition(".")
        given = (
            {"sharing": [{"mode": "recv", last: value(said)}]} if group != "network" else {group: {last: value(said)}}
        )
        tries = [lambda: resolve({**raw, **given}), lambda: resolve(override(raw, [f"{where}={said}"]))]
    for attempt in tries:
        with pytest.raises(SettingsError) as caught:
            attempt()
        text = str(caught.value)
        assert text.startswith(f"`{where}` cannot be {value(said)!r}"), text
        assert why in text
        assert "\n" not in text


def test_python_says_budgets_in_the_same_words() -> None:
    assert Network(budget="20 kB/exchange").budget == "20 kB"
    assert resolve(override({}, ["network.budget=20 kB/task"])).network.budget == "20 kB/task"
    assert resolve(override({"sharing": "recv"}, ["sharing.budget=1 MB"])).sharing[0].budget == "1 MB"
