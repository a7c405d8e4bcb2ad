"""What fleets have learned, as frames and charts, and the difference between two of them."""

import shutil
import tempfile
import warnings
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from shoal.errors import UserError
from shoal.runs.checked import material_of, settings_of, sites_of, table_of, usable
from shoal.runs.paired import Gain, paired
from shoal.runs.record import reopen
from shoal.runs.tables import unposted
from shoal.settings.groups import Settings
from shoal.study.cells import scores, summary_of
from shoal.study.compare import alike, own_of
from shoal.units import shown

if TYPE_CHECKING:
    import altair as alt

    from shoal.fleet.run import Moment
    from shoal.keep.agent import Agent

FIRST = ("sharing", "dataset", "model", "agents", "seeds", "tasks", "final_accuracy", "final_accuracy_se_seeds",
         "auc_normalised", "auc_normalised_se_seeds", "auc", "auc_se_seeds", "bytes_per_link_task")  # fmt: skip


class Result:
    """A finished run: frames of its numbers, charts, a page. `Fleet.run` returns one, `Result.read` reads one again.

    >>> import shoal
    >>> tasks = {"count": 2, "classes": 2, "train": 8, "validation": 4, "initial": 1}
    >>> fleet = shoal.Fleet("digits", agents=2, tasks=tasks, learner={"epochs": 2, "batch": 8, "memory": 4})
    >>> before = fleet.run(out="runs/mine")
    >>> result = shoal.Result.read("runs/mine")
    >>> result.accuracy.columns
    ['seed', 'agent', 'task', 'epoch', 'tested', 'accuracy']
    >>> result.summary.equals(before.summary), len(result.ledger)
    (True, 0)
    """

    folder: Path  # the run directory
    note: str  # what to know before one believes it, if there is something: agents that look underfitted

    def __init__(
        self,
        folder: str | Path,
        settings: Settings | None = None,
        temporary: bool = False,
        trust: bool = False,
        note: str = "",
    ) -> None:
        self.note = note
        self.folder, self._settings, self._temporary = Path(folder), settings, temporary
        self._trust = trust
        if temporary:  # what is in it stays readable for as long as somebody has this object
            weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    @classmethod
    def read(cls, folder: str | Path, trust: bool = False) -> "Result":
        """The result that a run directory holds. Its numbers are read without loading anything; `settings` that name
        code or files elsewhere need `trust`, unless this user has run them before."""
        place = Path(folder).expanduser()
        if not (place / "settings.toml").exists():
            raise UserError(f"{place} is not a run directory: it has no settings.toml; fleet.run(out=...) makes one")
        if not (place / "summary.json").exists():
            raise UserError(f"{place} is not finished; the same run again continues it, as does `shoal resume {place}`")
        return cls(place, trust=trust)

    @property
    def settings(self) -> Settings:
        """All settings of the run."""
        if self._settings is None:
            self._settings = reopen(self.folder, self._trust).settings
        return self._settings

    @cached_property
    def summary(self) -> pl.DataFrame:
        """One row with all metrics: accuracies (R2 where numbers are predicted) and `auc_normalised` in %, `auc` in the
        paper's unit; `_se` is the standard error over all agents, `_se_seeds` the one over seeds."""
        found = summary_of(self.folder)
        found["sharing"] = "+".join(found.get("sharing", ())) or "none"
        found.setdefault("bytes_per_link_task", None)  # runs of earlier versions do not have it
        plain = {name: value for name, value in found.items() if not isinstance(value, (dict, list)) and name != "out"}
        row = {name: plain[name] for name in (*FIRST, *plain)}
        # What is not defined is still a number.
        return pl.DataFrame(
            {name: pl.Series([one], dtype=pl.Float64 if one is None else None) for name, one in row.items()}
        )

    @cached_property
    def accuracy(self) -> pl.DataFrame:
        """A row per measurement: while a `task` was learned, after so many epochs, on a `tested` task. Tasks count from
        1, agents from 0; epoch 0 is before any training on the task, the last is after all of it. Accuracy is from 0 to
        1; where numbers are predicted, it is R2. Where sites have names, `site` is the agent's."""
        return self._named(self._table("accuracy").with_columns(pl.col("task", "tested") + 1), agent="site")

    @cached_property
    def ledger(self) -> pl.DataFrame:
        """A row per message: who sent whom what, when, how large, and what became of it. Tasks count from 1."""
        if not (self.folder / "ledger.parquet").exists():
            return unposted()
        found = self._table("ledger").with_columns(pl.col("task") + 1)
        return self._named(found, sender="sender_site", receiver="receiver_site")

    def predictions(self, task: int | None = None) -> pl.DataFrame:
        """What every agent said of every test row at the end of a task, counted from 1, of the last if none is said: a
        row each with its label, the prediction and its confidence. Only a run with `record={"predictions": True}` keeps
        it.

        >>> import shoal
        >>> tasks = {"count": 2, "classes": 2, "train": 8, "validation": 4, "initial": 1}
        >>> learner = {"epochs": 2, "batch": 8, "memory": 4}
        >>> fleet = shoal.Fleet("digits", agents=2, tasks=tasks, learner=learner, record={"predictions": True})
        >>> fleet.run().predictions().columns
        ['seed', 'agent', 'tested', 'row', 'label', 'prediction', 'confidence']
        """
        from shoal.runs.kept import predictions_of

        count = settings_of(self.folder)["tasks"]["count"]
        found = predictions_of(self.folder, count if task is None else task).with_columns(pl.col("tested") + 1)
        return self._named(found, agent="site")

    @property
    def agents(self) -> "list[Agent]":
        """All agents as they are at the end, those of the first seed first; one that diverged is warned of."""
        for agent in self._agents:
            if agent.ended:
                warnings.warn(agent.ended, stacklevel=2)
        return [replace(agent) for agent in self._agents]

    @cached_property
    def _agents(self) -> "list[Agent]":
        """All agents, of which copies are taken out."""
        from shoal.keep.agent import agents_of

        return agents_of(self.folder, self.settings)

    def agent(self, name: str | int, seed: int | None = None) -> "Agent":
        """The agent of a site, by its name, or by its number, counted from 0; of the first seed, if none is said. It is
        as it was at the end of the run, whatever one that was taken out before has learned; one that diverged is warned
        of.

        >>> import shoal
        >>> tasks = {"count": 2, "classes": 2, "train": 8, "validation": 4, "initial": 1}
        >>> fleet = shoal.Fleet("digits", agents=2, tasks=tasks, learner={"epochs": 2, "batch": 8, "memory": 4})
        >>> len(fleet.run().agent(1, seed=0).tasks)
        2
        """
        from shoal.keep.agent import chosen

        found = replace(chosen(self._agents, name, seed))
        if found.ended:
            warnings.warn(found.ended, stacklevel=2)
        return found

    def continue_with(
        self, data: Any, out: str | Path | None = None, progress: "bool | Callable[[Moment], None] | None" = None
    ) -> "Result":
        """Let the whole fleet go on with rows that have come since, as further tasks: from its weights, memories,
        modules and ledger. It comes to what one run over all tasks would have come to, bit for bit.

        The data that was learned from names its tasks (`task=...`); `data` has the same columns, and tasks of its own,
        or is one task. What cannot go on says why. With a folder as `out` it is kept there with all its rows, so that
        it can go on once more, also by command; the same call again ends what was stopped, or reads what is finished.

        >>> import numpy as np, shoal
        >>> x, site = np.random.default_rng(0).normal(size=(80, 3)), ["north", "south"] * 40
        >>> first = shoal.Data.from_arrays(x, x[:, 0] > 0, agent=site, task=[1] * 80)
        >>> week = shoal.Fleet(first, model="mlp", learner={"epochs": 2, "memory": 4}).run()
        >>> after = week.continue_with(shoal.Data.from_arrays(x + 1, x[:, 1] > 0, agent=site))
        >>> len(after.agent("north").tasks)
        2
        """
        from shoal.keep.going import brought, go_on, settings_for
        from shoal.python.progress import shown

        grown = settings_for(self.settings, brought(data).bank)
        folder = Path(tempfile.mkdtemp(prefix="shoal-")) if out is None else Path(out).expanduser()
        try:
            with shown(grown, progress) as show:
                go_on(self.folder, self.settings, grown, folder, show, out is not None)
        except BaseException:
            if out is None:
                shutil.rmtree(folder, ignore_errors=True)
            raise
        return Result(folder, grown, temporary=out is None)

    def _named(self, table: pl.DataFrame, **columns: str) -> pl.DataFrame:
        """A table with the names of sites beside the numbers of agents, where sites have names."""
        sites = sites_of(material_of(self.folder, []), settings_of(self.folder)["agents"])
        if not sites:
            return table
        for agent, site in columns.items():
            names = pl.Series(site, [sites[one] for one in table[agent]], dtype=pl.String)
            table = table.insert_column(table.get_column_index(agent) + 1, names)
        return table

    def _table(self, name: str) -> pl.DataFrame:
        with usable(self.folder):
            return table_of(self.folder, name)

    def curves(self, *others: "Result | str | Path") -> "alt.TopLevelMixin":
        """Learning curves, also of other results beside this one, as a chart that a notebook shows."""
        from shoal.report import needs

        needs()
        import altair as alt

        from shoal.report import charts, compare, page
        from shoal.report.style import Style
        from shoal.runs import read

        runs, _ = read.gather([self.folder, *(result_of(one).folder for one in others)])
        groups = compare.groups(runs)
        style = Style(False, tuple(compare.method_order(groups)))
        found = []
        for group in groups:
            figure = charts.learning(group, style)
            if figure is None:
                count = settings_of(self.folder)["tasks"]["count"]
                raise UserError(
                    f"there are no learning curves: all {count} tasks are initial ones, which are "
                    "learned together; lower tasks.initial"
                )
            found.append(alt.Chart.from_dict({**figure.spec, "datasets": page.still(figure)}))
        return found[0] if len(found) == 1 else alt.vconcat(*found)

    def report(self, out: str | Path | None = None) -> Path:
        """Write the page of the run, and say where it is: `out`, or report.html in the run directory, or here where
        that is not kept."""
        from shoal.report import needs

        needs()
        from shoal.report import compare, page
        from shoal.runs import read

        home = Path() if self._temporary else self.folder
        file = home / "report.html" if out is None else Path(out).expanduser()
        runs, notes = read.gather([self.folder])
        page.save(file, page.page(compare.groups(runs), notes))
        return file

    def __repr__(self) -> str:
        row = self.summary.row(0, named=True)
        error = row["final_accuracy_se_seeds"]
        more = "" if error is None else f" ± {error:.2f}"
        area = "" if row["auc_normalised"] is None else f", AUC {row['auc_normalised']:.2f} %"
        cost = f", {shown(row['bytes_per_link_task'])} per link and task" if row["messages"] else ""
        where = "" if self._temporary else f", in {self.folder}"
        what = "accuracy" if material_of(self.folder, []).get("predicts") is None else "R²"
        return (
            f"Result of {row['agents']} agents, {row['seeds']} seed{'s' * (row['seeds'] > 1)}, sharing "
            f"{row['sharing']}: final {what} {row['final_accuracy']:.2f}{more} %{area}{cost}{where}"
            + f"; {self.note}"
            * bool(self.note)
        )

    def _repr_html_(self) -> str:
        shown_ = self.summary.select(FIRST[6:])
        return f"<p>{escape(repr(self))}</p>{shown_._repr_html_()}"


