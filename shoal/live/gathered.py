"""A live fleet as one run: what its agents have recorded, and their ledgers merged in the order of letters.

Each agent has a book of its own: what it has sent, and what has come. A letter that both know has the verdict of its
receiver; what only one of them knows is under way, refused, or a disagreement, which is said.
"""

import shutil
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shoal.agents.stack import Stack, joined, start
from shoal.agents.world import World
from shoal.agents.worlds import worlds
from shoal.data.bank import Bank
from shoal.data.tasks import lanes_of
from shoal.errors import UserError
from shoal.letters.ledger import COLUMNS, LATE, VERDICT, WORDS, Ledger
from shoal.letters.mail import UNDER_WAY, UNSENT
from shoal.live.fleets import Home, agents_of, fleet_of
from shoal.live.replaying import saved_of
from shoal.live.rows import own_of, together
from shoal.live.store import Store
from shoal.runs import kept as portable
from shoal.runs.record import Record, create
from shoal.runs.recording import finish, tables

SENDER, RECEIVER = COLUMNS.index("sender"), COLUMNS.index("receiver")
SAME = tuple(COLUMNS.index(name) for name in ("seed", "task", "epoch", "sender", "receiver", "mode", "kind"))
WEIGHED = tuple(COLUMNS.index(name) for name in ("items", "floats", "bytes"))
Row = tuple[Any, ...]  # of a ledger, with words


class Gathered(NamedTuple):
    """A live fleet as a run directory, and what its agents' books disagree on."""

    folder: Path
    finished: bool
    disagreements: list[str]


def gather(out: Path) -> Gathered:
    """Make a run directory of all agents of a fleet whose folders are here, as of their last checkpoints. It is made
    anew each time."""
    plan, settings, bank = fleet_of(out)
    homes = {home.agent: home for home in agents_of(out)}
    stacks, done, books = dict[int, Stack](), True, dict[int, list[Row]]()
    banks = dict[int, Bank]()
    for agent, home in homes.items():
        found, mine = saved_of(home)
        done &= (home.record / "summary.json").exists()
        if found is not None and found.lanes[0].agent == agent:
            stacks[agent] = found
            books[agent] = rows_of(found.ledger)
            banks[agent] = mine.own()
        mine.store.close()
    if not stacks:
        raise UserError(f"no agent in {out} has saved anything yet; `shoal live run {out}/agent-0` starts one")
    if plan.data or plan.watch is not None:
        others = [own_of(bank, agent) for agent in range(settings.agents) if agent not in banks]
        bank = together([*banks.values(), *others])
    whole = worlds(settings, bank, lanes_of(settings))
    orders = {agent: lamports(homes[agent]) for agent in stacks}
    rows, said = merged(books, orders)
    ledger = ledger_of(rows, settings.learner.epochs)
    fleet = tuple(fleet_stack(world, stacks, ledger) for world in whole)
    folder = out / "run"
    shutil.rmtree(folder, ignore_errors=True)
    record = create(folder, settings)
    portable.note(record, whole)
    finished = done and len(stacks) == len(plan.addresses)
    record_of(record, whole, fleet, finished)
    missing = sorted(set(range(len(plan.addresses))) - stacks.keys())
    if missing:
        said.insert(0, f"agents {missing} have saved nothing yet, or are on other hosts")
    return Gathered(folder, finished, said)


def record_of(record: Record, whole: Sequence[World], stacks: Sequence[Stack], finished: bool) -> None:
    """Write the records of a fleet."""
    if finished:
        finish(record, whole, stacks)
    else:
        tables(record, stacks)


def fleet_stack(world: World, stacks: dict[int, Stack], ledger: Ledger) -> Stack:
    """The agents of a kind as one stack; those that are missing are as at their beginning."""
    there = [stacks[lane.agent] for lane in world.lanes if lane.agent in stacks]
    absent = [at for at, lane in enumerate(world.lanes) if lane.agent not in stacks]
    if absent:
        there.append(start(world.piece(absent)))
    found = joined(there, world.lanes)
    found.ledger = ledger
    return found


