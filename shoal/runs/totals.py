"""A ledger of totals (`machine.ledger`): of tasks that are over, a row for all messages of a link that are alike, where
there would be one for each. Budgets, sums and summaries stay what they are; when each message was sent is forgotten."""

import numpy as np

from shoal.errors import SettingsError
from shoal.letters.ledger import COLUMNS, Ledger
from shoal.runs.counts import counted
from shoal.runs.tables import unsettled
from shoal.settings.groups import Settings

ALIKE = ("seed", "task", "sender", "receiver", "mode", "kind", "verdict")
LAST = ("epoch", "late")  # columns of which the largest stays; of all others the sum


def possible(settings: Settings) -> None:
    """Raise where every message has a time of its own to be known."""
    if settings.machine.ledger == "totals" and (unsettled(settings) or settings.clock.counts):
        raise SettingsError(
            'machine.ledger = "totals" cannot tell when a message came, and here mail can be late or lost; say '
            'machine.ledger = "messages"'
        )


def condense(settings: Settings, ledger: Ledger, before: int) -> None:
    """Take together what was sent in tasks before one, if the settings say so. The task before that is left as it is:
    what links carried at the last moment must be known to go on."""
    rows = ledger.rows
    old = rows[:, COLUMNS.index("task")] < before
    if settings.machine.ledger != "totals" or not old.any():
        return
    counts = counted(settings, Ledger([rows[old]], list(ledger.words)))
    wide = np.column_stack([rows[old], ledger.messages[old], *counts.values()])
    number = np.zeros(len(wide), np.int64)
    for column in (wide[:, COLUMNS.index(name)] for name in ALIKE):
        number = number * (1 + int(column.max(initial=0) - column.min(initial=0))) + column - column.min(initial=0)
    order = np.argsort(number, kind="stable")
    wide, first = wide[order], np.flatnonzero(np.diff(number[order], prepend=-1))
    totals = np.add.reduceat(wide, first, axis=0)
    for at, name in enumerate(COLUMNS):
        if name in ALIKE:
            totals[:, at] = wide[first, at]
        elif name in LAST:
            totals[:, at] = np.maximum.reduceat(wide[:, at], first)
    ledger.totals = totals if ledger.totals is None else np.concatenate([ledger.totals, totals])
    ledger.blocks = [rows[~old]]
