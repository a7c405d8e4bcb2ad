"""Health: agents that diverged, and agents that learned nothing, in words.

An agent whose weights, moments or training loss are no finite numbers any more has *ended*: from there on it learns and
sends nothing, and is not measured (`shoal/fleet/health.py`). Means over agents leave it out, whole: what it came to
before it ended is no final accuracy, and chance, which is what it comes to afterwards, says nothing of how agents learn
or share. A method can look better than it is if it loses its weakest agents, so that whoever shows a mean says how many
agents it leaves out: `sentences` has the words for the summary, the terminal and the report.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import polars as pl

JOINT = -1  # the agent that learns the common start of a seed
# Why an agent has ended, by the word in the record, of one agent and of several.
CAUSES = {
    "weights": ("its weights are no longer finite numbers", "their weights are no longer finite numbers"),
    "moments": (
        "its moments in Adam are no longer finite numbers",
        "their moments in Adam are no longer finite numbers",
    ),
    "loss": ("its training loss is no longer a finite number", "their training loss is no longer a finite number"),
}
SHOWN = 8  # agents that are named in a sentence, at most


class End(NamedTuple):
    """The end of an agent: in which task and after how many epochs of it, both counted from 1, and why."""

    seed: int
    agent: int
    task: int
    epoch: int
    why: str


def ends_in(training: "pl.DataFrame") -> list[End]:
    """The agents that have ended, as the table of training says."""
    import polars as pl

    there = training.filter(pl.col("ended").is_not_null())
    rows = there.select("seed", "agent", pl.col("task") + 1, "ended", "why").rows()
    return sorted(End(*row) for row in rows)


def ended(ends: Iterable[End], sites: Sequence[str] = ()) -> list[str]:
    """A sentence for all agents of a seed that ended at the same moment for the same reason; they are called by their
    `sites`, where these have names."""
    groups: dict[tuple[int, int, int, str], list[int]] = {}
    for end in sorted(set(ends)):
        groups.setdefault((end.seed, end.task, end.epoch, end.why), []).append(end.agent)
    found = []
    for (seed, task, epoch, why), agents in groups.items():
        own = [agent for agent in agents if agent != JOINT]
        who = f"{listed(own, sites)} of seed {seed}" if own else f"the common start of seed {seed}"
        rest = "" if own else ", and all agents that would begin from it end with it"
        cause = CAUSES.get(why, (why, why))[len(own) > 1]
        found.append(f"{who} diverged in task {task}, epoch {epoch}: {cause}{rest}")
    return found


def listed(agents: Sequence[int], sites: Sequence[str] = ()) -> str:
    """Some agents by their sites, or by their numbers."""
    if sites:
        named = [sites[agent] for agent in agents]
        if len(named) > SHOWN:
            return f"{len(named)} agents ({', '.join(named[:SHOWN])}, ...)"
        return " and ".join([", ".join(named[:-1]), named[-1]][len(named) == 1 :])
    if len(agents) == 1:
        return f"agent {agents[0]}"
    if len(agents) > SHOWN:
        return f"{len(agents)} agents ({', '.join(map(str, agents[:SHOWN]))}, ...)"
    return f"agents {', '.join(map(str, agents[:-1]))} and {agents[-1]}"


def above(training: "pl.DataFrame", sites: Sequence[str] = ()) -> str:
    """A sentence if agents ended a task with a training loss above that of guessing; empty: none did."""
    import polars as pl

    worse = training.filter(pl.col("loss").is_infinite() | (pl.col("loss") > pl.col("guessing")))
    if not len(worse):
        return ""
    lanes, tasks = worse.select("seed", "agent").n_unique(), len(worse)
    worst = worse.sort("loss", descending=True).row(0, named=True)
    who = "the common start" if worst["agent"] == JOINT else listed([worst["agent"]], sites)
    return (
        f"{lanes} of {training.select('seed', 'agent').n_unique()} agents ended a task with a training loss above that "
        f"of guessing ({tasks} task{'s' * (tasks > 1)} in all; the worst: {who} of seed {worst['seed']}, task "
        f"{worst['task'] + 1}, {worst['loss']:.3g} where guessing has {worst['guessing']:.3g}); look at "
        "learner.rate, at learner.epochs and at how the data is scaled"
    )


def sentences(training: "pl.DataFrame", sites: Sequence[str] = ()) -> list[str]:
    """What a reader must know of a run, as its table of training says."""
    ends = ends_in(training)
    found = ended(ends, sites)
    if ends:
        lanes = training.select("seed", "agent").n_unique()
        count = len({(end.seed, end.agent) for end in ends})
        found.append(f"{count} of {lanes} agents diverged; means over agents leave them out")
    worse = above(training, sites)
    return [*found, worse] if worse else found
