"""What a run is made of, before anything is written: nothing here waits for what reads and writes tables."""

from collections.abc import Callable, Sequence
from pathlib import Path

from shoal.agents.world import World
from shoal.agents.worlds import worlds
from shoal.backbones import bank_of
from shoal.data.tasks import Lane
from shoal.fleet.size import affordable, sensible, word
from shoal.fleet.workers import headcount
from shoal.own_code import told_apart
from shoal.settings.groups import Settings
from shoal.sharing.plan import feasible


def prepare(
    settings: Settings,
    folder: Path | None = None,
    lanes: Sequence[Lane] | None = None,
    yes: bool = False,
    tell: Callable[[str], None] = lambda sentence: None,
) -> tuple[World, ...]:
    """The data and streams of a run, or of some of its lanes, a world for each kind of agents, before anything is
    written. `folder` wins over `machine.data`. A run that is too large for this machine is an error, unless `yes`.

    >>> import shoal
    >>> (world,) = shoal.prepare(shoal.Settings(dataset="digits", agents=2, seeds=2))
    >>> len(world.lanes)
    4
    """
    with told_apart():
        return prepared(settings, folder, lanes, yes, tell)


def prepared(
    settings: Settings, folder: Path | None, lanes: Sequence[Lane] | None, yes: bool, tell: Callable[[str], None]
) -> tuple[World, ...]:
    """What `prepare` gives."""
    headcount(settings)
    if settings.machine.ledger == "totals":
        from shoal.runs.totals import possible

        possible(settings)
    bank = bank_of(settings, folder)
    if lanes is None and not yes:
        affordable(settings, bank)
        sensible(settings)
    if lanes is None and (told := word(settings, bank)):
        tell(told)
    found = worlds(settings, bank, lanes)
    if lanes is None:
        feasible(found)
    return found