def rows_of(ledger: Ledger) -> list[Row]:
    """The rows of a ledger, with words."""
    return list(zip(*(ledger.column(name).tolist() for name in COLUMNS), strict=True))


def ledger_of(rows: Sequence[Row], epochs: int) -> Ledger:
    """The ledger that has these rows."""
    words: dict[str, int] = {}
    table = np.zeros((len(rows), len(COLUMNS)), np.int64)
    for at, row in enumerate(rows):
        for place, (name, value) in enumerate(zip(COLUMNS, row, strict=True)):
            table[at, place] = words.setdefault(value, len(words)) if name in WORDS else value
    return Ledger.of(table, list(words), epochs)


def lamports(home: Home) -> dict[Row, list[int]]:
    """When letters that have come to an agent were written, by Lamport's clock: those of each link, moment, mode and
    kind in their order."""
    store, found = Store(home.letters, safe=False), defaultdict[Row, list[int]](list)
    for one in store.slips():
        if envelope := one["envelope"]:
            (seed, sender), (_, receiver), mode, kind, _items, _id, _reply, task, epoch, _due = envelope
            found[seed, task, epoch, sender, receiver, mode, kind].append(one["lamport"])
    store.close()
    return found


def merged(books: dict[int, list[Row]], orders: dict[int, dict[Row, list[int]]]) -> tuple[list[Row], list[str]]:
    """The rows of all books as those of one, in the order of Lamport's clocks, and what they disagree on."""
    come: dict[Row, list[Row]] = defaultdict(list)
    for agent, rows in books.items():
        for row in rows:
            if row[RECEIVER] == agent:
                come[same(row)].append(row)
    count = Counter[Row]()
    every: list[tuple[int, int, int, Row]] = []
    said: list[str] = []
    for agent, rows in sorted(books.items()):
        clock = 0
        for at, row in enumerate(rows):
            if row[SENDER] != agent:
                continue
            if row[VERDICT] in UNSENT:
                every.append((clock, agent, at, row))
                continue
            name = same(row)
            number = count[name]
            count[name] += 1
            times = orders.get(row[RECEIVER], {}).get(name, [])
            clock = times[number] if number < len(times) else clock
            other = come[name][number] if number < len(come[name]) else None
            if other is None:
                there = row[RECEIVER] in books and number < len(times)
                known = changed(row, "refused by its receiver" if there else UNDER_WAY)
                every.append((clock, agent, at, known if row[VERDICT] == "accepted" else row))
                continue
            if [other[place] for place in WEIGHED] != [row[place] for place in WEIGHED]:
                said.append(f"{called(row)}: its sender counts {weights(row)}, its receiver {weights(other)}")
            every.append((clock, agent, at, other))
    for name, rows in sorted(come.items()):
        if len(rows) > count[name] and rows[0][SENDER] in books:
            said.append(
                f"{called(rows[0])}: its receiver has {len(rows)}, its sender knows of {count[name]} (saved earlier?)"
            )
        every += [(2**62, row[SENDER], 0, row) for row in rows[count[name] :]]
    return [row for *_, row in sorted(every, key=lambda one: one[:3])], said


def same(row: Row) -> Row:
    """What letters of one link, moment, mode and kind have in common."""
    return tuple(row[at] for at in SAME)


def changed(row: Row, verdict: str) -> Row:
    """A row with another verdict."""
    found = list(row)
    found[VERDICT], found[LATE] = verdict, 0
    return tuple(found)


def called(row: Row) -> str:
    """A letter in words."""
    _, task, epoch, sender, receiver, mode, kind = same(row)
    return f"{mode}/{kind} from agent {sender} to {receiver}, task {task + 1}, epoch {epoch}"


def weights(row: Row) -> str:
    return ", ".join(f"{row[at]} {COLUMNS[at]}" for at in WEIGHED)
