"""What clocks show, on real MNIST: `python -m bench.clocks staggered|robots OUT [--data DIR]`.

`staggered`: four agents begin, and four join them when the first have learned two tasks of their own. How much faster
does who comes late learn its first task, by what is shared? `robots`: eight robots on a ring of 1 Mbit/s links, one of
which has 50 kbit/s; who is at 90 % of what it ends with first, in which time and with how much energy? Finished runs in
OUT are taken as they are. Writes docs/results/staggered.csv or docs/results/robots.csv and a figure.
"""

import argparse
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import polars as pl

import shoal
from bench import results
from shoal.runs.record import Record, reopen
from shoal.settings.groups import Settings

DOCS = Path(__file__).parent.parent / "docs"
INITIAL = 4  # tasks of the common start
# As usual, but often enough for short tasks, and modmod asks for an agent's first task too: others may have modules.
MODES: dict[str, list[dict[str, Any]]] = {
    "alone": [],
    "recv": [{"mode": "recv", "every": 5}],
    "fedavg": [{"mode": "fedavg", "every": 5}],
    "modmod": [{"mode": "modmod", "start": INITIAL}],
}
EARLY, LATE = (0, 1, 2, 3), (4, 5, 6, 7)
JOINS = 40.0  # epochs after which the second half begins: two tasks
FLEET: dict[str, Any] = {
    "dataset": "mnist",
    "model": "modular-mlp",
    "agents": 8,
    "seeds": 8,
    "tasks": {"count": 7, "initial": INITIAL},
    "net": {"dropout": 0.2},
    "learner": {"epochs": 20, "batch": 16, "rate": 3e-3},
}
SLOW = 7  # the robot with a bad link
ROBOTS: dict[str, Any] = {
    **FLEET,
    "network": {
        "graph": "ring",
        "bandwidth": "1 Mbit/s",
        "latency": "20 ms",
        "edges": [
            {"sender": a, "receiver": b, "bandwidth": "50 kbit/s"}
            for one in (6, 0)
            for a, b in ((SLOW, one), (one, SLOW))
        ],
    },
}
# A board of 10 W that takes 50 steps in a second, and a radio with a microjoule for each bit.
CLOCK = {"speed": 50.0, "step_joules": 0.2, "byte_joules": 8e-6}


def ran(settings: Settings, folder: Path, data: Path | None) -> Record:
    """A finished run, of an earlier call or of now."""
    if not (folder / "summary.json").exists():
        fleet = shoal.prepare(settings, data)
        record = reopen(folder) if (folder / "settings.toml").exists() else shoal.create(folder, settings)
        shoal.carry_out(fleet, record)
    return reopen(folder)


def table(record: Record, name: str) -> pl.DataFrame:
    return pl.read_parquet(record.folder / f"{name}.parquet")


def kept(rows: pl.DataFrame, name: str) -> None:
    """Write rows as a CSV file of the results, with the commit that runs."""
    results.write(
        DOCS / "results" / f"{name}.csv", [row | {"commit": results.stamp()["commit"]} for row in rows.to_dicts()]
    )


def inline(rows: list[dict[str, Any]]) -> Any:
    """Rows as the data of a chart."""
    return alt.InlineData(values=rows)


def staggered(out: Path, data: Path | None) -> None:
    starts = [0.0] * len(EARLY) + [JOINS] * len(LATE)
    rows = []
    for mode, sharing in MODES.items():
        settings = Settings(**FLEET, sharing=sharing, clock={"starts": starts})
        found = table(ran(settings, out / f"staggered-{mode}", data), "accuracy")
        first = found.filter(pl.col("task") == settings.tasks.initial, pl.col("tested") == settings.tasks.initial)
        for who, agents in (("first", EARLY), ("late", LATE)):
            mine = first.filter(pl.col("agent").is_in(agents))
            for (seed, epoch), part in sorted(mine.group_by("seed", "epoch")):
                accuracy = 100 * float(part["accuracy"].to_numpy().mean())
                rows.append({"sharing": mode, "agents": who, "seed": seed, "epoch": epoch, "accuracy": accuracy})
    told = pl.DataFrame(rows)
    kept(told.with_columns(pl.col("accuracy").round(2)), "staggered")
    means = told.group_by("sharing", "agents", "epoch", maintain_order=True).agg(pl.col("accuracy").mean())
    print(means.pivot("epoch", index=["sharing", "agents"], values="accuracy"))
    chart = alt.Chart(inline(means.to_dicts())).mark_line(point=True)
    chart = chart.encode(
        x=alt.X("epoch:Q", title="epochs of the agent's first task"),
        y=alt.Y("accuracy:Q", title="test accuracy, %", scale=alt.Scale(zero=False)),
        color=alt.Color("sharing:N", title=None, sort=list(MODES)),
        column=alt.Column("agents:N", title=None),
    )
    chart.properties(width=260, height=240).save(DOCS / "figures" / "staggered.svg")


def staggered_table(rows: Sequence[results.Row]) -> str:
    """The rows of docs/results/staggered.csv as a markdown table: means over seeds, with the lowest and highest."""
    found: dict[tuple[str, str], dict[int, list[float]]] = {}
    for row in rows:
        own = found.setdefault((row["agents"], row["sharing"]), {})
        own.setdefault(int(row["epoch"]), []).append(float(row["accuracy"]))
    epochs = sorted({epoch for own in found.values() for epoch in own})
    lines = [
        [f"{who}, {sharing}", *(f"{np.mean(own[at]):.1f} ({min(own[at]):.1f} to {max(own[at]):.1f})" for at in epochs)]
        for (who, sharing), own in sorted(found.items(), key=lambda one: one[0][0])
    ]
    return results.markdown(["who, what is shared", *(f"after {at} epochs" for at in epochs)], lines)


