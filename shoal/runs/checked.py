"""What the files of a run directory say, checked as far as it is used: settings, JSON objects, tables, measurements.

Settings are read as plain TOML and not as `Settings`: a run of another version can still be shown, and nothing here
waits for torch.
"""

import io
import json
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
from polars import selectors

from shoal.agents import ends as health
from shoal.data.sites import names
from shoal.errors import UserError
from shoal.runs import files, metrics
from shoal.runs.files import reason
from shoal.settings.groups import FAIR

Array = npt.NDArray[np.float64]


Numbers = npt.NDArray[np.int64]


# What a table must have to be used: its columns, and whether each holds whole numbers, any numbers, or words.
TABLES: dict[str, dict[str, str]] = {
    "accuracy": {
        "seed": "whole", "agent": "whole", "task": "whole", "epoch": "whole", "tested": "whole", "accuracy": "number",
    },
    "growth": {"seed": "whole", "agent": "whole", "task": "whole", "kept": "bool"},
    "training": {"seed": "whole", "agent": "whole", "task": "whole"},
    "ledger": {
        "seed": "whole", "task": "whole", "sender": "whole", "receiver": "whole", "bytes": "whole", "verdict": "word",
    },
    "candidates": {
        "seed": "whole", "agent": "whole", "task": "whole", "sender": "whole", "chosen": "bool", "kept": "bool",
    },
    "time": {
        "seed": "whole", "agent": "whole", "task": "whole", "epoch": "whole", "seconds": "number", "joules": "number",
        "bytes": "whole",
    },
    "links": {"seed": "whole", "sender": "whole", "receiver": "whole", "sent": "whole"},
    "validation": {"seed": "whole", "agent": "whole", "task": "whole", "accuracy": "number"},
    "drift": {"seed": "whole", "agent": "whole", "row": "whole", "what": "word", "rows": "whole"},
}  # fmt: skip


ROWS = 20_000_000  # of a table, at most


FEW = 1_000_000  # rows that any table may have


ORIGIN = ("origin_agent", "origin_task")  # of a kept module, in `growth`; absent, null or -1: it started at random


class Common(NamedTuple):
    """What two agents have in common, the mean over all pairs, and pair by pair as far as the record goes."""

    mean: dict[str, float]  # iou, labels, features
    pairs: list[tuple[str, str, dict[str, float]]]


class Unusable(Exception):  # noqa: N818 - a reason, turned into a note
    """Why a file or a run cannot be shown."""


class Lost(Unusable):
    """Why a file cannot be used without which the run can."""


@contextmanager
def usable(place: Path) -> Iterator[None]:
    """What of a run cannot be used inside is said to its user."""
    try:
        yield
    except Unusable as why:
        raise UserError(f"cannot use {place}: {why}; restore it, or remove it and run it again") from None


def settings_of(folder: Path) -> dict[str, Any]:
    """The settings as they were saved, checked as far as they are used."""
    if not folder.exists():
        raise Unusable("there is no such folder")
    if not folder.is_dir():
        raise Unusable("it is a file, not a run directory")
    path = folder / "settings.toml"
    if not path.exists():
        raise Unusable("it is not a run directory: it has no settings.toml")
    try:
        found = tomllib.loads(files.read_whole(path).decode())
    except files.UNREADABLE as error:
        raise Unusable(f"cannot read settings.toml: {reason(error)}") from None
    if not plain(found):
        raise Unusable("settings.toml has a date or a time, which no setting is")
    found.setdefault("sharing", [])
    found.setdefault("protocol", FAIR)
    for name in ("dataset", "model", "protocol"):
        if not isinstance(found.get(name), str):
            raise Unusable(f"settings.toml has no {name}")
    if not isinstance(found.setdefault("network", {}), dict):
        raise Unusable("settings.toml has a network that is no table")
    modes = found["sharing"]
    if not isinstance(modes, list) or not all(isinstance(mode, dict) and "mode" in mode for mode in modes):
        raise Unusable("settings.toml has sharing that names no mode")
    kinds = found.get("kinds", [])
    if not isinstance(kinds, list) or not all(isinstance(kind, dict) and described(kind) for kind in kinds):
        raise Unusable("settings.toml has kinds without a name, a model or agents")
    for path_ in (("agents",), ("seeds",), ("tasks", "count"), ("tasks", "initial"), ("learner", "epochs")):
        value: Any = found
        for name in path_:
            value = value.get(name) if isinstance(value, dict) else None
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise Unusable(f"settings.toml has no whole number {'.'.join(path_)}")
    return found


def plain(value: Any) -> bool:
    """Is a value of TOML made of words, numbers, lists and tables alone?"""
    if isinstance(value, dict | list):
        return all(map(plain, value.values() if isinstance(value, dict) else value))
    return isinstance(value, str | int | float)


def described(kind: dict[str, Any]) -> bool:
    """Does a kind of agents say what is used of it here?"""
    agents = kind.get("agents")
    words = all(isinstance(kind.get(name), str) for name in ("name", "model"))
    return words and isinstance(agents, list) and all(isinstance(agent, int) for agent in agents)


