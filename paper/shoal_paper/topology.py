"""Who talks to whom: relative gain over agents alone on graphs from complete to sparse."""

from dataclasses import replace

from shoal.study.cells import Row
from shoal_paper.budget import federated, grouped, whole
from shoal_paper.table1 import DATASETS, SMALL, Cell, bases, settings

# G(n, p) with every edge is the complete graph.
GRAPHS = (
    ("complete", 1.0), ("random", 0.75), ("random", 0.5), ("random", 0.3), ("random", 0.1),
    ("ring", None), ("server", None), ("tree", None),
)  # fmt: skip


def cells(dataset: str, model: str, protocol: str, seeds: int) -> list[Cell]:
    """Every mode on every graph, and agents alone to compare with; the reduction has none."""
    if dataset == SMALL:
        return []
    method, strength = federated(dataset, model, protocol, DATASETS)
    shared: list[tuple[str, str, Row]] = [("data", "data", {}), (method, "federated", strength)]
    shared += [("modmod", "modmod", {})] * (model == "modular")
    alone = settings(dataset, model, "vanilla", protocol, seeds)
    found = [Cell("topology", dataset, model, "vanilla", alone, {"mode": "alone", "graph": None, "p": None})]
    for method, mode, more in shared:
        for graph, p in GRAPHS:
            network: Row = {"graph": graph} | ({"p": p} if graph == "random" else {})
            chosen = settings(dataset, model, method, protocol, seeds, more, network=network)
            found.append(Cell("topology", dataset, model, method, chosen, {"mode": mode, "graph": graph, "p": p}))
    return found[:1] + [replace(base, varied=found[0].varied) for base in bases(found)] + found[1:]


def word(graph: str, p: float | None) -> str:
    """A graph in a word."""
    return graph if p is None else f"p = {p:g}"


def conclude(tables: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """The mean over datasets, with the mean of their errors, over seeds and the paper's pooled ones: datasets share
    their seeds, so that errors may go the same way, and then the mean is as uncertain as each of them."""
    kept = []
    for same in grouped(tables["topology"], ("protocol", "draw", "seeds", "model", "mode")).values():
        kept += whole([one for one in same if one["mode"] != "alone"], lambda one: (one["graph"], one["p"]))
    names = ("protocol", "draw", "seeds", "model", "mode", "graph", "p")
    found = []
    for group, rows in grouped(kept, names).items():
        errors, pooled = [one["gain_se"] for one in rows], [one["gain_se_pooled"] for one in rows]
        found.append(
            {
                **dict(zip(names, group, strict=True)),
                "datasets": " ".join(one["dataset"] for one in rows),
                "gain": sum(one["gain"] for one in rows) / len(rows),
                "gain_se": sum(errors) / len(rows) if None not in errors else None,
                "gain_se_pooled": sum(pooled) / len(rows) if None not in pooled else None,
            }
        )
    return {"topology_mean": found}
