"""CIFAR-100, reduced for CPUs: what it has less of, how it was chosen, and its gains beside the paper's."""

from collections.abc import Mapping
from statistics import fmean

from shoal.runs.paired import SURE, Gain, Scores, holm
from shoal.settings.groups import Settings
from shoal.study.cells import Row
from shoal_paper.claims import METRICS, Key
from shoal_paper.overview import gain, signed
from shoal_paper.results import difference, differences_of, lines_of
from shoal_paper.table1 import MODELS, PAPER, REDUCED, RHYTHM, SMALL, settings

FULL, FINAL = "cifar100", "final_accuracy"
ROUNDS = 101  # the maximum of the paper's AUC
VERDICT = {True: "same sign", False: "**opposite sign**", None: "not shown"}


def section(best: Mapping[Key, Row], each: Mapping[Key, Scores]) -> list[str]:
    """The column of CIFAR-100: levels are others than the paper's, gains and their order may be compared."""
    rows = {key: row for key, row in best.items() if key[1] == SMALL and key[2:] in PAPER}
    if not rows:
        return []
    lines = [
        "## CIFAR-100, reduced",
        "",
        f"**Not the paper's size:** `{SMALL}` has {reduction()}; images are asked for every {RHYTHM['simp']} epochs, "
        "models averaged after each. Only gains over agents alone with the same model and the same start can be set "
        "beside the paper's, which are over vanilla, with care; without such agents there is no gain (images go "
        "between agents with starts of their own, all else between agents that begin together). modmod and the modular "
        "hybrid leave out the adaptation epoch, as the paper's rows of CIFAR-100 do, and agents alone do not. Errors "
        "are over seeds, AUC is in % of its maximum. *Shown* says whether our gain of final accuracy is shown to have "
        "the sign of the paper's (a paired t-test, p < 0.05, corrected for the rows of this table by Holm's rule). In "
        "full it is "
        "`shoal reproduce table1 --dataset cifar100`, some 17 days on two cores by the speed we measured.",
        "",
    ]
    head = ["protocol", "model", "method", "final", "gain", "the paper's, in full", "AUC", "gain"]
    head += ["the paper's, in full", "shown", "seeds", "run", "commit"]
    shown = signs({key: more for key in rows if (more := gain(key, FINAL, each))})
    lines += lines_of(head, [line(key, row, each, shown.get(key, 0)) for key, row in rows.items()])
    return [*lines, "", *order(rows, each), ""]


def signs(gains: Mapping[Key, Gain]) -> dict[Key, int]:
    """Of each gain 1 or -1 if its sign is shown, corrected for their number by Holm's rule, else 0."""
    known = {key: p for key, more in gains.items() if (p := more.p) is not None}
    chances = zip(known, holm(list(known.values())), strict=True)
    return {key: (1 if gains[key].mean > 0 else -1) if p < SURE else 0 for key, p in chances}


def line(key: Key, row: Row, each: Mapping[Key, Scores], sign: int) -> list[str]:
    protocol, _, model, method = key
    cells = []
    for name in METRICS:
        scale = scale_of(name)
        more = gain(key, name, each)
        full = "" if method == "vanilla" else f"{theirs(model, method, name):+.2f}"
        cells += [level(row, name), signed(more and more.times(scale)), full]
    more = gain(key, FINAL, each)
    cells.append("" if more is None else VERDICT[agrees(sign, theirs(model, method, FINAL))])
    return [protocol, model, method, *cells, f"{row['seeds']}", f"{row['identity']}", f"{row['commit'] or '-'}"]


def level(row: Row, name: str) -> str:
    """A number in %, and its error over seeds if there are several."""
    scale, error = scale_of(name), row[f"{name}_se_seeds"]
    return f"{scale * row[name]:.2f}" + ("" if error is None else f" ± {scale * error:.2f}")


