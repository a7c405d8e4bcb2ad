"""Amounts of data as people write and read them."""

import pytest

from shoal.errors import SettingsError
from shoal.units import shown, size


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
    [(0, "0 B"), (3, "3 B"), (0.4, "0.4 B"), (5040, "5.04 kB"), (999_600, "1 MB"), (2e15, "2e+03 TB")],
)
def test_an_amount_is_shown_with_three_digits(count: float, said: str) -> None:
    assert shown(count) == said
