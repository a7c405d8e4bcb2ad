"""A fleet as one object: what its agents learn, how, and what they share."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.errors import CodeError, SettingsError, Stopped
from shoal.python.said import KEYWORDS, Said, begun, joined, unknown
from shoal.settings.groups import Settings

if TYPE_CHECKING:
    from shoal.fleet.run import Moment
    from shoal.python.costs import Costs
    from shoal.python.results import Result


class Fleet:
    """Agents that each learn a stream of tasks from some data, and share what helps the others.

    The data is a `shoal.Data`, a pair (x, y) of arrays, the name of a dataset, a source such as "csv:FILE", or a
    settings file (.toml), which says all the rest too (with `trust`, code too).
    Keywords are the groups of a settings file, each a word, a
    mapping or an object, and win over the file. `shoal list settings` explains them all.

    >>> import shoal
    >>> tasks = {"count": 3, "classes": 2, "train": 8, "validation": 4, "initial": 1}
    >>> learner = {"epochs": 5, "batch": 8, "memory": 4}
    >>> fleet = shoal.Fleet("digits", tasks=tasks, learner=learner, sharing="fedavg", network=shoal.ring(3))
    >>> fleet
    Fleet of 3 agents: digits, 3 tasks, modular-mlp, shares by fedavg over ring
    >>> result = fleet.run(seeds=2)
    >>> result.summary["messages"].item() > 0
    True
    >>> sorted(result.accuracy["task"].unique())
    [1, 2, 3]
    """

    settings: Settings  # whole, as they will run

    def __init__(
        self,
        data: Any,
        model: Any = None,
        learner: Any = None,
        sharing: Any = None,
        network: Any = None,
        tasks: Any = None,
        net: Any = None,
        agents: int | None = None,
        protocol: str | None = None,
        kinds: Any = None,
        machine: Any = None,
        seed: int | None = None,
        presence: Any = None,
        trust: bool = False,
        clock: Any = None,
        policy: Any = None,
        faulty: Any = None,
        record: Any = None,
        **others: Any,
    ) -> None:
        given = {
            "model": model, "learner": learner, "sharing": sharing, "tasks": tasks, "net": net, "agents": agents,
            "protocol": protocol, "kinds": kinds, "machine": machine, "seed": seed, "presence": presence,
            "clock": clock, "policy": policy, "faulty": faulty, "record": record, "network": network,
        }  # fmt: skip
        self._say(begun(data, trust), given | others)

    def _say(self, said: Said, given: dict[str, Any]) -> None:
        for name, value in given.items():
            if name not in KEYWORDS:
                raise unknown(name)
            if value is not None:
                said = joined(said, name, value)
        self._said = said
        self.settings = Settings(**said)

    def but(self, **keywords: Any) -> "Fleet":
        """The same fleet but for some keywords; a mapping changes only what it names.

        >>> import shoal
        >>> fleet = shoal.Fleet("digits", agents=4, learner={"epochs": 20})
        >>> other = fleet.but(sharing="simp", learner={"rate": 0.01})
        >>> other.settings.learner.epochs, other.settings.learner.rate
        (20, 0.01)
        """
        fleet = Fleet.__new__(Fleet)
        last = {"network": keywords.pop("network")} if "network" in keywords else {}  # it looks at the agents
        fleet._say(self._said, keywords | last)
        return fleet

    def alone(self) -> "Fleet":
        """The same fleet without sharing: the same tasks and the same start, whatever the protocol says of agents that
        are alone.

        >>> import shoal
        >>> fleet = shoal.Fleet("digits", agents=4, sharing="recv")
        >>> fleet.alone()
        Fleet of 4 agents: digits, 10 tasks, modular-mlp, shares nothing
        """
        own = self.settings
        fleet = Fleet.__new__(Fleet)
        kept = {"tasks": own.tasks.model_dump(), "net": own.net.model_dump(), "learner": own.learner}
        fleet._say({**self._said, **kept, "kinds": own.kinds, "sharing": ()}, {})
        return fleet

    def check(self, seeds: int | None = None, time: bool = False) -> "Costs":
        """What sharing will cost, per link and task and in all, and what will be refused, before anything runs; with
        `time` also how long the run takes, by the time of its first steps.

        >>> import shoal
        >>> fleet = shoal.Fleet("digits", sharing="fedavg", network=shoal.ring(3))
        >>> costs = fleet.check()
        >>> costs.table["mode"].to_list(), costs.total > 0
        (['fedavg'], True)
        """
        from shoal.python.costs import costs
        from shoal.runs.execute import prepare

        return costs(prepare(self._seeded(seeds)), time)

    def run(
        self,
        seeds: int | None = None,
        out: str | Path | None = None,
        progress: "bool | Callable[[Moment], None] | None" = None,
        yes: bool = False,
        workers: str | int | None = None,
        address: str | None = None,
        stacks: int | None = None,
    ) -> "Result":
        """Train the fleet, once for each of so many `seeds` (one, if neither this nor a settings file says).

        With `workers` the agents are dealt to so many processes, or to "ray" actors, so many `stacks` of them, on the
        cluster at an `address` if one is given; the result is the same.

        With a folder as `out` it is kept there as the command line keeps a run: finished, it is read again; stopped or
        killed, it goes on where it was. Without one, nothing is kept when the result is gone. `progress` is a bar where
        one can be seen; False: none; True: lines where there is no terminal; or a function of every moment. A run that
        needs more memory than is free here, or years, is an error before anything is written, unless `yes`.

        >>> import shoal
        >>> tasks = {"count": 2, "classes": 2, "train": 8, "validation": 4, "initial": 1}
        >>> fleet = shoal.Fleet("digits", agents=2, tasks=tasks, learner={"epochs": 2, "batch": 8, "memory": 4})
        >>> fleet.run(seeds=2, out="runs/mine").folder.as_posix()
        'runs/mine'
        """
        from shoal.python.progress import shown
        from shoal.python.results import Result
        from shoal.runs.execute import carry_out, prepare
        from shoal.runs.held import held
        from shoal.runs.record import create
        from shoal.settings.staff import staffed
        from shoal.study.fit import note

        settings = staffed(self._seeded(seeds), workers, address, stacks)
        if not (out is None or (isinstance(out, (str, Path)) and str(out).strip())):
            raise SettingsError(f"`out` cannot be {out!r}; give the name of a folder, or None to keep nothing")
        folder = Path(tempfile.mkdtemp(prefix="shoal-")) if out is None else Path(out).expanduser()
        found = ""
        try:
            record = held(folder, settings)
            if record is None or not record.finished:
                worlds = prepare(settings, yes=yes)  # before anything is written
                with shown(settings, progress) as show:
                    carry_out(worlds, record or create(folder, settings), show)
                found = note(worlds, folder)
        except BaseException as error:
            if out is None:
                shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, CodeError):
                error.advice = (
                    f'mend it, and the same run(out="{out}") continues' if out else "mend it, and run it again"
                )
            if isinstance(error, Stopped):
                on = (
                    f'the same run(out="{out}") continues'
                    if out
                    else "nothing was kept: with run(out=FOLDER) it could be continued"
                )
                where = str(error).partition(";")[0] if " in " in str(error).partition(";")[0] else "stopped"
                raise KeyboardInterrupt(f"{where}; {on}") from None
            raise
        return Result(folder, settings, temporary=out is None, note=found)

    def _seeded(self, seeds: int | None) -> Settings:
        """The settings of a run with so many seeds."""
        return self.settings if seeds is None else Settings(**{**self._said, "seeds": seeds})

    def __repr__(self) -> str:
        own = self.settings
        models = " + ".join(dict.fromkeys(own.of(name).model for name in own.members()))
        modes = ", ".join(mode.mode for mode in own.sharing)
        shares = f"shares by {modes} over {own.network.graph}" if modes else "shares nothing"
        count = own.tasks.count
        return (
            f"Fleet of {own.agents} agent{'s' * (own.agents > 1)}: {own.dataset}, {count} task{'s' * (count > 1)}, "
            f"{models}, {shares}"
        )
