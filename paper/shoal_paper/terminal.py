"""Cells of Table 1 on the terminal."""

from typing import Any

from rich.console import Console
from rich.table import Table

from shoal.cli.terminal import counted, number, plus
from shoal.console import plainly


def show_cells(rows: list[dict[str, Any]], where: Console) -> None:
    """Cells of Table 1 beside the paper's."""
    table = Table("cell", "final", "the paper's", "AUC", "the paper's", "s", box=None)
    for row in rows:
        table.add_row(
            f"{row['dataset']} {row['model']} {row['method']}", plus(row, "final_accuracy"),
            number(row["paper_final_accuracy"]), plus(row, "auc"), number(row["paper_auc"]), f"{row['seconds']:.0f}",
        )  # fmt: skip
    where.print(table)
    plainly(f"protocol {rows[0]['protocol']}, {counted(rows)}; pooled errors", where=where)