def json_of(path: Path, lost: list[str]) -> dict[str, Any]:
    """The object in a JSON file; empty, and a word about it, if there is none."""
    try:
        found = json.loads(files.read_whole(path))
    except files.UNREADABLE as error:
        lost.append(f"cannot read {path.name}: {reason(error)}")
        return {}
    if not isinstance(found, dict):
        lost.append(f"cannot read {path.name}: it holds no JSON object")
        return {}
    return found


def material_of(folder: Path, lost: list[str]) -> dict[str, Any]:
    """What agents learn from; a run of an earlier version does not say."""
    return json_of(folder / "data.json", lost) if (folder / "data.json").exists() else {}


def sites_of(found: dict[str, Any], agents: int) -> tuple[str, ...]:
    """What agents are called, as data.json says; nothing where they have numbers only."""
    sources = found.get("sources")
    return tuple(names([str(one) for one in sources], agents)) if isinstance(sources, list) else ()


def common_of(found: dict[str, Any], sites: tuple[str, ...], lost: list[str]) -> Common | None:
    """What data.json says that agents have in common; agents have the names of their `sites`, if these have some."""
    try:
        said = found["overlap"]
        if not said["pairs"]:
            return None

        def name(agent: int) -> str:
            return sites[agent] if sites else f"agent {int(agent)}"

        pairs = [(name(pair["agents"][0]), name(pair["agents"][1]), shares(pair)) for pair in said["pairs"]]
        return Common(shares(said), pairs)
    except (KeyError, IndexError, TypeError, ValueError):
        if found:
            lost.append("data.json does not say what agents have in common; that is not shown")
        return None


def shares(said: dict[str, Any]) -> dict[str, float]:
    return {name: float(said[name]) for name in ("iou", "labels", "features")}


def most_rows(name: str, settings: dict[str, Any]) -> int:
    """How many rows a table of a run can have: a few bytes can say a row as often as they like."""
    lanes, tasks = settings["agents"] * settings["seeds"], settings["tasks"]["count"]
    epochs, modes = settings["learner"]["epochs"] + 2, max(1, len(settings["sharing"]))
    most: int = {
        "accuracy": lanes * tasks * tasks * epochs,
        "ledger": 4 * lanes * settings["agents"] * tasks * epochs * modes,
        "candidates": lanes * settings["agents"] * tasks * tasks * modes,
        "time": lanes * tasks * epochs,
        "links": lanes * settings["agents"],
    }.get(name, lanes * tasks)
    return min(ROWS, max(FEW, most))


