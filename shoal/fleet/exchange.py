"""Exchanges: every mode that is due acts for all lanes of all stacks at once, wherever they are."""

from shoal.agents.events import AFTER, BEFORE, is_due, phased
from shoal.fleet.members import Crew
from shoal.mail.post import Observe


def meet(crew: Crew, phase: str, observe: Observe | None = None) -> None:
    """Let every mode act for the lanes for which it is due at this moment (shoal/agents/events.py), one mode after the
    other; lanes that do not act answer what they are asked. `observe` is told of every mail and its verdict."""
    settings = crew.whole[0].settings
    points = [point for point in crew.standing.points if phased(settings, point, phase)]
    for at, mode in enumerate(settings.sharing):
        if any(is_due(settings, mode, *point, phase) for point in points):
            exchange(crew, at, phase, observe)


def meet_all(crew: Crew, ended: bool = False, observe: Observe | None = None) -> None:
    """All that is due where lanes stand now; where a task has `ended`, not what belongs to the next."""
    crew.heed(crew.every("stands"))
    for phase in (AFTER,) if ended else (AFTER, BEFORE):
        meet(crew, phase, observe)


def exchange(crew: Crew, mode: int, phase: str, observe: Observe | None) -> None:
    """One exchange of the mode at a place in the settings. Everybody sees the state in which it began, because nobody
    absorbs before all have answered. What has been under way since an earlier exchange and is due now counts as if it
    came now. Where all wait for the slowest, they also wait for the slowest link."""
    standing = crew.standing
    here = crew.whole[0].at(*min(standing.points))
    asked = crew.deliver(here, crew.every("ask", mode, standing.moment, phase), observe)
    legs = [asked, crew.deliver(here, crew.every("answer"), observe)]
    for settled in crew.every("absorb"):
        crew.ledger.seen(settled)
    for taken in legs:
        if taken:
            crew.every("spend", taken)
