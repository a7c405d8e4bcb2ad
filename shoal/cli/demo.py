"""The demo: one small fleet learns the same digits six times, alone and with five ways of sharing, in the terminal."""

import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from shoal.agents.stack import Stack
from shoal.configure.reading import EXPERIMENTS, read
from shoal.console import plainly
from shoal.data import load
from shoal.errors import SettingsError, Stopped, UserError
from shoal.fleet.size import affordable
from shoal.report import compare, needs
from shoal.report.compare import Entry
from shoal.runs import metrics
from shoal.runs.execute import carry_out, done, interrupts, prepare, units
from shoal.runs.files import content
from shoal.runs.paired import Gain
from shoal.runs.read import gather
from shoal.runs.record import Record, create, reopen
from shoal.settings.groups import Settings
from shoal.study.cells import measured
from shoal.units import carried, shown

# The fleet. Its settings were tuned on agents that share nothing, and for speed, before the other methods were run with
# them, so that no method is favoured: never tune them on an outcome.
FLEET = EXPERIMENTS / "digits.toml"
SEEDS = 4
OUT = Path("runs/demo")
BASE = "shares nothing"
METHODS = {
    BASE: "every agent is on its own",
    "data": "images: an agent asks the others for images like those it finds hard",
    "simp": "images too, but cheaper: an agent only names the classes it finds hard",
    "fedavg": "weights: the modules that all began with are averaged over the fleet",
    "modmod": "modules: an agent offers what it grew for a task like the coming one",
    "hybrid": "images (data), weights and modules at once",
}
STORY = """\
{agents} agents learn to read handwritten digits. Each meets its own {tasks} small tasks, one after the other \
("which of these {classes} digits is it?"), with about {train} images for each, of which it keeps {memory} so as not \
to forget. An agent's net is made of small modules: it combines them anew for every task, and adds one when the \
existing ones are not enough. The first {initial} tasks are the same for all; after them, everyone goes its own way.

Can they help each other, and what does it cost? The same fleet learns the same tasks {times} times, with {seeds}. All \
that differs is what agents send each other:
"""
LEVELS = "▁▂▃▄▅▆▇█"
EIGHTHS = " ▏▎▍▌▋▊▉"
BAR = 8  # characters
NARROW = 79  # columns that the live view needs with its curves
WIDE = 100  # columns of text


class View(NamedTuple):
    """What is shown of a method: fractions, NaN where nothing is measured yet."""

    curves: np.ndarray  # [tasks after the initial ones, G]: accuracy on each task while it is learned
    mean: float  # accuracy over all tasks so far
    messages: int
    bytes: int


def show(
    out: Path, seeds: int, words: Sequence[str], console: Console, yes: bool = False, figures: Path | None = None
) -> None:
    """Train the fleet once per method, those that are finished aside; then say what came out."""
    fleets = {name: fleet(name, seeds, words) for name in METHODS}
    try:
        if not yes:
            affordable(fleets[BASE], load(fleets[BASE].dataset))
        introduce(fleets[BASE], console)
        records = {name: place(out, name, settings) for name, settings in fleets.items()}
        learn(records, console, yes)
        conclude(out, records, console, figures)
    except (Stopped, KeyboardInterrupt):
        raise Stopped(f"stopped; `{again(out, seeds, words)}` continues from there") from None


def fleet(method: str, seeds: int, words: Sequence[str]) -> Settings:
    """The settings of a method: all have the same but for what is shared."""
    for word in words:
        if word.partition("=")[0].partition(".")[0] == "sharing":
            raise SettingsError(f"`{word}` is what the demo varies itself; other settings can be said")
    sharing = {BASE: "none", "data": "recv", "hybrid": "recv,modmod,fedavg"}.get(method, method)
    settings = read(FLEET, [f"seeds={seeds}", *words, f"sharing={sharing}"])
    if settings.agents < 2:
        raise SettingsError("one agent has nobody to share with; the demo takes agents=2 or more")
    return settings


def place(out: Path, method: str, settings: Settings) -> Record:
    """A method's run directory, new or as it was left; other settings have another one."""
    folder = out / f"{method.replace(' ', '-')}-{settings.identity()}"
    return reopen(folder, own=settings) if (folder / "settings.toml").exists() else create(folder, settings)


