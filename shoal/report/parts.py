"""Parts of the page as HTML: what came out in words, tables, charts with their switches, settings."""

import re
from collections.abc import Iterable, Sequence
from html import escape
from math import isnan, nan

from shoal.report import compare, numbers
from shoal.report.charts import PAID
from shoal.report.compare import Entry, Group, called
from shoal.report.figure import Figure, Switch
from shoal.report.sentences import BEHIND, DASH, PREDICTED, headline, number
from shoal.report.style import Mark, Style
from shoal.runs import metrics
from shoal.runs.paired import Gain
from shoal.settings.part import flatten
from shoal.units import carried

MENU = 100  # options of a list that is looked through
TIMES = "\N{MULTIPLICATION SIGN}"


METRICS = {
    "average_accuracy": "average accuracy, %",
    "forward_transfer": "zero-shot on the next task, %",
    "zero_shot_others": "zero-shot on others' tasks, %",
    "backward_transfer": "backward transfer, points",
    "forgetting": "forgetting, points",
}


def section(group: Group, name: str, style: Style, figures: dict[str, Figure], advised: bool = False) -> str:
    """A group: what came out, the tables, the charts, the settings. What came out is said above where runs are those of
    an advice."""
    from shoal.report.confusion import predicted  # which are made of these parts
    from shoal.report.drift import boundaries

    wide = [drawing(ident, figure, style) for ident, figure in figures.items() if figure.wide]
    small = [drawing(ident, figure, style) for ident, figure in figures.items() if not figure.wide]
    return "\n".join([
        f'<section class="group" id="{name}" aria-labelledby="{name}-title">',
        f'<h2 id="{name}-title">{escape(group.called_dataset)} <span class="tag">{escape(group.model)}, '
        f"protocol {escape(', '.join((group.protocol, *group.apart)))}</span></h2>",
        f"<p>{BEHIND if advised else headline(group)}</p>",
        f"<p>{PREDICTED}</p>" if any(entry.run.numbers for entry in group.entries) else "",
        *wide,
        scores(group, style),
        gains(group, style),
        predicted(group, style),
        f'<div class="grid">{"".join(small)}</div>' if small else "",
        offered(group, style),
        boundaries(group),
        common(group),
        settings(group),
        "</section>",
    ])  # fmt: skip


def swatch(one: Mark) -> str:
    """A run's line and symbol, as in the charts."""
    shapes = {
        "circle": '<circle cx="17" cy="7" r="4"/>',
        "square": '<rect x="13.5" y="3.5" width="7" height="7"/>',
        "triangle-up": '<path d="M17 2.5 21.5 11h-9z"/>',
        "triangle-down": '<path d="M17 11.5 12.5 3h9z"/>',
        "triangle-right": '<path d="M21.5 7 13 11.5v-9z"/>',
        "triangle-left": '<path d="M12.5 7 21 2.5v9z"/>',
        "diamond": '<path d="M17 1.5 21 7l-4 5.5L13 7z"/>',
        "cross": '<path d="M15.5 2.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z"/>',
    }
    dash = " ".join(map(str, one.dash))
    return (
        f'<svg class="swatch" viewBox="0 0 34 14" aria-hidden="true" fill="var(--s{one.colour})">'
        f'<path d="M0 7h34" stroke="var(--s{one.colour})" stroke-width="2" stroke-dasharray="{dash}"/>'
        f"{shapes[one.shape]}</svg>"
    )


