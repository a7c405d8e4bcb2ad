"""The tables of the bench, from its numbers."""

from typing import Any

from rich import box
from rich.table import Table

from bench import exchanges as large
from bench import speed as raced
from tests.browser import MISSING

Row = dict[str, Any]


def table(title: str, caption: str, *columns: str) -> Table:
    made = Table(title=title, caption=caption, box=box.SIMPLE_HEAD, title_justify="left", caption_justify="left")
    for column in columns:
        made.add_column(column, justify="right")
    return made


def speed(rows: list[Row]) -> Table:
    """Shoal beside other ways to write the same step."""
    made = table(
        "MNIST row at task 7, the same step by others: agent-steps per second",
        "In brackets: how many times as fast as shoal, the median of all turns; the smallest to the largest.\n"
        "tight loop: plain PyTorch, one agent after the other, fused Adam, no DataLoader. stacked by hand: all lanes "
        "in batched products, the way back written out.\nslow twin: one agent with DataLoader and optim.Adam, written "
        "to be obvious. Both loops use one core; with a process on each they would be at most so many times faster.",
        *("model", "cores", "lanes", *raced.NAMES),
    )
    held = {(row["model"], row["cores"], row["lanes"], row["contender"]): row for row in rows}
    for model, cores, lanes in dict.fromkeys(key[:3] for key in held):
        cells = (raced.cell(held[model, cores, lanes, name]) for name in raced.NAMES)
        made.add_row(raced.TITLES[model], str(cores), f"{lanes:,}", *cells)
    return made


def exchanges(rows: list[Row]) -> Table:
    """Exchanges of large fleets."""
    made = table(
        "Exchanges and memory of large fleets, tasks like those of digits",
        "zero-shot: all agents once on the tasks that only others have met. building: world, first weights, memories. "
        "Memory is beyond that of Python, torch and images.",
        *large.HEAD,
    )
    for line in large.lines(rows):
        made.add_row(*line)
    return made


def mlp(title: str, rows: list[Row]) -> Table:
    """Steps of an MLP."""
    made = table(
        f"{title}: agent-steps per second",
        "Goals at 64 lanes: vmap / slow twin at least 20; products / vmap, how many times as long as the matrix "
        "products alone, at most 3.\nproducts / slow twin: what vmap / slow twin would be if nothing but the products "
        "took time.\nThe slow twin is one agent, written to be obvious: N agents take it N times as long. With one on "
        "each core its rate would be higher, at most by the number of cores.",
        *("lanes", "loop", "vmap", "slow twin", "products", "(GFLOP/s)"),
        *("vmap / slow twin", "products / vmap", "products / slow twin"),
    )
    for row in rows:
        made.add_row(
            str(row["lanes"]),
            *(f"{row[name]:,.0f}" for name in ("loop", "vmap", "twin", "products", "products_gflops")),
            f"{row['vmap_to_twin']:.1f}",
            f"{row['products_to_vmap']:.2f}",
            f"{row['products_to_twin']:.1f}",
        )
    return made


def cnn(rows: list[Row]) -> Table:
    """Steps of both CNNs."""
    made = table(
        "CNNs, CIFAR-100 row at task 7, one batch of new images: agent-steps per second",
        "cnn replays its 7 memories too; modular-cnn has 8 modules. Last column: how many times as long as the "
        "convolutions alone,\nwhich read the 3 real channels of an image; the slow twin reads also the 47 empty ones.",
        *("model", "lanes", "loop", "vmap", "slow twin", "convolutions", "loop / slow twin", "convolutions / loop"),
    )
    for row in rows:
        made.add_row(
            row["model"],
            str(row["lanes"]),
            *(f"{row[name]:,.2f}" for name in ("loop", "vmap", "twin", "convolutions")),
            f"{row['loop_to_twin']:.1f}",
            f"{row['convolutions_to_loop']:.2f}",
        )
    return made


def evaluation(rows: list[Row]) -> Table:
    """Tests of the modular MLP."""
    made = table(
        "Evaluation, modular MLP at task 7 (8 modules): test images per second",
        "products / shoal: how many times as long as the matrix products alone.",
        *("lanes", "images of a lane", "shoal", "slow twin", "products", "shoal / slow twin", "products / shoal"),
    )
    for row in rows:
        made.add_row(
            str(row["lanes"]),
            *(f"{row[name]:,.0f}" for name in ("images", "shoal", "twin", "products")),
            f"{row['shoal_to_twin']:.1f}",
            f"{row['products_to_shoal']:.2f}",
        )
    return made


def sharing(lanes: int, rows: list[Row]) -> Table:
    """What sharing adds."""
    made = table(
        f"Sharing on a complete graph, MNIST row at task 7, {lanes} lanes, 32 epochs: seconds",
        "received: training on received images, part of training. added: what the mode adds to the time without it, "
        "received aside; the goal is at most 50 %.",
        *("model", "mode", "training", "received", "exchange", "testing", "added"),
    )
    for row in rows:
        spent = (f"{row[name]:.2f}" for name in ("training", "received", "exchange", "testing"))
        made.add_row(row["model"], row["mode"], *spent, f"{100 * row['added']:.0f} %")
    return made


def scale(rows: list[Row], straight: dict[str, float]) -> Table:
    """Growth with lanes."""
    first = rows[0]
    made = table(
        "Growth with lanes, modular MLP, MNIST row at its last task (10 modules)",
        f"Goal: 64 lanes below 2,000 MB. In brackets: relative to {first['lanes']} lanes, 1.00 is linear. MB per lane "
        f"are beyond the {first['empty_mb']:,.0f} MB of Python, torch and images.\nR² of a straight line: epoch "
        f"{straight['epoch_seconds']:.4f}, test {straight['test_seconds']:.4f}, memory {straight['peak_mb']:.4f}.",
        *(
            "lanes",
            "setup, s",
            "epoch, s",
            "ms per lane",
            "test of a task, s",
            "ms per lane",
            "peak, MB",
            "MB per lane",
        ),
    )
    for row in rows:
        epoch, test, memory = (
            f"{row[name]:.2f} ({row[name] / first[name]:.2f})"
            for name in ("epoch_ms_per_lane", "test_ms_per_lane", "mb_per_lane")
        )
        made.add_row(
            str(row["lanes"]),
            f"{row['setup_seconds']:.1f}",
            f"{row['epoch_seconds']:.3f}",
            epoch,
            f"{row['test_seconds']:.2f}",
            test,
            f"{row['peak_mb']:,.0f}",
            memory,
        )
    return made


def page(rows: list[Row]) -> Table:
    """Opening a report."""
    made = table(
        "The report in chromium: seconds to the first chart",
        "Goals: less than 3 s and 15 MB. Runs are made up, as large as the paper's. first: in a browser that has just "
        "started; again: the same page once more." + ("" if rows else "\nNot measured: " + MISSING + "."),
        *("methods", "lanes of each", "MB", "writing it", "first", "again"),
    )
    for row in rows:
        times = (f"{row[name]:.2f}" for name in ("megabytes", "written", "first", "again"))
        made.add_row(str(row["methods"]), str(row["lanes"]), *times)
    return made