def again(out: Path, seeds: int, words: Sequence[str]) -> str:
    """The command that goes on."""
    said = ["shoal", "demo", *words]
    said += ["--seeds", str(seeds)] if seeds != SEEDS else []
    return shlex.join([*said, "--out", str(out)] if out != OUT else said)


def introduce(settings: Settings, console: Console) -> None:
    """What will happen, for someone who has never heard of it."""
    tasks = settings.tasks
    told = STORY.format(
        agents=settings.agents, tasks=tasks.count, classes=tasks.classes, train=tasks.train * tasks.classes,
        memory=settings.learner.memory, initial=tasks.initial, times=len(METHODS), seeds=repeated(settings.seeds),
    )  # fmt: skip
    console.print(told, highlight=False, width=min(console.width, WIDE))
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 2))
    for name, about in METHODS.items():
        table.add_row(Text(name, "bold"), about)
    console.print(table)
    console.print()


def repeated(seeds: int) -> str:
    return f"{seeds} seeds each" if seeds > 1 else "one seed"


def learn(records: Mapping[str, Record], console: Console, yes: bool) -> None:
    """Carry out every run that is not finished, and show how all of them do."""
    seen: dict[str, View] = {name: past(record) for name, record in records.items() if record.finished}
    if seen:
        plainly(f"Finished earlier and found again: {', '.join(seen)}.\n", where=console)
    with view(records, seen, console) as watch, interrupts() as asked:
        for name, record in records.items():
            if asked():  # as the run before was finishing
                raise Stopped("stopped")
            if not record.finished:
                fleet = prepare(record.settings, yes=yes)
                carry_out(fleet, record, lambda moment, name=name: watch(name, moment.stacks[0]))  # type: ignore[misc]


def past(record: Record) -> View:
    """A run that is finished."""
    summary = content(record.summary)
    return seen_in(measured(record.folder).accuracy, record.settings, summary["messages"], summary["bytes_total"])


def present(stack: Stack, settings: Settings) -> View:
    """A run as it is."""
    crossed = stack.ledger.crossed
    size = int(stack.ledger.column("bytes")[crossed].sum())
    going = stack.accuracy[~stack.gone]  # agents that have diverged are left out of all means
    return seen_in(going.double().numpy(), settings, int(crossed.sum()), size)


def seen_in(accuracy: np.ndarray, settings: Settings, messages: int, size: int) -> View:
    """A view of `accuracy[L, T, G, T]`."""
    means = metrics.seen(accuracy).mean(0).ravel()
    known = means[~np.isnan(means)]
    own = np.diagonal(accuracy.mean(0), axis1=0, axis2=2).T
    return View(own[settings.tasks.initial :], float(known[-1]) if len(known) else float("nan"), messages, size)


@contextmanager
def view(
    records: Mapping[str, Record], seen: dict[str, View], console: Console
) -> Iterator[Callable[[str, Stack], None]]:
    """What follows the training: a picture that moves on a terminal, lines elsewhere."""
    if not console.is_terminal:

        def tell(name: str, stack: Stack) -> None:
            settings = records[name].settings
            if stack.epoch == 0 and stack.task >= settings.tasks.initial:
                plainly(line(name, settings, stack), where=console)

        yield tell
        return
    total = sum(units(record.settings) for record in records.values())
    began, first = time.monotonic(), -1
    with Live(console=console, refresh_per_second=4) as live:

        def watch(name: str, stack: Stack) -> None:
            nonlocal first
            settings = records[name].settings
            now = sum(units(one.settings) for one in records.values() if one.finished) + done(settings, stack)
            first = now - 1 if first < 0 else first
            left = (time.monotonic() - began) * (total - now) / (now - first)
            seen[name] = present(stack, settings)
            live.update(picture(records, seen, console.width, status(name, settings, stack, now / total, left)))

        live.update(picture(records, seen, console.width))
        yield watch
        live.update(picture(records, seen, console.width))