def drawing(ident: str, figure: Figure, style: Style) -> str:
    """A chart with its caption, its switches and the table of its numbers."""
    switches = "".join(control(ident, switch, style) for switch in figure.switches if useful(switch))
    # A switch with one option is no switch, but its value still chooses, and a reader must know the run.
    hidden = "".join(
        f"<span>{switch.title}: {escape(switch.options[0][1])}</span>" * (switch.field == "run")
        + f'<select hidden data-field="{switch.field}"><option>{escape(switch.options[0][0])}</option></select>'
        for switch in figure.switches
        if not useful(switch) and switch.options
    )
    return "\n".join([
        f'<figure id="{ident}" class="{"wide" if figure.wide else ""}" aria-labelledby="{ident}-title">',
        f'<figcaption><h3 id="{ident}-title">{escape(figure.title)}</h3><p>{escape(figure.says)}</p></figcaption>',
        f'<div class="switches">{switches}{hidden}</div>',
        f'<div class="plot{" fixed" if figure.fixed else ""}" role="img" aria-label="{escape(figure.alt)}"></div>',
        '<details class="numbers"><summary>Numbers of this chart</summary>'
        f'<div class="scroll tall" tabindex="0" role="region" aria-label="{escape(figure.title)}, numbers"></div>'
        "</details>",
        "</figure>",
    ])  # fmt: skip


def useful(switch: Switch) -> bool:
    return len(switch.options) > 1 or switch.many


def control(ident: str, switch: Switch, style: Style) -> str:
    if switch.many:
        boxes = "".join(
            f'<label><input type="checkbox" checked data-field="{switch.field}" value="{escape(value)}">'
            f"{swatch(style.marks([value])[0])}{escape(said)}</label>"
            for value, said in switch.options
        )
        every = '<button type="button" class="every">none</button>' if len(switch.options) > 4 else ""
        return f"<fieldset><legend>{switch.title}</legend>{boxes}{every}</fieldset>"
    name = f"{ident}-{switch.field}"
    if len(switch.options) > MENU:  # nobody looks through thousands: what is typed is found
        known = "".join(f'<option value="{escape(value)}"></option>' for value, _ in switch.options)
        return (
            f'<label for="{name}">{switch.title} <input type="search" id="{name}" data-field="{switch.field}" '
            f'list="{name}-list" placeholder="{escape(switch.options[0][1])}" data-first="{escape(switch.first)}" '
            f'size="12" autocomplete="off"></label><datalist id="{name}-list">{known}</datalist>'
        )
    options = "".join(
        f'<option value="{escape(value)}"{" selected" * (value == switch.first)}>{escape(said)}</option>'
        for value, said in switch.options
    )
    return (
        f'<label for="{name}">{switch.title} <select id="{name}" data-field="{switch.field}">{options}</select></label>'
    )


def table(title: str, caption: str, head: Sequence[str], body: Iterable[Sequence[str]], kind: str = "") -> str:
    """An HTML table whose first column names the rows; cells are HTML already, or begin with `<td`. Every cell says
    what its column is, for screens on which a row stands as a list."""
    top = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    lines = []
    for row in body:
        cells = "".join(
            f'<td data-head="{re.sub("<[^>]*>", "", name)}"{cell[3:] if cell.startswith("<td") else f">{cell}</td>"}'
            for name, cell in zip(head[1:], row[1:], strict=True)
        )
        lines.append(f'<tr><th scope="row">{row[0]}</th>{cells}</tr>')
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(title)}">'
        f'<table class="{kind}"><caption><span>{caption}</span></caption><thead><tr>{top}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def run_name(entry: Entry, style: Style) -> str:
    return f"{swatch(style.marks([entry.label])[0])} {escape(entry.label)}"