def result_of(said: Any) -> Result:
    """A result, or the one in a run directory."""
    if isinstance(said, Result):
        return said
    if isinstance(said, (str, Path)):
        return Result.read(said)
    raise UserError(f"cannot compare {said!r}; give results of fleet.run(), or run directories")


def compare(result: Result | str | Path, *others: Result | str | Path) -> pl.DataFrame:
    """What a result has more than each of the others, paired over the seeds that both have: the mean difference, its
    standard `error`, the 95 % interval from `low` to `high`, and `p` of a paired t-test, neither of them
    corrected for how many are compared.

    `final_accuracy` and `auc_normalised` are in percentage points, `auc` in the paper's unit.

    >>> import shoal
    >>> tasks = {"count": 2, "classes": 2, "train": 8, "validation": 4, "initial": 1}
    >>> learner = {"epochs": 5, "batch": 8, "memory": 4}
    >>> fleet = shoal.Fleet("digits", agents=2, tasks=tasks, learner=learner, sharing="fedavg")
    >>> table = shoal.compare(fleet.run(seeds=2), fleet.alone().run(seeds=2))
    >>> table.columns
    ['runs', 'metric', 'difference', 'error', 'low', 'high', 'p', 'seeds']
    >>> table["runs"][0], table["seeds"][0]
    ('fedavg - shares nothing', 2)
    """
    from shoal.report.compare import labels
    from shoal.runs import read

    if not others:
        raise UserError(
            "there is nothing to compare with; give two results or more: compare(result, fleet.alone().run())"
        )
    found = [result_of(one) for one in (result, *others)]
    runs = []
    for one in found:
        with usable(one.folder):
            runs.append(read.read(one.folder)[0])
    names = labels(runs, {run.folder: run.method for run in runs})
    alike([(name, run.settings) for name, run in zip(names, runs, strict=True)])
    here = scores(found[0].folder)
    rows = []
    for name, other in zip(names[1:], found[1:], strict=True):
        there = scores(other.folder)
        if not here.keys() & there.keys():
            raise UserError(
                f"{names[0]} and {name} have no seed in common ({spoken(here)}; {spoken(there)}) and cannot be paired; "
                "run them with the same `seed`"
            )
        shown = ("final_accuracy", "auc_normalised", "auc", *own_of(here, there))
        gains = {metric: paired(here, there, metric) for metric in shown}
        rows += [{"runs": f"{names[0]} - {name}", "metric": metric, **columns(gain)} for metric, gain in gains.items()]
    numbers = dict.fromkeys(("difference", "error", "low", "high", "p"), pl.Float64)
    return pl.DataFrame(rows, schema={"runs": pl.String, "metric": pl.String, **numbers, "seeds": pl.Int64})


def columns(gain: Gain | None) -> dict[str, float | None]:
    """A difference as columns; nothing where it is not defined."""
    if gain is None:
        return {}
    low, high = gain.interval or (None, None)
    return {"difference": gain.mean, "error": gain.error, "low": low, "high": high, "p": gain.p, "seeds": gain.seeds}


def spoken(seeds: Any) -> str:
    """Seeds in a few words."""
    return f"seeds {min(seeds)} to {max(seeds)}" if len(seeds) > 1 else f"seed {min(seeds)}"
