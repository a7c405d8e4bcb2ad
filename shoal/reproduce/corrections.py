"""What we got wrong before, and how we found out: every number before and after comes from the CSVs."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from shoal.reproduce import budget, claims, draws, given, results
from shoal.reproduce.claims import Key
from shoal.reproduce.table1 import ALONE, settings
from shoal.runs.cells import Row
from shoal.study.paired import SURE, Scores, paired

Tables = Mapping[str, Sequence[Row]]


def section(tables: Tables, each: Mapping[Key, Scores]) -> list[str]:
    """The whole section, a paragraph for each mistake."""
    lines = [
        "## What we got wrong before, and how we found out",
        "",
        "An audit wrote learners, formulas, statistics and prices a second time, independently, and found them right; "
        "and it found the following, which is mended. *Before* is what shoal 0.1 said, *now* what this version says.",
        "",
    ]
    found = [
        tasks(tables),
        base(tables),
        module(tables),
        denominators(tables),
        slopes(tables),
        leak(tables),
        divergence(),
        chances(each),
    ]
    return [*lines, *(f"{at}. {words}" for at, words in enumerate(found, 1)), ""]


def tasks(tables: Tables) -> str:
    effect = draws.effect(tables["table1"])
    return (
        '**The draws of tasks.** Before: "we found no cause" for rows that were below the paper\'s. Found out by a '
        "model of how hard pairs of classes are: our seeds had drawn harder ones, most of all on kmnist. Now protocol "
        "`paper` repeats the authors' draws number by number; whether that brings numbers closer, only cells that were "
        "trained with both can say. " + (effect or "No cell has been trained with both draws yet.")
    )


def base(tables: Tables) -> str:
    said = (
        "**The base of gains.** Before: gains under `paper` were over vanilla, whose agents begin with tasks of their "
        "own on the MNISTs, while agents that share begin together: different tasks were compared. Found out by "
        "averaging that seemed to lose the same on every graph, even where hardly anybody has a neighbour. Now the "
        "base is agents alone with the same start (the row `alone`), and what they differ by from vanilla is shown: "
        f"{starts(tables['table1'])}."
    )
    rows = [row for row in tables.get("topology", ()) if row["mode"] != "alone"]
    mended = [row for row in rows if row.get("base") == ALONE]
    worst = [row for row in mended if (row["dataset"], row["model"], row["mode"]) == ("kmnist", "modular", "federated")]
    if worst:
        before, now = (fmean(row[name] for row in worst) for name in ("gain_vanilla", "gain"))
        said += (
            f" Averaging modular nets on kmnist, the mean over {len(worst)} graphs: before {before:+.2f} %, now "
            f"{now:+.2f} % (2 seeds)."
        )
    if len(mended) < len(rows):
        said += (
            f" {len(rows) - len(mended)} of the {len(rows)} runs on other graphs are still over vanilla, because their "
            "agents alone have not been run."
        )
    return said


def starts(rows: Sequence[Row]) -> str:
    """What agents alone have more with a common start than with starts of their own."""
    found = []
    here = {(*draws.key_of(row), row.get("draw"), row["seeds"]): row for row in rows}
    for (protocol, dataset, model, method, draw, seeds), row in here.items():
        other = here.get((protocol, dataset, model, "vanilla", draw, seeds))
        if method == ALONE and other:
            gaps = [f"{row[name] - other[name]:+.2f}" for name in ("final_accuracy", "auc")]
            found.append(f"{dataset} {model} {' / '.join(gaps)} ({protocol}, {seeds} seeds)")
    return f"final accuracy / AUC {', '.join(found)}" if found else "not run yet"


def module(tables: Tables) -> str:
    said = (
        "**What of a received module helps.** Before: the results credited the module's weights with the whole gain. "
        "Found out by receiving a *fresh* module with the sender's head and structure. "
    )
    rows = {row["parts"]: row for row in tables.get("parts", ()) if row["routes"] == "all"}
    if not rows:
        return (
            f"{said}On one seed most of the gain stayed. `shoal transfer RUN --parts` measures it; its table over four "
            "seeds is not there yet."
        )
    one = rows["module"]
    named = {"module+structure+head": "all three parts", "module": "the weights alone"}
    named |= {"structure+head": "structure and head without the weights", "head": "the head alone"}
    gains = ", ".join(f"{words} {gained(rows[parts])}" for parts, words in named.items())
    return (
        f"{said}Now, in points of validation accuracy over a fresh start after {one['epochs']} epochs, {one['pairs']} "
        f"routes of {one['seeds']} seeds: {gains}."
    )


def gained(row: Row) -> str:
    error = row["gain_se"]
    return f"{row['gain']:+.1f}" + ("" if error is None else f" ± {error:.1f}")


def denominators(tables: Tables) -> str:
    said = (
        "**Two denominators in one table.** Before: the table of costs divided floats by the tasks in which something "
        "was exchanged, and bytes by all six. Found out by modules that had fewer than four bytes per float. Now "
        "both are per link and task in which the link was used"
    )
    row = {(*draws.key_of(one), former): one for one in tables["table1"] for former in (one.get("draw"),)}
    one = row.get(("paper", "mnist", "modular", "modmod", "agent"))
    if one and one["bytes_total"]:
        fleet = settings("mnist", "modular", "modmod", "paper", one["seeds"])
        links = fleet.agents * (fleet.agents - 1) * fleet.seeds * (fleet.tasks.count - fleet.tasks.initial)
        said += f": modmod on mnist before {one['bytes_total'] / links:,.0f} bytes, now {results.per_link(one):,.0f}"
    size = given.given(settings("mnist", "modular", "fedavg", "fair", 1)).total
    return (
        f'{said}. And "nothing used that was not sent and paid for" left out what every agent is given: {size:,} '
        "floats on the MNISTs, most of them the images of the common start ([what agents are given]"
        "(#what-agents-are-given))."
    )


def slopes(tables: Tables) -> str:
    said = (
        "**Slopes without errors, and sentences on means.** Before: the slopes of the budget were means over datasets "
        "without an error, and a sentence on the mean hid that the datasets disagree. Now each has its error over "
        "seeds, each dataset stands beside the mean"
    )
    rows = budget.conclude({"budget": list(tables["budget"]), "budget_seeds": list(tables.get("budget_seeds", ()))})
    here = [one for one in rows["slopes"] if (one["model"], one["mode"]) == ("monolithic", "data")]
    if len(here) > 1:
        each = ", ".join(f"{one['datasets']} {results.slope(one)}" for one in here[1:])
        said += f": images in monolithic nets {results.slope(here[0])}, but {each}"
    return f"{said}. The clock of Equation 1 is in [differences](docs/differences.md)."


def leak(tables: Tables) -> str:
    said = (
        "**Validation images that came back as answers.** Before: every agent split the training images for itself, so "
        "that 4 % of an agent's validation images were training images of a neighbour, and could come back. Now, under "
        "`fair`, the fleet splits once, and nobody validates on what another trains on. "
    )
    found = {}
    for draw in ("agent", "fleet"):
        own: dict[str, Scores] = {"vanilla": {}, "data": {}}
        for row in tables["seeds"]:
            here = (*draws.key_of(row)[:3], row.get("draw"), row["seeds"])
            if here == ("fair", "mnist", "monolithic", draw, 4) and row["method"] in own:
                own[row["method"]][row["seed"]] = {"final_accuracy": row["final_accuracy"]}
        found[draw] = paired(own["data"], own["vanilla"], "final_accuracy")
    before, now = found["agent"], found["fleet"]
    if before is None or now is None or before.error is None or now.error is None:
        return said + "The difference that it makes has not been measured yet."
    return said + (
        f"Images bring monolithic nets on mnist (4 seeds each) before {before.mean:+.2f} ± {before.error:.2f}, now "
        f"{now.mean:+.2f} ± {now.error:.2f} points of final accuracy; the tasks of the two are drawn anew, so that the "
        "difference is also luck."
    )


def divergence() -> str:
    return (
        "**Silent divergence.** Before: a run with `learner.rate=1e3` ended at chance with finite weights and said "
        "nothing. Now the training loss at the end of every task, the loss of guessing and the norm of the weights are "
        "in the record (training.parquet), and a run whose loss ends above that of guessing says so."
    )


def chances(each: Mapping[Key, Scores]) -> str:
    said = (
        "**p-values as if each were the only one.** Before: a claim held if every rival was below with p < "
        f"{SURE}. Now p is corrected by Holm's rule for the number of rivals, and beside an undecided difference "
        "stands how many seeds would decide it. "
    )
    counts = []
    for protocol in ("paper", "fair"):
        found = claims.judged(protocol, each)
        shown = [gap.p is not None and gap.p < SURE for one in found for gap in one.gaps.values()]
        kept = [one.shows(rival) for one in found for rival in one.gaps]
        if found:
            counts.append(f"`{protocol}`: of {len(shown)} differences {sum(shown)} were shown before, {sum(kept)} now")
    return (said + "; ".join(counts)).rstrip(" .") + "."