def scores(group: Group, style: Style) -> str:
    """Final accuracy and AUC, and beneath them the other metrics."""
    done = group.complete
    if not done:
        return ""
    found = {name: [entry.score(name).mean for entry in done] for name in compare.SCORES}
    top = {name: max((mean for mean in means if not isnan(mean)), default=nan) for name, means in found.items()}
    body, more = [], []
    for entry in done:
        cells = []
        for name in compare.SCORES:
            score = entry.score(name)
            kind = ' class="best"' if score.mean == top[name] and len(done) > 1 else ""
            cells += [f"<td{kind}>{number(score.mean)}</td>", number(score.pooled), number(score.seeds)]
        seeds = len(set(entry.run.seeds.tolist()))
        lanes = f"{seeds} {TIMES} {len(entry.run.seeds) // seeds}"
        sent, last = entry.paid, float(entry.run.epochs[-1])
        paper = number(entry.score("auc").mean * last / 100)
        body.append([run_name(entry, style), *cells, paper, DASH if isnan(sent) else carried(sent), lanes])
        more.append([run_name(entry, style), *(metric(entry, name) for name in METRICS), *(
            number(entry.run.summary.get(name)) for name in ("modules", "seconds"))])  # fmt: skip
    head = ["run", "final accuracy, %", "± over agents", "± over seeds", "AUC, %", "± over agents", "± over seeds",
            "AUC, paper's unit", PAID, f"seeds {TIMES} agents"]  # fmt: skip
    most = max(entry.run.epochs[-1] for entry in done)
    first = table(
        "Final accuracy and AUC",
        "Mean over all agents of all seeds, with standard errors: over all agents of all seeds, as in the paper, or "
        "over seeds alone, as one should report them; the highest is bold. AUC, the area under the learning curve, "
        "says how well agents do while they learn: it is high for those that are good early. It is in % of its "
        f"maximum, which in the paper's unit is {most}. What was sent is the mean over links and tasks in which there "
        "was mail.",
        head,
        body,
    )
    rest = table(
        "More metrics", "Mean ± standard error over seeds.", ["run", *METRICS.values(), "modules", "seconds"], more
    )
    return (
        f'<div class="card"><h3>Final accuracy and AUC</h3>{first}'
        f"<details><summary>More metrics</summary>{rest}</details></div>"
    )


def metric(entry: Entry, name: str) -> str:
    """A metric of the records; what needs more than them, of the summary."""
    run = entry.run
    found = metrics.summary(run.accuracy, run.epochs, run.seeds, run.initial)
    source = found if found[name] is not None else run.summary
    mean, error = source.get(name), source.get(f"{name}_se_seeds")
    return number(mean) + (f" <small>± {number(error)}</small>" if isinstance(error, int | float) else "")


def gains(group: Group, style: Style) -> str:
    """Every run against its baseline, paired over seeds."""
    entries = [entry for entry in group.complete if entry.base]
    if not entries:
        return ""
    found = {name: [entry.gain(name) for entry in entries] for name in compare.SCORES}
    reach = {
        name: max((abs(end) for one in gains if one for end in (one.mean, *(one.interval or ()))), default=1.0)
        for name, gains in found.items()
    }
    bases = [entry.base.label for entry in entries if entry.base]
    many = len(entries) > 4
    several = len(set(bases)) > 1
    body = []
    for at, entry in enumerate(entries):
        row = [run_name(entry, style), *([escape(bases[at])] if several else [])]
        for name, gains in found.items():
            one = gains[at]
            if one is None:
                row += [DASH, DASH, ""]
                continue
            error = f" <small>± {number(one.error)}</small>" if one.error is not None else ""
            row.append(f"{number(one.mean, True)}{error}")
            row.append(" to ".join(number(end, True) for end in one.interval) if one.interval else DASH)
            row.append(f'<td class="forest">{forest(one, reach[name])}</td>')
        body.append([*row, str(max(one.seeds for gains in found.values() if (one := gains[at])))])
    interval = ["95 % interval", '<span class="axis">0</span>']
    head = ["run", *(["baseline"] if several else []), "gain in final accuracy, points", *interval,
            "gain in AUC, points", *interval, "seeds"]  # fmt: skip
    caption = (
        ("" if several else f"The baseline: {called(bases[0])}. ")
        + "Difference of each seed's mean, averaged over the seeds that both runs have, ± its "
        "standard error; the interval is Student's t. An interval that holds 0 shows no difference"
        + (f"; of the {len(entries)} here, one in twenty misses the true difference by chance." if many else ".")
    )
    title = "Gain over the baseline, paired over seeds"
    return f'<div class="card"><h3>{title}</h3>{table(title, caption, head, body)}</div>'


