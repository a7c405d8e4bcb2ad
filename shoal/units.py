"""Amounts of data as people write them: `20 kB` is 20,000 bytes, `500 floats` are 2,000."""

import re

from shoal.errors import SettingsError

FLOAT = 4  # bytes
UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
NAMES = {name.lower(): size for name, size in UNITS.items()} | {
    "byte": 1, "bytes": 1, "float": FLOAT, "floats": FLOAT,
}  # fmt: skip
AMOUNT = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([A-Za-z]+)\s*")


def size(said: str) -> int:
    """The bytes of an amount such as `20 kB`, `1.5MB` or `500 floats`."""
    found = AMOUNT.fullmatch(said)
    if found is None or found[2].lower() not in NAMES:
        raise SettingsError(f"{said!r} is no amount of data; say a number and a unit: {', '.join(UNITS)} or floats")
    return round(float(found[1]) * NAMES[found[2].lower()])


def shown(count: float) -> str:
    """Bytes for people, with three digits and never rounded to nothing: `5.04 kB`."""
    if count < 1000:
        return f"{count:.3g} B"
    unit = next((unit for unit in ("kB", "MB", "GB") if count < 999.5 * UNITS[unit]), "TB")
    return f"{count / UNITS[unit]:.3g} {unit}"
