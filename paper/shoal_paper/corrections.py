"""What we got wrong before, and how we found out: every number before and after comes from the CSVs."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from shoal.runs.paired import SURE, Scores, chance, paired
from shoal.study.cells import Row
from shoal_paper import budget, claims, compression, confounds, draws, given, grid, memory, results
from shoal_paper.claims import Key
from shoal_paper.overview import CLOSE, signed
from shoal_paper.table1 import ALONE, FORMER, former, settings

Tables = Mapping[str, Sequence[Row]]
HYBRID = "the hybrid ends above its parts"


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
        base(tables) + rivals(each),
        module(tables),
        denominators(tables),
        slopes(tables),
        leak(tables),
        divergence(),
        chances(each),
        sources(),
        *confounded(tables.get(confounds.NAME, ())),
        *begun(each),
        thrown_away(tables.get(grid.NAME, ())),
        chosen_by_test(),
        *remembered(tables),
        *coded(tables.get(compression.COMPRESSION, ())),
    ]
    lines += [*(f"{at}. {words}" for at, words in enumerate(found, 1)), ""]
    return [*lines, *draws.section(tables["table1"], tables.get("weights", ()))]


def tasks(tables: Tables) -> str:
    effect = draws.effect(tables["table1"])
    below = [row for row in tables["table1"] if row["protocol"] == "paper" and former(row)]
    before = f"; {draws.near(below)} numbers were within {CLOSE} of the paper's" if draws.gaps(below) else ""
    return (
        f'**The draws of tasks.** Before: "we found no cause" for rows that were below the paper\'s{before}. Found out '
        "by a model of how hard pairs of classes are: our seeds had drawn harder ones, most of all on kmnist. Now "
        "protocol `paper` repeats the authors' draws number by number. "
        + (
            f"{effect} [Below](#table-1-with-both-draws) they stand side by side."
            if effect
            else "No cell has been trained with both draws yet."
        )
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
    worst = [
        row
        for row in rows
        if (row["dataset"], row["model"], row["mode"], row["draw"]) == ("kmnist", "modular", "federated", FORMER)
        and row["gain"] is not None
    ]
    if worst:
        before, now = (fmean(row[name] for row in worst) for name in ("gain_vanilla", "gain"))
        said += (
            f" Averaging modular nets on kmnist, the mean over {len(worst)} graphs: before {before:+.2f} %, now "
            f"{now:+.2f} % ({worst[0]['seeds']} seeds)."
        )
    said += values(tables)
    waiting = sum(row["gain"] is None for row in rows)
    if waiting:
        said += f" {waiting} of the {len(rows)} runs on other graphs have no gain until their agents alone are run."
    return said


def rivals(each: Mapping[Key, Scores]) -> str:
    """How modmod and data compare by accuracies, and by what each gains over agents alone that begin as it does."""
    claim = claims.CLAIMS[0]
    found = claims.compared(claim, claim.datasets, "paper", each)
    if found is None or "data" not in found.gaps:
        return ""
    raw = []
    for dataset in claim.datasets:
        here, there = (each.get(("paper", dataset, claim.model, method), {}) for method in (claim.method, "data"))
        if gap := paired(here, there, claim.metric):
            raw.append(gap.mean)
    return (
        " Claims compared accuracies of such rows, too; now, where two rows begin with different tasks, what each "
        f"gains over its own base is compared: modmod against data in modular nets, {claims.METRICS[claim.metric]}, "
        f"{found.gaps['data'].seeds} seeds, before {fmean(raw):+.2f}, now {signed(found.gaps['data'])}."
    )


def values(tables: Tables) -> str:
    """The value of budget over the paper's base and over agents alone with the same start, where both are known."""
    found = []
    for (model, mode), some in budget.grouped(tables.get("budget", ()), ("model", "mode")).items():
        rows = [row for row in some if former(row) and row["gain"] is not None and row["gain_vanilla"] is not None]
        if mode == "alone" or not any(row["base"] == ALONE for row in rows):
            continue
        both = ([{**row, "gain": row[name]} for row in rows] for name in ("gain_vanilla", "gain"))
        spots = (budget.points(same) for same in both)
        before, now = (budget.value([one.gain for one in same], [one.setting for one in same]) for same in spots)
        found.append(f"{mode} in {model} nets before {before:.1e}, now {now:.1e}")
    return f" Value of budget, % per float: {'; '.join(found)}." if found else ""


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
        "Found out by receiving a *fresh* module with the sender's head and structure. Then it credited the sender's "
        "head where no class is in common; but such a head is zero, and with nothing received a zero head does as much "
        "(the fresh one is random). "
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
    named |= {"zero head": "a zero head and nothing received"}
    gains = ", ".join(f"{words} {gained(rows[parts])}" for parts, words in named.items() if parts in rows)
    return (
        f"{said}Now, in points of validation accuracy over a fresh start after {one['epochs']} epochs, {one['pairs']} "
        f"routes of {one['seeds']} seeds: {gains}.{zero(tables.get('heads', ()))}"
    )


