"""What agents say of every test row of the tasks that they have learned, beside what is true."""

from collections.abc import Sequence

import numpy as np
import polars as pl
import torch

from shoal.agents.evaluate import nets
from shoal.agents.stack import MODEL, Stack
from shoal.agents.world import World
from shoal.agents.worlds import judged, units

COMMON = ("seed", "agent", "tested", "row")


@torch.inference_mode()
def predicted(fleet: Sequence[tuple[World, Stack]]) -> pl.DataFrame:
    """A row per test row of every task so far of every agent: seed, agent, the task it is `tested` on, the row of the
    data, its label and the prediction, by the names of classes, and how likely the agent finds it (`confidence`).

    Where numbers are predicted, there is a row for each of them, its name is the `output`, label and prediction are in
    their units, and there is no confidence.
    """
    bank = fleet[0][0].bank
    parts = [part for world, stack in fleet for part in said(world, stack)]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if parts else {}
    types: dict[str, pl.DataType | type[pl.DataType]] = dict.fromkeys(COMMON, pl.Int64)
    if bank.targets is None:
        names = pl.Enum(list(bank.classes))
        types |= {"label": pl.UInt32, "prediction": pl.UInt32, "confidence": pl.Float32}
        found = pl.DataFrame({name: pl.Series(columns.get(name, []), dtype=one) for name, one in types.items()})
        return found.with_columns(pl.col("label", "prediction").cat.to(names)).sort(COMMON[:3], maintain_order=True)
    outputs = pl.Enum(list(bank.wanted) or [str(at) for at in range(bank.targets.shape[1])])
    types |= {"output": pl.UInt32, "label": pl.Float64, "prediction": pl.Float64}
    found = pl.DataFrame({name: pl.Series(columns.get(name, []), dtype=one) for name, one in types.items()})
    return found.with_columns(pl.col("output").cat.to(outputs)).sort(COMMON[:3], maintain_order=True)


def said(world: World, stack: Stack) -> list[dict[str, np.ndarray]]:
    """The columns of every task of every lane, with the nets as they are."""
    bank, parts = world.bank, list[dict[str, np.ndarray]]()
    usage = world.usage(stack.of(MODEL), stack.task - 1)
    for at, (lane, net) in enumerate(zip(stack.lanes, nets(world, stack, usage), strict=True)):
        for task in range(min(stack.task, int(world.ends[at]))):
            own, size = world.streams[at][task], int(world.test.sizes[at, task])
            logits = net.logits(world.test.rows[at, task, :size], task).cpu().double()
            if bank.targets is None:
                chance, place = logits.softmax(1).max(1)
                classes = np.array(own.outputs)
                told = {
                    "label": classes[world.test.labels[at, task, :size].cpu().numpy()],
                    "prediction": classes[place.numpy()],
                    "confidence": chance.numpy(),
                }
            else:
                shift, spread = units(bank, judged(world.settings, world.streams[at]))
                told = {
                    "output": np.tile(np.arange(logits.shape[1]), size),
                    "label": bank.targets[bank.base(own.test)].astype(np.float64).ravel(),
                    "prediction": (logits.numpy() * spread + shift).ravel(),
                }
            count = len(told["label"])
            row = np.repeat(own.test, count // max(size, 1))
            whose = {name: np.full(count, one) for name, one in zip(COMMON, (*lane, task), strict=False)}
            parts.append({**whose, "row": row, **told})
    return parts
