"""The world: all that never changes in a run, stacked over lanes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from shoal import models
from shoal.config import Settings, SettingsError
from shoal.data import Bank
from shoal.engine import THREADS
from shoal.models import Linear, Modular, Monolithic
from shoal.rng import key
from shoal.tasks import JOINT, Lane, Stream, streams


@dataclass(frozen=True, eq=False)
class Split:
    """The train, validation or test images of all tasks of all lanes."""

    rows: Tensor  # int64 [L, T, n] into World.inputs
    labels: Tensor  # int64 [L, T, n], local
    sizes: Tensor  # int64 [L, T]: the first so many of the n are real, the rest is padding


@dataclass(frozen=True, eq=False)
class World:
    """Settings, data and model of a set of lanes."""

    settings: Settings
    bank: Bank
    model: Monolithic | Modular
    lanes: tuple[Lane, ...]
    streams: tuple[Stream, ...]
    device: torch.device

    @property
    def engine(self) -> str:
        """`vmap` makes one kernel of all lanes; on a CPU that pays for small matrices, not for convolutions."""
        chosen = self.settings.machine.engine
        if chosen != "auto":
            return chosen
        return "vmap" if self.settings.block == "mlp" or self.device.type == "cuda" else "loop"

    @cached_property
    def tables(self) -> tuple[Tensor, dict[str, Split]]:
        """What the model reads (`inputs`), each image once, and where in it each task's images are.

        An MLP reads projected images; the projection is a seed's own, the same for all its agents (protocol 2). A CNN
        reads bytes.
        """
        names = ("train", "validation", "test")
        used = {
            seed: np.unique(
                np.concatenate(
                    [
                        getattr(task, name)
                        for lane, stream in zip(self.lanes, self.streams, strict=True)
                        if lane.seed == seed
                        for task in stream
                        for name in names
                    ]
                )
            )
            for seed in sorted({lane.seed for lane in self.lanes})
        }
        block = self.model.block
        if isinstance(block, Linear):
            parts = [
                block.project(self.bank.images[rows], self.bank.peak, key(seed, "projection"))
                for seed, rows in used.items()
            ]
            first = dict(zip(used, np.cumsum([0, *(len(rows) for rows in used.values())]), strict=False))
        else:
            # Seeds share the bytes: what differs between agents is only which images they hold.
            together = np.unique(np.concatenate(list(used.values())))
            images = self.bank.images[together]
            parts = [torch.from_numpy(images if images.ndim == 4 else images[:, None])]
            used, first = dict.fromkeys(used, together), dict.fromkeys(used, np.int64(0))
        inputs = torch.cat(parts).to(self.device)

        def split(name: str) -> Split:
            held = [[getattr(task, name) for task in stream] for stream in self.streams]
            most = max(len(rows) for stream in held for rows in stream)
            shape = (len(held), len(held[0]), most)
            rows, labels = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
            for i, (lane, stream) in enumerate(zip(self.lanes, self.streams, strict=True)):
                for t, task in enumerate(stream):
                    n = len(held[i][t])
                    rows[i, t, :n] = first[lane.seed] + np.searchsorted(used[lane.seed], held[i][t])
                    labels[i, t, :n] = task.labels(self.bank, held[i][t])
            sizes = np.array([[len(r) for r in stream] for stream in held])
            return Split(*(torch.from_numpy(array).to(self.device) for array in (rows, labels, sizes)))

        return inputs, {name: split(name) for name in names}

    @cached_property
    def pieces(self) -> tuple["World", ...]:
        """The lanes in as many pieces as threads pay for: convolutions need a lane each, small matrices many."""
        least = 1 if self.settings.block == "cnn" else 16
        count = min(self.settings.machine.threads or THREADS, max(1, len(self.lanes) // least))
        if count == 1 or self.device.type != "cpu":
            return (self,)
        bounds = [len(self.lanes) * i // count for i in range(count + 1)]
        return tuple(self.piece(slice(*pair)) for pair in pairwise(bounds))

    def piece(self, rows: slice) -> "World":
        """The same world with some of its lanes; it shares the images."""
        part = replace(self, lanes=self.lanes[rows], streams=self.streams[rows])
        inputs, splits = self.tables
        held = {name: Split(split.rows[rows], split.labels[rows], split.sizes[rows]) for name, split in splits.items()}
        vars(part)["tables"] = inputs, held  # a piece never computes its own
        return part

    @property
    def inputs(self) -> Tensor:
        return self.tables[0]

    @property
    def train(self) -> Split:
        return self.tables[1]["train"]

    @property
    def validation(self) -> Split:
        return self.tables[1]["validation"]

    @property
    def test(self) -> Split:
        return self.tables[1]["test"]


def lanes_of(settings: Settings) -> tuple[Lane, ...]:
    """All agents of all seeds; the agents of a seed are neighbours in the stack."""
    seeds = range(settings.seed, settings.seed + settings.seeds)
    return tuple(Lane(seed, agent) for seed in seeds for agent in range(settings.agents))


def joint_lanes(settings: Settings) -> tuple[Lane, ...]:
    """The joint agent of every seed, which learns a common start."""
    return tuple(Lane(seed, JOINT) for seed in range(settings.seed, settings.seed + settings.seeds))


def world(settings: Settings, bank: Bank, lanes: Sequence[Lane] | None = None) -> World:
    """The world of `lanes` (all of the settings' lanes if not given)."""
    lanes = tuple(lanes_of(settings) if lanes is None else lanes)
    return World(
        settings=settings,
        bank=bank,
        model=models.build(settings, bank),
        lanes=lanes,
        streams=streams(bank, settings.tasks, lanes),
        device=device_of(settings),
    )


def device_of(settings: Settings) -> torch.device:
    """The device the settings name, if this machine has it."""
    name = settings.machine.device
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError):
        have = ["cpu"] + [f"cuda:{i}" for i in range(torch.cuda.device_count())]
        raise SettingsError(f"machine.device = {name!r} is not on this machine; it has: {', '.join(have)}") from None
    return device
