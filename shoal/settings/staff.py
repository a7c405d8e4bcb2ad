"""Who does the work of a run, as `--workers` says it."""

from shoal.errors import SettingsError
from shoal.settings.groups import Machine, Settings

RAY = "ray"


def staff(
    machine: Machine, workers: str | int | None, address: str | None = None, stacks: int | None = None
) -> Machine:
    """A machine with so many processes as workers, or with Ray actors: those of a cluster, and so many."""
    if workers is None:
        if address is not None or stacks is not None:
            raise SettingsError("--address and --stacks are for workers in Ray; say --workers ray too")
        return machine
    if workers == RAY:
        if stacks is not None and stacks < 1:
            raise SettingsError(f"--stacks cannot be {stacks}; say how many Ray actors there shall be, 1 or more")
        said = {"members": RAY, "workers": stacks or 0, "address": address or ""}
    else:
        if address is not None or stacks is not None:
            raise SettingsError("--address and --stacks are for workers in Ray; say --workers ray")
        if isinstance(workers, bool) or not str(workers).isdecimal() or int(workers) < 1:
            raise SettingsError(f"--workers cannot be {workers!r}; say a number of processes, 1 or more, or ray")
        said = {"members": "processes", "workers": int(workers)}
    return machine.model_copy(update=said)


def staffed(
    settings: Settings, workers: str | int | None, address: str | None = None, stacks: int | None = None
) -> Settings:
    """The same run with other workers: its result does not depend on them."""
    return settings.model_copy(update={"machine": staff(settings.machine, workers, address, stacks)})
