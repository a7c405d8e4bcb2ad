"""Replay: an agent learns again by its journal alone, which shows what it has learned from whom."""

import shutil
import sqlite3
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from shoal.agents.engine import kept_memory
from shoal.agents.stack import Stack
from shoal.errors import Stopped, UserError
from shoal.fleet.run import one_thread
from shoal.live.fleets import Home
from shoal.live.life import Life, awake
from shoal.live.pruning import point_of
from shoal.live.rows import Rows
from shoal.live.store import Store
from shoal.runs.examined import difference
from shoal.runs.record import create, reopen


class ReachedError(Stopped):
    """What is done again has come to where it was to come to."""


class Replayed(NamedTuple):
    """An agent that has come to the same again: up to which point of its stream, and with how many letters of whom."""

    task: int
    epoch: int
    letters: dict[int, int]
    begins: tuple[int, int] = (0, 0)  # at the beginning or, where the journal is pruned, at a later point


def replay(folder: Path) -> Replayed:
    """Let an agent learn again from its beginning, without a network, up to its last checkpoint; raise if it does not
    come to the same, bit for bit."""
    home = Home.read(folder)
    saved, rows = saved_of(home)
    rows.store.close()
    if saved is None:
        raise UserError(f"{home.record} has no checkpoint yet to compare with; let the agent run for a while")
    goal = saved.task, saved.epoch
    with tempfile.TemporaryDirectory() as place, kept_memory(), one_thread():
        there = replace(home, folder=Path(place), data=home.data and rows.dataset)
        copied(home.letters, there.letters)
        for file in (home.folder / "settings.toml", home.source, home.begin):
            if file.exists():
                shutil.copy(file, place)

        def watch(life: Life) -> None:
            if (life.stack.task, life.stack.epoch) == goal:
                raise ReachedError

        begins = 0, 0
        if home.base.exists():
            create(there.record, home.settings())
            shutil.copy(home.base, there.record / "checkpoint.safetensors")
            begins = point_of(home.base)
        life = awake(there, lambda home, terms: None, watch=watch, safe=False)
        first = life.office.n
        try:
            if begins != goal:
                life.learn()
        except ReachedError:
            pass
        finally:
            life.store.close()
        if name := difference(life.stack, saved):
            raise UserError(
                f"by its journal {home.name} does not come to what it has learned: `{name}` differs; its data, or what "
                "takes the steps (about.json), may be other than it was"
            )
        return Replayed(*goal, counted(there.letters, first, life.office.n), begins)


def saved_of(home: Home) -> tuple[Stack | None, Rows]:
    """What an agent was at its last checkpoint, and its rows; its store is open."""
    settings, store = home.settings(), Store(home.letters, safe=False)
    rows = Rows(home, settings, store)
    if not (home.record / "settings.toml").exists():
        return None, rows
    world = rows.world(len(store.tasks()))
    found = reopen(home.record, own=world.settings).load([world])
    return None if found is None else found[0], rows


def copied(file: Path, to: Path) -> None:
    """Copy a store, whoever writes to it at the moment."""
    if not file.exists():
        raise UserError(f"{file} is missing: without the journal nothing can be done again")
    source, target = sqlite3.connect(file), sqlite3.connect(to)
    with target:
        source.backup(target)
    source.close()
    target.close()


def counted(file: Path, first: int, until: int) -> dict[int, int]:
    """How many letters of each neighbour some lines of a journal name."""
    store, found = Store(file, safe=False), dict[int, int]()
    for n in range(first, until):
        entry = store.entry(n)
        for one in store.letters(entry.letters) if entry else ():
            found[one.peer] = found.get(one.peer, 0) + 1
    store.close()
    return found