def known(record: Record) -> Iterator[tuple[int, int, np.ndarray]]:
    """Of every agent: seed, agent, and at each of its measurements seconds, joules, bytes, and the mean accuracy over
    all its tasks, in %, where one that it has not met counts as 0."""
    tasks = record.settings.tasks.count
    level = table(record, "accuracy").group_by("seed", "agent", "task", "epoch").agg(pl.col("accuracy").sum() / tasks)
    found = (
        table(record, "time").join(level, on=["seed", "agent", "task", "epoch"]).sort("seed", "agent", "task", "epoch")
    )
    for (seed, agent), part in found.group_by("seed", "agent", maintain_order=True):
        yield seed, agent, part.select("seconds", "joules", "bytes", 100 * pl.col("accuracy")).to_numpy()


def robots(out: Path, data: Path | None) -> None:
    rows, lines = [], []
    for pace in ("wait", "asynchronous"):
        for mode, sharing in MODES.items():
            settings = Settings(**ROBOTS, sharing=sharing, clock={**CLOCK, "pace": pace})
            record = ran(settings, out / f"robots-{pace}-{mode}", data)
            seeds: dict[int, list[tuple[int, np.ndarray]]] = {}
            for seed, agent, path in known(record):
                seeds.setdefault(seed, []).append((agent, path))
            for seed, paths in seeds.items():
                times = np.unique(np.concatenate([path[:, 0] for _, path in paths]))
                at = [
                    [path[max(0, np.searchsorted(path[:, 0], time, "right") - 1)] for time in times]
                    for _, path in paths
                ]
                level = np.array(at)[:, :, 3].mean(0)
                joules = np.array(at)[:, :, 1].mean(0)
                reached = int(np.argmax(level >= 0.9 * level[-1]))
                ends = np.array([path[-1] for _, path in paths])
                sending = ends[:, 2] * CLOCK["byte_joules"]
                rows.append({
                    "pace": pace, "sharing": mode, "seed": seed, "final": level[-1], "seconds to 90 %": times[reached],
                    "joules to 90 %": joules[reached], "seconds": ends[:, 0].max(),
                    "seconds of the first": ends[:, 0].min(), "joules of steps": (ends[:, 1] - sending).mean(),
                    "joules of sending": sending.mean(), "kB sent": ends[:, 2].mean() / 1000,
                })  # fmt: skip
                if seed == 0:
                    lines += [
                        {"pace": pace, "sharing": mode, "seconds": float(time), "accuracy": float(one)}
                        for time, one in zip(times, level, strict=True)
                    ]
    told = pl.DataFrame(rows)
    kept(told.with_columns(pl.col(pl.Float64).round(3)), "robots")
    with pl.Config(tbl_cols=20, tbl_width_chars=200, tbl_rows=40):
        print(told.group_by("pace", "sharing", maintain_order=True).agg(pl.col(pl.Float64).mean()))
    chart = alt.Chart(inline(lines)).mark_line(interpolate="step-after")
    chart = chart.encode(
        x=alt.X("seconds:Q", title="seconds of the fleet's clock"),
        y=alt.Y("accuracy:Q", title="mean accuracy over all tasks, %", scale=alt.Scale(zero=False)),
        color=alt.Color("sharing:N", title=None, sort=list(MODES)),
        column=alt.Column("pace:N", title=None, sort=["wait", "asynchronous"]),
    )
    chart.properties(width=300, height=240).save(DOCS / "figures" / "robots.svg")


def robots_table(rows: Sequence[results.Row]) -> str:
    """The rows of docs/results/robots.csv as a markdown table: means over seeds."""
    found: dict[tuple[str, str], list[results.Row]] = {}
    for row in rows:
        found.setdefault((row["pace"], row["sharing"]), []).append(row)
    lines = []
    for (pace, sharing), own in found.items():
        mean = {
            name: float(np.mean([float(row[name]) for row in own])) for name in list(own[0])[3:] if name != "commit"
        }
        first, last = round(mean["seconds of the first"]), round(mean["seconds"])
        joules = mean["joules of sending"]
        lines.append([
            pace, "nothing" if sharing == "alone" else sharing, f"{mean['final']:.1f}",
            f"{mean['seconds to 90 %']:.1f}",
            f"{mean['joules to 90 %']:.0f}", f"{last}" if first == last else f"{first} to {last}",
            f"{mean['joules of steps']:.0f}", f"{joules:.1f}" if joules >= 1 else f"{joules:.2g}",
            f"{mean['kB sent']:,.0f}",
        ])  # fmt: skip
    head = ["pace", "shared", "final, %", "seconds to 90 %", "joules to 90 %", "seconds in all", "joules of steps"]
    return results.markdown([*head, "joules of sending", "kB sent"], lines)


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("what", choices=("staggered", "robots"))
    words.add_argument("out", type=Path)
    words.add_argument("--data", type=Path, default=os.environ.get("SHOAL_DATA"))
    said = words.parse_args()
    {"staggered": staggered, "robots": robots}[said.what](said.out, said.data)