def table_of(folder: Path, name: str, settings: dict[str, Any] | None = None) -> pl.DataFrame:
    """A table with the columns it needs, in the types it needs; `settings` are read if they are not given."""
    path = folder / f"{name}.parquet"
    if not path.exists():
        raise Unusable(f"{path.name} is not there")
    most = most_rows(name, settings_of(folder) if settings is None else settings)
    try:
        content = files.read_whole(path, files.TABLE)
        rows = pl.scan_parquet(io.BytesIO(content)).select(pl.len()).collect().item()
        if rows > most:
            raise files.DamagedError(f"it has {rows:,} rows, and at most {most:,} are read of such a run")
        # Unsigned numbers cannot be compared with -1, those of 128 bits not computed with.
        table = pl.read_parquet(content).with_columns(selectors.integer().cast(pl.Int64))
    except (*files.UNREADABLE, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise Unusable(f"cannot read {path.name}: {reason(error)}") from None
    for column, kind in TABLES[name].items():
        if column not in table.columns:
            raise Unusable(f"{path.name} has no column `{column}`")
        one = table[column]
        fits = {
            "whole": one.dtype.is_integer(),
            "number": one.dtype.is_numeric(),
            "bool": one.dtype == pl.Boolean,
            "word": one.dtype == pl.String,
        }[kind]
        if not fits or one.null_count():
            raise Unusable(f"{path.name} has a column `{column}` of another type, or with gaps")
    return table


def known(table: pl.DataFrame, name: str, settings: dict[str, Any], seeds: Numbers) -> pl.DataFrame:
    """The table, if it speaks of nothing but the run's own agents, tasks and seeds."""
    agents, tasks = settings["agents"], settings["tasks"]["count"]
    limits = {"agent": agents, "sender": agents, "receiver": agents, ORIGIN[0]: agents, "task": tasks, ORIGIN[1]: tasks}
    for column in table.columns:
        values = table[column]
        if column in limits and values.dtype.is_numeric() and len(values.drop_nulls()):
            fits = (values.drop_nulls() < limits[column]) & (values.drop_nulls() >= (-1 if column in ORIGIN else 0))
        elif column == "seed":
            fits = values.is_in(seeds.tolist())
        elif column == "bytes":
            fits = values >= 0
        elif column in ("seconds", "joules") and name == "time":
            fits = values.is_finite() & (values >= 0)
        else:
            continue
        if not fits.all():
            raise Unusable(f"{name}.parquet has a column `{column}` with numbers that the run does not have")
    return table


def dense(table: pl.DataFrame, settings: dict[str, Any]) -> tuple[Array, Numbers, Numbers, Numbers]:
    """The measurements as an array, the labels of its grid points, and the seed and agent of each lane."""
    values = table["accuracy"].cast(pl.Float64).to_numpy()
    if not len(values):
        raise Unusable("accuracy.parquet is empty: nothing has been measured yet")
    least = -np.inf if settings["tasks"].get("classes") == 1 else 0  # R2 of a bad guess has no limit
    if not ((values >= least) & (values <= 1)).all():
        raise Unusable("accuracy.parquet has accuracies outside of 0 to 1")
    columns = {name: table[name].cast(pl.Int64).to_numpy() for name in ("seed", "agent", "task", "epoch", "tested")}
    if columns["agent"].max() < 0:  # one joint agent per seed, which is nobody's lane
        raise Unusable("unfinished: so far only the common start of its agents is being learned")
    if min(column.min() for column in columns.values()) < 0:
        raise Unusable("accuracy.parquet has negative numbers of agents, tasks or epochs")
    if max(columns["task"].max(), columns["tested"].max()) >= settings["tasks"]["count"]:
        raise Unusable("accuracy.parquet has more tasks than settings.toml")
    pairs, lane = np.unique(np.stack([columns["seed"], columns["agent"]], 1), axis=0, return_inverse=True)
    lane = lane.reshape(-1)
    if len(pairs) != settings["agents"] * settings["seeds"]:
        raise Unusable(
            f"accuracy.parquet has {len(pairs)} agents of all seeds, settings.toml "
            f"{settings['agents'] * settings['seeds']}"
        )
    epochs, point = np.unique(columns["epoch"], return_inverse=True)
    tasks = int(max(columns["task"].max(), columns["tested"].max())) + 1
    shape = (len(pairs), tasks, len(epochs), tasks)
    if np.prod(shape, dtype=float) > 500 * len(values) + 1e6:
        raise Unusable("accuracy.parquet has far fewer measurements than its tasks and epochs would need")
    place = np.ravel_multi_index((lane, columns["task"], point.reshape(-1), columns["tested"]), shape)
    if len(np.unique(place)) < len(place):
        raise Unusable("accuracy.parquet has the same measurement twice")
    accuracy = np.full(int(np.prod(shape)), np.nan)
    accuracy[place] = values
    return accuracy.reshape(shape), epochs, pairs[:, 0], pairs[:, 1]


def training_of(folder: Path, settings: dict[str, Any], seeds: Numbers) -> pl.DataFrame | None:
    """How agents trained; None: a run of an earlier version does not say."""
    if not (folder / "training.parquet").exists():
        return None
    try:
        table = table_of(folder, "training", settings)
        wanted = {"loss": pl.Float64, "guessing": pl.Float64, "norm": pl.Float64, "ended": pl.Int64, "why": pl.String}
        if absent := wanted.keys() - set(table.columns):
            raise Unusable(f"training.parquet has no column `{min(absent)}`")
        table = table.with_columns(pl.col(name).cast(kind) for name, kind in wanted.items())
        return known(table.filter(pl.col("agent") >= 0), "training", settings, seeds)
    except pl.exceptions.PolarsError as error:
        raise Lost(f"cannot read training.parquet: {reason(error)}") from None
    except Unusable as why:
        raise Lost(str(why)) from None


def without_ended(
    folder: Path, settings: dict[str, Any], accuracy: Array, seeds: Numbers, agents: Numbers
) -> tuple[Array, Numbers, Numbers, list[str]]:
    """The measurements without the agents that diverged (shoal/agents/ends.py), and what is to be said of them."""
    training = training_of(folder, settings, seeds)
    if training is None:
        return accuracy, seeds, agents, []
    ended = {(end.seed, end.agent) for end in health.ends_in(training)}
    left = np.array([pair not in ended for pair in zip(seeds.tolist(), agents.tolist(), strict=True)])
    if not left.any():
        raise Unusable("all its agents diverged; there is nothing to show")
    sites = sites_of(material_of(folder, []), settings["agents"])
    return accuracy[left], seeds[left], agents[left], health.sentences(training, sites)


def learned(accuracy: Array, epochs: Numbers, settings: dict[str, Any]) -> int:
    """How many tasks have all their measurements in all lanes."""
    if epochs[0] or epochs[-1] != settings["learner"]["epochs"] + 1:  # no task has come to its end
        return 0
    means, long, done = metrics.seen(accuracy), metrics.lengths(accuracy), 0
    while done < long.max():
        there = means[long > done]  # the streams of others have ended
        points = there[:, done, -1:] if done < settings["tasks"]["initial"] else there[:, done]
        if np.isnan(points).any():
            break
        done += 1
    return done
