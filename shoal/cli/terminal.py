"""How things look on the terminal: tables and summaries. Heavy imports happen inside the functions."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from shoal.console import console, plainly
from shoal.units import carried, listed, shown

if TYPE_CHECKING:
    from shoal.network.facts import Facts
    from shoal.study.advise import Advice

WIDE = 110  # columns that a table of runs side by side needs

NAMED = 6  # agents that are listed by name


def show_summary(summary: dict[str, Any]) -> None:
    """A finished run as a table."""

    table = Table("", "mean", "error (agents)", "error (seeds)", box=None)
    titles = {
        "final_accuracy": "final accuracy, %",
        "auc_normalised": "AUC, % of its maximum",
        "auc": "AUC, paper's unit",
        "average_accuracy": "average accuracy, %",
        "forward_transfer": "zero-shot on the next task, %",
        "zero_shot_others": "zero-shot on others' tasks, %",
        "backward_transfer": "backward transfer, points",
        "forgetting": "forgetting, points",
    }
    if "mean_squared_error" in summary:  # numbers are predicted
        titles = {name: title.replace("accuracy", "R²") for name, title in titles.items() if "zero_shot" not in name}
    for name, title in titles.items():
        table.add_row(title, *(number(summary.get(f"{name}{ending}")) for ending in ("", "_se", "_se_seeds")))
    if "mean_squared_error" in summary:
        table.add_row("mean squared error (1: the mean)", number(summary["mean_squared_error"]))
    if summary["modules"] is not None:
        table.add_row("modules at the end", number(summary["modules"]))
    console.print(table)
    sites = summary.get("sites", ())
    for name, kind in summary.get("kinds", {}).items():
        plainly(
            f"{name} ({kind['model']}, {'' if sites else 'agents '}{named(kind['agents'], sites)}): final accuracy "
            f"{plus(kind, 'final_accuracy', '_se')} %, "
            f"AUC {percent(kind)}" + ("" if kind["modules"] is None else f", modules {number(kind['modules'])}")
        )
    if summary["sharing"]:
        plainly(
            f"shared by {', '.join(summary['sharing'])}: {shown(summary['bytes_per_link_task'])} per link and task "
            f"({summary['floats_per_edge_task']:,.0f} floats{otherwise(summary)}), in all "
            f"{shown(summary['bytes_total'])} in {summary['messages']:,} messages; "
            + (f"{summary['refused']:,} messages were refused" if summary["refused"] else "no message was refused")
        )
    else:
        plainly("the agents share nothing")
    if "fleet_seconds" in summary:
        plainly(
            f"by the fleet's clock: {summary['fleet_seconds']:,.4g} seconds until the last agent was done, "
            f"{summary['fleet_joules']:,.4g} joules of all agents"
        )
    if "epsilon" in summary:
        spent = (
            f"{sites[int(agent)] if sites else f'agent {agent}'} {value:.4g}"
            for agent, value in summary["epsilon"].items()
        )
        plainly(f"epsilon spent on models that left, at delta {summary['delta']:g}: {listed(spent, 16)}")
    plainly(*summary.get("warnings", ()))
    head = ("dataset", "model", "protocol", "agents", "seeds", "tasks", "seconds")
    plainly(", ".join(f"{name} {summary[name]}" for name in head))
    plainly(f"in {summary['out']}")


def show_rows(title: str, rows: list[dict[str, Any]], where: Console) -> None:
    """Rows as they are, upright if they are few and wide; what all of them have in common is in the title."""
    same = [name for name in ("protocol", "seeds", "datasets") if len({row.get(name) for row in rows}) == 1]
    common = ", ".join(f"{name} {rows[0][name]}" for name in same if name in rows[0])
    names = [name for name in rows[0] if name not in same]
    lines = [[name.replace("_", " ") for name in names]]
    for row in rows:
        values = [row[name] for name in names]
        lines.append([f"{one:.3g}" if isinstance(one, float) else str("" if one is None else one) for one in values])
    if len(names) > len(rows):
        lines = [list(line) for line in zip(*lines, strict=True)]
    widths = [2 + max(map(len, [*column[0].split(), *column[1:]])) for column in zip(*lines, strict=True)]
    room = len(widths)
    while room > 1 and sum(widths[:room]) > where.width:  # columns that have no room are in the CSV
        room -= 1
    cut = f" ({len(widths) - room} columns more in the CSV)" if room < len(widths) else ""
    table = Table(*lines[0][:room], title=f"{title.replace('_', ' ')}: {common}{cut}", box=None)
    for cells in lines[1:]:
        table.add_row(*map(escape, cells[:room]))
    where.print(table)


def show_compared(rows: list[dict[str, Any]], where: Console) -> None:
    """Runs side by side, with errors over seeds; on a narrow terminal final accuracy and AUC below each other."""
    from shoal.runs.paired import chance

    scores = {"final_accuracy": "final, %", "auc_normalised": "AUC, %"}
    own = [name.removesuffix("_difference") for name in rows[0] if name.endswith("_difference")]
    brought = {name: name for name in own if name not in (*scores, "auc")}
    for some in [
        *([list(scores)] if where.width >= WIDE else [[name] for name in scores]),
        *([name] for name in brought),
    ]:
        priced = "final_accuracy" in some  # costs are said once
        heads = [head for name in some for head in ({**scores, **brought}[name], "difference", "p")]
        shares = [Column("shares", overflow="fold")] * priced
        table = Table(Column("run", overflow="fold"), *shares, *heads, *(["per link", "s"] * priced), box=None)
        for row in rows:
            cells = []
            for name in some:
                gap = "" if row[f"{name}_difference"] is None else plus(row, f"{name}_difference", "_se", "+.2f")
                level = percent(row, "_se_seeds") if name == "auc_normalised" else plus(row, name, "_se_seeds")
                cells += [level, gap, chance(row[f"{name}_difference_p"])]
            if row["kind"]:
                table.add_row(f"  {escape(row['kind'])}", *([""] * priced), *cells)
            else:
                words = [escape(told("sharing", row["sharing"]))] * priced
                table.add_row(escape(row["run"]), *words, *cells, *(cost(row) * priced))
        where.print(table)
    plainly(
        f"{counted([row for row in rows if not row['kind']])}; errors over seeds; differences from "
        f"{rows[0]['baseline']}, in points, paired over seeds, with p of a paired t-test that is not corrected "
        f"for how many are compared; AUC in brackets in the paper's unit; bytes per link and task",
        where=where,
    )


def show_swept(rows: list[dict[str, Any]], keys: list[str], where: Console) -> None:
    """Cells of a grid, the front marked; what is the same in all of them is said below."""
    same = [key for key in keys if len({str(row[key]) for row in rows}) == 1] if len(rows) > 1 else []
    keys, known = [key for key in keys if key not in same], [f"{key}={rows[0][key]}" for key in same]
    table = Table(
        "", *(Column(escape(key), overflow="fold") for key in keys), "final, %", "AUC, %", "per link", "s", box=None
    )
    for row in rows:
        words = [escape(told(key, row[key])) for key in keys]
        mark = "*" * row["front"]
        table.add_row(mark, *words, plus(row, "final_accuracy", "_se_seeds"), percent(row, "_se_seeds"), *cost(row))
    where.print(table)
    plainly(
        "* the Pareto front: no other combination with the same tasks ends higher for as little traffic; "
        "errors over seeds; AUC in brackets in the paper's unit; bytes per link and task"
        + f"; the same in all: {', '.join(known)}"
        * bool(known),
        where=where,
    )


def show_advice(advice: "Advice") -> None:
    """Candidates, the best on validation rows first, the answer marked, and what to share."""
    from shoal.runs.paired import chance
    from shoal.units import shown

    table = Table(
        "", Column("candidate", overflow="fold"), "validation", "gain", "p", "seeds", "per link and task", box=None
    )
    for row in advice.rows:
        if row["over_budget"]:
            continue
        reach = None if row["gain_high"] is None else row["gain_high"] - row["gain"]
        wide = "" if reach is None else f" ± {reach:.2f}" if reach < 100 else " ± >100"
        gain = f"{row['gain']:+.2f}{wide}" if row["p"] is not None else ""
        mark = "*" * (row["candidate"] == (advice.pick or "none"))
        cost = shown(row["sent"]) if row["sent"] else ""
        final = "" if row["validation_accuracy"] is None else f"{row['validation_accuracy']:.2f}"
        table.add_row(mark, escape(row["candidate"]), final, gain, chance(row["p"]), str(row["seeds"]), cost)
    console.print(table)
    plainly(advice.sentence)
    plainly(f"{advice.spent:,} epochs of agents, of the {advice.whole:,} that all candidates take with all seeds")


def told(key: str, value: object) -> str:
    """A setting in a table that people read: what is shared, where it is `none`, is nothing."""
    return "-" if value is None else "nothing" if (key, value) == ("sharing", "none") else str(value)


def counted(rows: Sequence[dict[str, Any]]) -> str:
    """How many seeds runs have."""
    seeds = sorted({row["seeds"] for row in rows})
    return f"{' or '.join(map(str, seeds))} seed{'s' * (seeds != [1])}"


def plus(row: dict[str, Any], name: str, end: str = "_se", form: str = ".2f") -> str:
    """A number and its error, if it has one; a dash, if it is not defined."""
    error = row[f"{name}{end}"]
    if row[name] is None:
        return "-"
    return f"{row[name]:{form}}" + ("" if error is None else f" ± {error:.2f}")


def cost(row: dict[str, Any]) -> list[str]:
    """What a run sent per link and task, and its time; a dash, if a run of an earlier version does not say."""
    sent = 0 if not row["bytes_total"] else row["bytes_per_link_task"]
    return ["-" if sent is None else carried(sent), f"{row['seconds']:.0f}"]


def percent(row: dict[str, Any], end: str = "_se") -> str:
    """An AUC in per cent of its maximum with its error, and the paper's unit in brackets."""
    found = plus(row, "auc_normalised", end)
    return found if row["auc"] is None else f"{found} ({row['auc']:.2f})"