def forest(gain: Gain, reach: float) -> str:
    """A gain and its interval as a small drawing with zero in the middle."""
    reach = reach or 1.0
    middle, spot = 60.0, 60 + 54 * gain.mean / reach
    line = ""
    if gain.interval:
        ends = [60 + 54 * end / reach for end in gain.interval]
        line = f'<path d="M{ends[0]:.1f} 13H{ends[1]:.1f}" stroke="currentColor" stroke-width="2"/>'
    fill = "currentColor" if gain.sign else "var(--card)"
    return (
        f'<svg viewBox="0 0 120 26" aria-hidden="true"><path d="M{middle} 0V26" stroke="var(--none)" '
        f'stroke-dasharray="2 2"/>{line}<circle cx="{spot:.1f}" cy="13" r="4" fill="{fill}" stroke="currentColor" '
        'stroke-width="1.5"/></svg>'
    )


def offered(group: Group, style: Style) -> str:
    """Modules that came by mail."""
    rows = numbers.offers(group)
    if not rows:
        return ""
    entries = {entry.label: entry for entry in group.entries}
    body = [
        [run_name(entries[row["run"]], style), *(f"{row[name]:,}" for name in ("offered", "chosen", "kept", "trials"))]
        for row in rows
    ]
    head = ["run", "offered", "chosen for a trial", "kept", "trials in all"]
    title = "Modules from other agents"
    return f'<div class="card"><h3>{title}</h3>{table(title, "Over all agents, seeds and tasks.", head, body)}</div>'


def common(group: Group) -> str:
    """What agents have in common, which decides what sharing can bring; the runs of a group have the same tasks."""
    found = next((entry.run.common for entry in group.entries if entry.run.common), None)
    if found is None:
        return ""
    numbers = any(entry.run.numbers for entry in group.entries)
    columns = {
        "iou": "classes in common, %",
        "labels": "distance of labels, 0 to 1",
        "features": "distance of inputs, standard deviations",
    }
    if numbers:
        columns = {"features": columns["features"]}

    def row(name: str, shares: dict[str, float]) -> list[str]:
        return [escape(name), *(number(shares[key] * (100 if key == "iou" else 1)) for key in columns)]

    caption = (
        "Classes in common are those that both agents meet, of all that either of them meets. Labels are 0 apart if "
        "both agents have the same share of every class, and 1 if they have no class in common (total variation). "
    ) * (not numbers)
    caption += "Inputs are as far apart as the means of what agents read, averaged over columns or pixels."
    title = "What two agents have in common"
    body = [row("mean over all pairs", found.mean)]
    every = table(f"{title}, by pair", "Mean over seeds.", ["pair", *columns.values()], [
        row(f"{one} and {other}", shares) for one, other, shares in found.pairs])  # fmt: skip
    return (
        f'<div class="card"><h3>{title}</h3>{table(title, caption, ["agents", *columns.values()], body)}'
        f"<details><summary>Pair by pair</summary>{every}</details></div>"
    )


def settings(group: Group) -> str:
    """What differs between the runs; then all of it, folded."""
    names = [escape(entry.label) for entry in group.entries]
    rows = compare.differing(group.entries)
    differ = ""
    if len(names) > 1 and rows:
        body = [[f"<code>{escape(key)}</code>", *(escape(value) for value in values)] for key, values in rows]
        title = "Settings that differ between the runs"
        inner = table(title, "A dash: the run has no such setting.", ["setting", *names], body, "settings")
        differ = f"<details><summary>{title} ({len(rows)})</summary>{inner}</details>"
    every = []
    for entry in group.entries:
        said = "\n".join(f"{key} = {value}" for key, value in flatten(entry.run.settings))
        made = "\n".join(f"{key} = {value}" for key, value in flatten(entry.run.about))
        every.append(
            f"<details><summary>{escape(entry.label)}: all settings and versions</summary>"
            f"<p class='soft'><code>{escape(str(entry.run.folder))}</code></p>"
            f"<pre>{escape(said)}</pre><pre>{escape(made)}</pre></details>"
        )
    return f'<div class="card"><h3>Settings and versions</h3>{differ}{"".join(every)}</div>'