def line(name: str, settings: Settings, stack: Stack) -> str:
    """A method at the end of a task, in a line."""
    now = present(stack, settings)
    mail = f"{now.messages:,} messages, {shown(now.bytes)}" if settings.sharing else "no mail"
    return f"{name}: task {stack.task} of {settings.tasks.count} learned, {100 * now.mean:.1f} % so far, {mail}"


def status(name: str, settings: Settings, stack: Stack, share: float, left: float) -> Table:
    """What is happening now, how far the demo is, and how long it will take."""
    tasks, epochs = settings.tasks, settings.learner.epochs
    at = f"task {stack.task + 1}, epoch {stack.epoch}/{epochs}"
    if stack.epoch == 0:
        at = f"task {stack.task} learned"
    elif stack.task < tasks.initial:
        at = f"tasks 1 to {tasks.initial}, epoch {stack.epoch}/{epochs}"
    time_left = f"{left:.0f} s left" if left < 90 else f"{left / 60:.0f} min left"
    row = Table.grid(padding=(0, 2, 0, 0))
    row.add_row(ProgressBar(100, 100 * share, width=6), time_left, f"{name}: {at}")
    return row


def picture(records: Mapping[str, Record], seen: Mapping[str, View], width: int, now: Table | None = None) -> Group:
    """A row per method: its curves, how well it does and what it has sent."""
    settings = records[BASE].settings
    first, last = settings.tasks.initial + 1, settings.tasks.count
    chance = 1 / settings.tasks.classes
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("", no_wrap=True)
    curves = width >= NARROW
    if curves:
        table.add_column(f"tasks {first} to {last}, each as it is learned", no_wrap=True)
    for title, room in (("all tasks so far", BAR), ("mails", 6), ("in all", 8)):
        table.add_column(title, justify="right", min_width=room, no_wrap=True)
    for name, record in records.items():
        one = seen.get(name)
        if one is None:
            table.add_row(Text(name, "dim"), *[""] * (3 + curves))
            continue
        groups = [" ".join("".join(spark(value, chance) for value in curve) for curve in one.curves)] if curves else []
        mail = [f"{one.messages:,}", shown(one.bytes)] if record.settings.sharing else ["-", ""]
        level = "" if one.mean != one.mean else f"{bar(one.mean, chance)} {100 * one.mean:.1f} %"
        table.add_row(Text(name, "bold"), *(Text(group, "cyan") for group in groups), Text(level, "green"), *mail)
    scale = f"bars and curves begin at {100 * chance:.0f} %, a guess" if curves else ""
    return Group(table, Text(""), now or Text(scale, "dim"))


def spark(value: float, chance: float) -> str:
    """An accuracy as one character."""
    if value != value:
        return " "
    height = (value - chance) / (1 - chance)
    return LEVELS[min(max(int(height * len(LEVELS)), 0), len(LEVELS) - 1)]