def show_network(graph: "Facts", pairs: list[tuple[int, int]]) -> None:
    """What a graph is like, and who can reach whom."""

    hops = ["infinite" if hops is None else str(hops) for hops in (graph.diameter, graph.largest)]
    table = Table("", "", "", box=None, show_header=False)
    table.add_row("edges", str(graph.edges), "directed: there and back are two")
    for name, degrees in (("receives from", graph.receives), ("sends to", graph.sends)):
        table.add_row(name, f"{degrees.least} / {degrees.mean:.1f} / {degrees.most}", "agents: least, mean, most")
    table.add_row("diameter", hops[0], "most hops from one agent to another")
    table.add_row("", hops[1], "in the largest component")
    table.add_row("spectral gap", f"{graph.gap:.3f}", "1: averaging agrees in one round; 0: never")
    table.add_row("components", str(len(graph.components)), "parts that nothing connects")
    table.add_row("isolated", str(len(graph.isolated)), "agents without any link")
    console.print(table)
    console.print()

    def group(found: Iterable[int]) -> str:
        others = set(found)
        return "-" if not others else "all" if len(others) == graph.agents - 1 else spans(others)

    if graph.agents <= 20:
        reach = Table("agent", "sends to", "receives from", "can reach by any path", box=None)
        for agent in range(graph.agents):
            there = group(receiver for sender, receiver in pairs if sender == agent)
            back = group(sender for sender, receiver in pairs if receiver == agent)
            reach.add_row(str(agent), there, back, group(graph.reach[agent]))
        console.print(reach)
        return
    for part in graph.components[: len(graph.components) - len(graph.isolated)]:
        mutual = all(len(graph.reach[agent]) == len(part) - 1 for agent in part)
        rule = "each can reach all others" if mutual else "not each can reach all others"
        plainly(f"component of {len(part)} agents, {rule}: {spans(part)}")
    if graph.isolated:
        plainly(f"isolated: {spans(graph.isolated)}")


def spans(numbers: Iterable[int]) -> str:
    """Numbers in few words, `0-3, 7`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join("-".join(map(str, run)) for run in runs)


def named(agents: Sequence[int], sites: Sequence[str]) -> str:
    """Some agents by the names of their sites, or by their numbers where these have none; of many names, the first."""
    if not sites:
        return spans(agents)
    return listed((sites[agent] for agent in agents), NAMED)


def otherwise(summary: dict[str, Any]) -> str:
    """What was sent, counted in other ways, as far as a summary has them."""
    from shoal.runs.counts import COUNTS

    found = {COUNTS[name].title: summary.get(f"{name}_floats_per_edge_task") for name in COUNTS}
    return "".join(f", {each:,.0f} {title}" for title, each in found.items() if each is not None)


def number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