def zero(rows: Iterable[Row]) -> str:
    """What heads that begin at zero change in whole runs."""
    kept = {(row["dataset"], row["method"], row["head"]): row for row in rows}
    said = [
        f"{dataset} {kept[dataset, 'modmod', 'random']['auc_difference_vanilla']:+.2f} before, "
        f"{kept[dataset, 'modmod', 'random']['auc_difference']:+.2f} now"
        for dataset in dict.fromkeys(name for name, *_ in kept)
        if (dataset, "modmod", "random") in kept
    ]
    if not said:
        return ""
    return (
        " So do whole runs: before, all that modmod gains over agents alone was credited to modules; over agents alone "
        f"whose heads begin at zero it gains less (AUC, `fair`: {'; '.join(said)})."
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
        said += (
            f": modmod on mnist, in the run of shoal 0.1, before {one['bytes_total'] / links:,.0f} bytes, now "
            f"{results.per_link(one):,.0f}"
        )
    size = given.given(settings("mnist", "modular", "fedavg", "fair", 1)).total
    return (
        f'{said}. And "nothing used that was not sent and paid for" left out what every agent is given: {size:,} '
        "floats on the MNISTs, most of them the images of the common start ([what agents are given]"
        "(#what-agents-are-given))."
    )


def slopes(tables: Tables) -> str:
    said = (
        "**Slopes without errors, and sentences on means.** Before: the slopes of the budget were means over datasets "
        "without an error, and a sentence on the mean hid that the datasets disagree. Now each dataset stands beside "
        "the mean, and each has its error where there are seeds enough for one"
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
        "that an image that one validates on can be a training image of another, and come back. Now, under `fair`, the "
        "fleet splits once, and nobody validates on what another trains on. "
    )
    rows = [row for row in tables.get("leak", ()) if row["own_validation"] == "keep"]
    if not rows:
        return said + "The difference that it makes has not been measured yet."
    found = []
    for row in rows:
        gaps = [
            f"{row[f'{name}_difference']:+.2f} ± {row[f'{name}_difference_se']:.2f} (p "
            f"{chance(row[f'{name}_difference_p'])})"
            for name in ("final_accuracy", "auc")
        ]
        found.append(f"{row['model']} nets {' / '.join(gaps)}")
    one = rows[0]
    return said + (
        f"Measured on {one['dataset']} with images shared, {one['seeds']} seeds, the same tasks and splits: "
        f"{one['shared']:.1f} % of an agent's validation images are training images of another; learning those that "
        "come back instead of leaving them out (`sharing.recv.own_validation`) changes final accuracy / AUC by "
        f"{', '.join(found)}."
    )


def confounded(rows: Iterable[Row]) -> list[str]:
    """Modules against images, under all four combinations of two settings; nothing, if they have not been run."""
    found = [
        f"{row['dataset']}, images asked for about {'all tasks' if scope == 'all' else 'the current task'}, heads "
        f"{row['head']}: {row[f'auc_difference_{scope}']:+.2f} ± {row[f'auc_difference_se_{scope}']:.2f}"
        for row in rows
        if row["method"] == "modmod"
        for scope in confounds.SCOPES
        if row[f"auc_difference_{scope}"] is not None
    ]
    if not found:
        return []
    return [
        "**Modules against images.** Before: README called it shown that nets learn faster with modules than with "
        "images. Found out by giving images what modules had: questions about the task that is learned, and heads that "
        f"begin at zero. Now, AUC of modmod less that of images: {'; '.join(found)}."
    ]


def begun(each: Mapping[Key, Scores]) -> list[str]:
    """The hybrid above its parts, where heads of modular nets begin at random and where they begin at zero."""
    claim = next(one for one in claims.CLAIMS if one.words == HYBRID and one.model == "modular")
    found = claims.compared(claim, claim.datasets, "fair", each)
    if found is None:
        return []
    gaps = ", ".join(f"{signed(gap)} over {name}" for name, gap in found.gaps.items())
    return [
        "**The hybrid in modular nets.** Before: README said that all at once ends above images and above modules "
        "alone. Found out by choosing how heads begin by what agents alone know of their validation rows: zero heads "
        "bring half a point, a part of what had been credited to sharing (`net.head`). Now, final accuracy of the "
        f"hybrid with zero heads for everybody: {gaps}, {found.verdict}."
    ]


def thrown_away(rows: Iterable[Row]) -> str:
    """What the grid says since every learner learns from what it is sent, if it has been run."""
    gains = {
        (row["dataset"], row["method"], row["learner"]): row["final_accuracy_difference"]
        for row in rows
        if row["learner"] in grid.LEARNERS
    }
    spans = [
        f"{name} bring {min(found):+.1f} to {max(found):+.1f} points on {dataset}"
        for dataset in grid.DATASETS
        for name, method in (("images", "data"), ("averaged models", "fedavg"))
        if (found := [gain for key, gain in gains.items() if key[:2] == (dataset, method)])
    ]
    return (
        "**Received images that were thrown away.** Before: learners other than replay left out received images of "
        "earlier tasks after paying for them, and the grid of learners and modes compared what was left. Found out by "
        "changing one line. Now every learner learns from what it is sent, or `shoal check` says that it does not"
        + (f". The grid was run anew: over learners, {', '.join(spans)}." if spans else ".")
    )


def chosen_by_test() -> str:
    return (
        "**Advice that test data had chosen.** Before: `shoal advise` ranked by test accuracy and measured on the same "
        "seeds. Now validation rows choose on half of the seeds, and the others measure."
    )


def remembered(tables: Tables) -> list[str]:
    """What images of others bring, beside more of one's own; nothing, if that has not been run."""
    found = memory.gains(tables.get(memory.NAME, ()), tables["seeds"])
    words: dict[int | str, str] = {
        "data": "images of others",
        "data over 64": "of these beyond 64 own images",
        64: "64 own images",
    }
    said = [
        f"{dataset}, {words[kind]} {signed(found[dataset, kind]['final_accuracy'])}"
        for dataset in dict.fromkeys(name for name, _ in found)
        for kind in words
        if (dataset, kind) in found
    ]
    if not said:
        return []
    return [
        "**Images of others, and memory.** Before: README credited sharing with all that images bring to nets in one "
        "piece. Found out by agents alone that remember as many images of their own as others do of theirs and of "
        f"others together. Now, final accuracy over agents that remember {memory.USUAL}: {'; '.join(said)}."
    ]


def coded(rows: Sequence[Row]) -> list[str]:
    """Codecs beside agents that send nothing; nothing, if those have not been run."""
    alone = [row for row in rows if row["method"] == "vanilla" and row["to_fedavg"] is not None]
    return [
        "**Codecs that lose nothing.** Before: the results said that a tenth of the bytes loses nothing of FedAvg. "
        f"Found out by sending nothing: agents alone end {row['to_fedavg']:+.2f} ± {row['to_fedavg_se']:.2f} from "
        "FedAvg. Now the page says that this table cannot tell codecs apart, because FedAvg has no gain to lose there."
        for row in alone
    ]


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
        gaps = [gap.p for one in claims.judged(protocol, each) for gap in one.gaps.values()]
        if gaps:
            raw = sum(p is not None and p < SURE for p in gaps)
            shown = sum(one.shows(rival) for one in claims.judged(protocol, each) for rival in one.gaps)
            counts.append(f"`{protocol}`: of {len(gaps)} differences {raw} have such a p, {shown} by the rule")
    return (said + "; ".join(counts)).rstrip(" .") + "."


def sources() -> str:
    return (
        "**Numbers without a source.** Before: the numbers on dropout, transfer, the mixed fleet and CIFAR-100 in "
        "[results](docs/results.md), and all sentences in README, stood in no file. Now every table and every finding "
        "is made from a CSV, and a test compares them; sentences around the tables are written by hand."
    )