def bar(value: float, chance: float) -> str:
    """An accuracy as a bar."""
    filled = round(8 * BAR * max(0.0, (value - chance) / (1 - chance)))
    return ("█" * (filled // 8) + EIGHTHS[filled % 8]).strip().ljust(BAR)


def conclude(out: Path, records: Mapping[str, Record], console: Console, figures: Path | None) -> None:
    """The table, what it means, and where to read on."""
    runs, notes = gather([record.folder for record in records.values()])
    places = {record.folder: name for name, record in records.items()}
    found = compare.groups(runs, places)
    entries = {places[entry.run.folder]: entry for group in found for entry in group.entries}
    paid = {name: entry.paid for name, entry in entries.items()}
    console.print()
    console.print(results(entries, paid))
    console.print()
    for paragraph, style in zip(verdict(entries, paid), ("", "dim"), strict=True):
        console.print(paragraph, style=style, highlight=False, width=min(console.width, WIDE))
        console.print()
    try:
        needs()
    except UserError as why:
        plainly(f"There is no page with charts: {why}.", where=console)
    else:
        from shoal.report import page

        file = out / "report.html"
        page.save(file, page.page(found, notes))
        plainly(f"All of it with charts, in a browser: {file}", where=console)
        if figures:
            written = len(page.draw(found, figures))
            plainly(f"{written} files in {figures}", where=console)
    plainly(f"The runs: {out}. Next: `shoal list sharing`, `shoal run --help`.", where=console)


def results(entries: Mapping[str, Entry], paid: Mapping[str, float]) -> Table:
    """What each method came to and what it cost."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("", no_wrap=True)
    for title in (
        "final\naccuracy",
        "gain over\nno sharing",
        "AUC",
        "gain over\nno sharing",
        "sent per link\nand task",
    ):
        table.add_column(title, justify="right", no_wrap=True)
    for name in METHODS:
        cells = []
        for score in ("final", "auc"):
            level, gain = entries[name].score(score).mean, entries[name].gain(score)
            paper = f" ({level * float(entries[name].run.epochs[-1]) / 100:.1f})" if score == "auc" else ""
            cells += [f"{level:.1f} %{paper}", gain and points(gain)]
        table.add_row(Text(name, "bold"), *(cell or "" for cell in cells), carried(paid[name]))
    return table


def points(gain: Gain) -> str:
    return f"{gain.mean:+.1f}" + ("" if gain.error is None else f" ± {gain.error:.1f}")


def verdict(entries: Mapping[str, Entry], paid: Mapping[str, float]) -> list[str]:
    """What the numbers of this run say, and no more."""
    base = entries[BASE]
    agents, seeds = len(np.unique(base.run.agents)), len(np.unique(base.run.seeds))
    guess = 100 / base.run.settings["tasks"]["classes"]
    ends = {name: gain for name in METHODS if (gain := entries[name].gain("final"))}
    ways = {name: gain for name in METHODS if (gain := entries[name].gain("auc"))}
    said = [
        f"Without sharing, agents in the end get {base.score('final').mean:.1f} % of the test images of all their "
        f"{base.run.tasks} tasks right; a guess would get {guess:.0f} %.",
        judged(ends, "In the end"),
        judged(ways, "While they learn (AUC)"),
        prices({name: size for name, size in paid.items() if size}, [name for name in ends if ends[name].sign > 0]),
    ]
    return [
        "\n".join(said),
        "Final accuracy: on test images of all tasks, when the last one is learned. AUC: its mean over the time in "
        f"which tasks {base.run.initial + 1} to {base.run.tasks} are learned, in % (in brackets the paper's unit); who "
        f"learns faster has more. A link leads from one agent to one other; what was sent over it is the mean over "
        f"links and tasks with mail. Final accuracy and AUC are the "
        f"mean of {agents} agents and {repeated(seeds).removesuffix(' each')}. Gains are in points, paired over seeds, "
        "± their standard error. Better and worse: the 95 % interval leaves out zero (Student's t, each on its own).",
    ]


def judged(gains: Mapping[str, Gain], when: str) -> str:
    """Which methods differ from agents that share nothing, and which cannot be told from them."""
    groups = {
        sign: [f"{name} ({gains[name].mean:+.1f})" for name in gains if gains[name].sign == sign] for sign in (1, -1, 0)
    }
    seeds = min(gain.seeds for gain in gains.values())
    few = "one seed tells nothing" if seeds < 2 else f"by {seeds} seeds"
    parts = [
        f"{listed(names)} {words}"
        for names, words in zip(
            groups.values(),
            (
                "did better than without sharing",
                "did worse than without sharing",
                f"cannot be told from no sharing{':' * (seeds < 2)} {few}",
            ),
            strict=True,
        )
        if names
    ]
    return f"{when}, {'; '.join(parts)}."


def prices(paid: Mapping[str, float], better: Sequence[str]) -> str:
    """Who sent most, who least, and who was the cheapest of those that did better."""
    if not paid:
        return "Nothing was sent."
    order = sorted(paid, key=lambda name: paid[name])
    least, most = order[0], order[-1]
    said = f"What it cost, per link and task: {most} {shown(paid[most])}"
    if most != least:
        said += f", {paid[most] / paid[least]:,.0f} times the {shown(paid[least])} of {least}"
    bought = [name for name in order if name in better]
    return said + (f". Of those that did better in the end, {bought[0]} was the cheapest." if len(bought) > 1 else ".")


def listed(names: Sequence[str]) -> str:
    """Names as in a sentence."""
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
