"""What the clocks of a fleet cannot be, said in one sentence."""

from itertools import pairwise

from shoal.errors import SettingsError
from shoal.settings.groups import Clock, Settings, Times

LISTS = ("starts", "speed", "step_joules", "byte_joules")  # settings that may say something of each agent


def timely(settings: Settings) -> None:
    """Raise if clocks contradict each other, the fleet or its tasks."""
    clock, network = settings.clock, settings.network
    for name in LISTS:
        said = getattr(clock, name)
        if isinstance(said, tuple) and len(said) != settings.agents:
            raise SettingsError(
                f"clock.{name} lists {len(said)} agents, but there are {settings.agents}; list one for each"
            )
    if isinstance(clock.arrivals, tuple):
        in_order(clock, settings)
    if clock.own:
        always(settings)
    if clock.counts:
        return
    linked = [
        name
        for name in ("bandwidth", "latency")
        if getattr(network, name) or any(getattr(link, name) for link in network.edges)
    ]
    wanting = [
        *(['clock.pace = "asynchronous"'] if clock.pace == "asynchronous" else []),
        *(f"network.{name}" for name in linked),
        *(f"clock.{name}" for name in ("step_joules", "byte_joules") if getattr(clock, name)),
        *(["clock.patience"] if clock.patience != "unlimited" else []),
    ]
    if wanting:
        raise SettingsError(
            f"{wanting[0]} needs a clock in seconds; say how many steps an agent takes in a second, clock.speed=100"
        )


def always(settings: Settings) -> None:
    """Raise if conditions are said in epochs of the fleet where agents have clocks of their own."""
    network, presence = settings.network, settings.presence
    said = [name for name in ("delay", "down") if any(getattr(one, name) for one in (network, *network.edges))]
    said += ["changes"] * bool(network.changes) + ["speed"] * bool(getattr(network, "speed", 0))
    found = [*(f"network.{name}" for name in said), *(["presence"] if presence != type(presence)() else [])]
    if found:
        raise SettingsError(
            f"{found[0]} is in epochs that all agents have in common, and clock.pace, starts or arrivals give each a "
            "clock of its own; use network.latency and clock.starts instead, or leave one of them out"
        )


def in_order(clock: Clock, settings: Settings) -> None:
    """Raise if tasks come at times that are too few or go backwards."""
    said = clock.arrivals
    lists: tuple[Times, ...] = said if said and isinstance(said[0], tuple) else (said,)  # type: ignore[assignment]
    if len(lists) > 1 and len(lists) != settings.agents:
        raise SettingsError(
            f"clock.arrivals has {len(lists)} lists of times, but there are {settings.agents} agents; give one for "
            "each agent, or one for all"
        )
    for at, times in enumerate(lists):
        where = "clock.arrivals" if len(lists) == 1 else f"clock.arrivals[{at}]"
        if len(times) != settings.tasks.count:
            few = "fewer" if len(times) < settings.tasks.count else "more"
            raise SettingsError(
                f"{where} has {len(times)} times, {few} than the {settings.tasks.count} tasks (tasks.count); give one "
                "for each task"
            )
        for task, (one, other) in enumerate(pairwise(times)):
            if other < one:
                raise SettingsError(
                    f"{where} goes backwards: task {task + 2} comes at {other:g}, before task {task + 1} at {one:g}; "
                    "give times in their order"
                )
