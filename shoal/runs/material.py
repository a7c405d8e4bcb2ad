"""Material: what the agents of a run learn from, as data.json in its directory says."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shoal.agents.lanes import streams_of
from shoal.agents.world import World
from shoal.data.bank import Bank
from shoal.data.overlap import overlap, pairs, table
from shoal.data.scaling import Scaling
from shoal.data.tasks import Stream
from shoal.runs.files import RecordError, content, text
from shoal.runs.record import Record

FILE = "data.json"
PAIRS = 500  # pairs of agents that are written one by one, at most
NAMED = 200  # classes or sources whose names are written, at most


def note(record: Record, fleet: Sequence[World]) -> None:
    """Write what the run learns from; if that is written already, it must be the same."""
    if (record.folder / FILE).exists():
        unchanged(record.folder, fleet[0].bank)
    else:
        record.write(FILE, text(described(record.settings.dataset, fleet)))


def unchanged(folder: Path, bank: Bank) -> None:
    """Raise if a run in a folder began with other data."""
    if not (folder / FILE).exists():  # made by an earlier version
        return
    before = content(folder / FILE)
    if before.get("digest") != bank.digest:
        raise RecordError(
            f"the data of {folder} has changed since it began: it had {before.get('rows')} rows with the digest "
            f"{before.get('digest')}, `{bank.name}` has {len(bank)} with {bank.digest}; restore the data, or start a "
            "new run"
        )


def described(dataset: str, fleet: Sequence[World]) -> dict[str, Any]:
    """What the data is, what of it each agent meets and how it scales it, and how much agents have in common."""
    bank, streams = fleet[0].bank, streams_of(fleet)
    scales = {lane: scale for world in fleet for lane, scale in zip(world.lanes, world.scales, strict=True)}
    found = pairs(bank, streams)
    return {
        "dataset": dataset,
        "digest": bank.digest,
        "rows": len(bank),
        "test": int(bank.test.sum()),
        "shape": list(bank.images.shape[1:]),
        "type": str(bank.images.dtype),
        "predicts": None if bank.targets is None else bank.targets.shape[1],
        "classes": named(bank.classes),
        "sources": named(bank.sources),
        "overlap": {**overlap(found), "pairs": table(found)[:PAIRS]},
        "agents": [
            {"seed": lane.seed, "agent": lane.agent, **met(stream), "scaling": scaled(bank, scales[lane])}
            for lane, stream in streams.items()
        ],
    }


def named(names: Sequence[str]) -> list[str] | int:
    """Names, or how many there are."""
    return list(names) if len(names) <= NAMED else len(names)


def met(stream: Stream) -> dict[str, list[int]]:
    """What an agent meets, task by task."""
    tasks = stream[: stream.end]
    rows = {name: [len(getattr(task, name)) for task in tasks] for name in ("train", "validation", "test")}
    return {"classes": [len(task.classes) for task in tasks], **rows}


def scaled(bank: Bank, scale: Scaling | None) -> dict[str, Any]:
    """How an agent scales what it reads."""
    if scale is not None:
        return scale.about()
    return {"scale": bank.scale, **({"peak": bank.peak} if bank.scale == "peak" else {})}
