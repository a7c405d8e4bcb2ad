"""Sweeps: every combination of some settings, and which of them are worth their traffic."""

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import get_args

from shoal.configure.completing import listing, name_of
from shoal.configure.reading import read
from shoal.errors import SettingsError
from shoal.runs.pareto import on_front
from shoal.settings.groups import Settings
from shoal.settings.problem import problem
from shoal.sharing.modes import MODES
from shoal.study.cells import Row, place_of, summary_of

SHOWN = (
    "seeds", "final_accuracy", "final_accuracy_se", "final_accuracy_se_seeds", "auc", "auc_se", "auc_se_seeds",
    "auc_normalised", "auc_normalised_se", "auc_normalised_se_seeds", "messages", "refused", "floats_per_edge_task",
    "bytes_per_link_task", "bytes_total", "seconds",
)  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """One combination: a word per axis, as the user said it, and which axes have several values."""

    stem: str
    words: dict[str, str]
    settings: Settings
    varied: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        said = [text for key, text in self.words.items() if key in self.varied]
        return re.sub(r"[^\w.+]+", "-", "-".join([self.stem, *(said or self.words.values())]))[:80].strip("-")


def axes(words: Sequence[str]) -> dict[str, list[str]]:
    """The values of each key, from words like `sharing.every=5,10`."""
    found: dict[str, list[str]] = {}
    for word in words:
        key, equals, text = word.partition("=")
        values = split(text)
        if not equals or not key or "" in values:
            raise SettingsError(f"cannot read `{word}`; an axis of the grid looks like sharing.every=5,10,20")
        if key in found:
            raise SettingsError(f"`{key}` is said twice; give all its values at once: {key}={','.join(found[key])},...")
        if len(set(values)) < len(values):
            raise SettingsError(f"`{word}` names a value twice; name each once")
        found[key] = values
    if not found:
        raise SettingsError("nothing to sweep over; say KEY=VALUE,VALUE,..., e.g. sharing=none,recv,fedavg")
    return found


def split(text: str) -> list[str]:
    """The values between commas; a comma inside brackets or quotes belongs to its value."""
    parts = [""]
    for piece in text.split(","):
        whole = not parts[-1] or readable(parts[-1])
        if len(parts) == 1 and not parts[0]:
            parts[0] = piece
        elif whole:
            parts.append(piece)
        else:
            parts[-1] += f",{piece}"
    return [part.strip() for part in parts]


def readable(text: str) -> bool:
    """Is this a whole value: TOML, or a plain word?"""
    if not any(mark in text for mark in "[]{}\"'"):
        return True
    try:
        tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return False
    return True


def grid(file: Path, words: Sequence[str], fixed: Sequence[str] = ()) -> list[Cell]:
    """A cell per combination, in the order of the words; combinations that come to the same run are one cell.

    `+` joins sharing modes. A setting of a mode (`sharing.every=...`) is for the combinations that share by it, and a
    network for those that share at all. `fixed` words win.
    """
    found = axes(words)
    varied = frozenset(key for key, values in found.items() if len(values) > 1)
    cells: dict[str, Cell] = {}
    used: set[str] = set()
    for values in product(*found.values()):
        said = dict(zip(found, values, strict=True))
        modes = modes_of(file, said)
        fits = {key: text for key, text in said.items() if applies(key, modes)}
        used |= fits.keys()
        # What is shared comes first: the other words say how.
        order = sorted(fits, key=lambda key: key != "sharing")
        settings = read(file, [*(f"{key}={joined(key, fits[key])}" for key in order), *fixed])
        cells.setdefault(settings.identity(), Cell(file.stem, fits, settings, varied))
    for key in found:
        if key not in used:
            raise SettingsError(
                f"`{key}` changes nothing: no combination shares by what it is for; add it to sharing=..."
            )
    return list(cells.values())


def joined(key: str, text: str) -> str:
    return text.replace("+", ",") if key == "sharing" else text


def modes_of(file: Path, said: dict[str, str]) -> list[str]:
    """The modes that a combination shares by."""
    if "sharing" not in said:
        return [mode.door for mode in read(file).sharing]
    text = said["sharing"]
    if text.startswith(("[", "{", '"', "'")):
        try:
            return [name_of(mode) for mode in listing(tomllib.loads(f"value = {text}")["value"])]
        except tomllib.TOMLDecodeError:
            raise SettingsError(f"cannot read `sharing={text}` as TOML; modes look like recv or recv+fedavg") from None
    return [name_of(mode) for mode in listing(joined("sharing", text))]


def applies(key: str, modes: Sequence[str]) -> bool:
    """Does a setting mean anything when these modes share?"""
    group, _, rest = key.partition(".")
    if group == "network":
        return bool(modes)
    if group != "sharing" or not rest:
        return True
    mode, dot, _ = rest.partition(".")
    return mode in modes if dot else any(has(one, rest) for one in modes)


def has(mode: str, name: str) -> bool:
    """Has a mode a setting of this name that can be chosen?"""
    field = MODES.find(mode).model_fields.get(name)
    return field is not None and get_args(field.annotation) != (field.default,)


def swept(cells: Sequence[Cell], folder: Path) -> list[Row]:
    """A row per finished cell: what was varied, what came out, what it cost, and whether it is on the front of those
    that have the same tasks to learn, with as many agents and seeds."""
    keys = list(dict.fromkeys(key for cell in cells for key in cell.words))
    rows = []
    for cell in cells:
        place = place_of(cell, folder)
        summary = summary_of(place)
        row: Row = {key: cell.words.get(key) for key in keys}
        row |= {name: summary.get(name) for name in SHOWN}
        end = {"identity": summary["identity"], "commit": summary["commit"], "out": str(place)}
        rows.append(row | {"front": False, **end})
    alike: dict[str, list[Row]] = {}
    for cell, row in zip(cells, rows, strict=True):
        seeds = cell.settings.seed, cell.settings.seeds
        alike.setdefault(repr((problem(cell.settings.model_dump()), seeds)), []).append(row)
    for same in alike.values():
        marks = on_front([row["bytes_total"] or 0 for row in same], [row["final_accuracy"] for row in same])
        for row, mark in zip(same, marks, strict=True):
            row["front"] = mark
    return rows
