"""Exchanges: every mode that is due acts for all lanes of all stacks at once, wherever they are."""

from typing import Any

from shoal.agents.clock import due
from shoal.agents.world import World
from shoal.fleet.members import Crew
from shoal.mail.post import Observe
from shoal.settings.groups import Settings


def meet(
    crew: Crew, settings: Settings, task: int, epoch: int, ended: bool = False, observe: Observe | None = None
) -> None:
    """Let every mode act that is due when so many epochs of a task are done, one after the other. `observe` is told of
    every mail and its verdict.

    In one exchange everybody sees the state in which it began, because nobody absorbs before all have answered. What
    has been under way since an earlier exchange and is due now counts as if it came now.
    """
    for mode in due(settings, task, epoch, ended):
        exchange(crew, crew.whole[0].at(task, epoch), settings.sharing.index(mode), observe)


def meet_some(crew: Crew, now: float, phase: str, observe: Observe | None = None) -> None:
    """Let every mode act for the lanes for which it is due at a moment by their own clocks (shoal/agents/events.py);
    others answer what they are asked."""
    for mode in sorted(set().union(*crew.every("dues", now, phase))):
        exchange(crew, crew.whole[0], mode, observe, now, phase)


def exchange(crew: Crew, here: World, mode: int, observe: Observe | None, *when: Any) -> None:
    """One exchange of the mode at a place in the settings, over the links of `here`. Where all wait for the slowest,
    they also wait for the slowest link."""
    asked = crew.deliver(here, crew.every("ask", mode, *when), observe)
    legs = [asked, crew.deliver(here, crew.every("answer"), observe)]
    for settled in crew.every("absorb"):
        crew.ledger.seen(settled)
    for taken in legs:
        if taken:
            crew.every("spend", taken)