def order(rows: Mapping[Key, Row], each: Mapping[Key, Scores]) -> list[str]:
    """Methods from the largest gain of final accuracy to the smallest, ours and the paper's, of each model."""
    lines = []
    for protocol, model in dict.fromkeys((key[0], key[2]) for key in rows):
        every = {key[3]: gain(key, FINAL, each) for key in rows if (key[0], key[2]) == (protocol, model)}
        own = {method: more for method, more in every.items() if more}
        ours = sorted(own, key=lambda one: -own[one].mean)
        full = sorted(own, key=lambda one: -theirs(model, one, FINAL))
        if len(own) > 1:
            here = ", ".join(f"{method} {signed(own[method])}" for method in ours)
            there = ", ".join(f"{method} {theirs(model, method, FINAL):+.2f}" for method in full)
            lines.append(f"- {model}, `{protocol}`: {here}; the paper: {there}.")
    return ["Order of the gains of final accuracy:", "", *lines] if lines else []


def agrees(sign: int, paper: float) -> bool | None:
    """Has a gain the sign of the paper's? None: its sign is not shown."""
    return None if sign == 0 else (sign > 0) == (paper > 0)


def theirs(model: str, method: str, name: str) -> float:
    """What the paper's row has more than its vanilla, AUC in % of its maximum."""
    at = list(METRICS).index(name)
    more = PAPER[model, method][FULL][at] - PAPER[model, "vanilla"][FULL][at]
    return more if name == FINAL else 100 * more / ROUNDS


def scale_of(name: str) -> float:
    """From points of ours to %: AUC has its maximum where every epoch has 100 %."""
    return 1.0 if name == FINAL else 100 / (REDUCED["learner"]["epochs"] + 1)


def reduction() -> str:
    """What the reduction has less of."""
    small, full = (sizes(settings(name, "modular", "vanilla", "paper", 1)) for name in (SMALL, FULL))
    return ", ".join(
        f"{what.format(small[what])} instead of {full[what]}" if small[what] != full[what] else what.format(full[what])
        for what in small
    )


def sizes(fleet: Settings) -> dict[str, str]:
    tasks, learner = fleet.tasks, fleet.learner
    check = "all others" if tasks.validation == "all" else f"{tasks.validation * tasks.classes}"
    return {
        "{} agents": f"{fleet.agents}",
        "{} tasks": f"{tasks.count}",
        "{} training images a task": f"{tasks.train * tasks.classes:,}",
        "{} for validation": check,
        "{} channels": f"{fleet.net.width}",
        "{} epochs": f"{learner.epochs}",
        "batches of {}": f"{learner.batch}",
        "a rate of {}": f"{learner.rate:g}",
    }


def took(rows: list[Row]) -> list[str]:
    """How long the rows of the reduction took."""
    lines = []
    for model in MODELS:
        own = [row for row in rows if (row["dataset"], row["model"]) == (SMALL, model)]
        alone = [row["seconds"] / row["seeds"] for row in own if row["method"] == "vanilla"]
        spent = sum(row["seconds"] for row in own) / 3600
        lines.append([model, f"{fmean(alone):.0f}" if alone else "-", f"{len(own)}", f"{spent:.1f}"])
    return lines_of(["model", "agents alone, s per seed", "rows", "all of them, hours of one core"], lines)


def tried(rows: list[Row]) -> list[str]:
    """The reductions that were tried: what agents alone have learned at the end, and how long it took."""
    names = ("width", "train", "epochs", "batch", "rate")
    found: dict[tuple[float, ...], dict[str, Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), {})[row["model"]] = row
    lines = []
    for sizes, own in found.items():
        both = [own.get(model) for model in ("cnn", "modular-cnn")]
        cells = [f"{row['validation_accuracy']:.1f} ({row['seconds']:.0f} s)" if row else "" for row in both]
        lines.append([*(f"{one:g}" for one in sizes), *cells])
    head = ["channels", "training images of a class", "epochs", "batch", "rate"]
    return lines_of([*head, "monolithic, %", "modular, %"], lines)


def adapted(rows: list[Row]) -> list[str]:
    """Agents alone and agents that share modules, with the adaptation epoch and without."""
    lines = []
    for row in differences_of(rows, *METRICS):
        cells = []
        for name in METRICS:
            scale = scale_of(name)
            cells += [level(row, name), *(difference(row, name, end, scale) for end in ("", "_vanilla"))]
        lines.append([row["method"], "yes" if row["adaptation"] == "last" else "no", *cells])
    head = [
        word
        for name in ("final accuracy, %", "AUC, % of its maximum")
        for word in (name, "over agents alone that adapt alike", "over agents alone that adapt")
    ]
    return lines_of(["", "adaptation", *head], lines)
