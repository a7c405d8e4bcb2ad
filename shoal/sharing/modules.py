"""Modules as agents send them: with what is needed to use them, whole or in bytes, and what becomes of offers."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.learners.candidates import Offer, beside_fresh, came, modular, settle, try_out
from shoal.letters.mail import Expected
from shoal.models.contract import body_shapes
from shoal.models.modular import STRUCTURE
from shoal.sharing.codecs import in_bytes, in_numbers, int8_layout

Compress = Literal["none", "int8"]


def look(world: World, compress: Compress, scores: tuple[float, float]) -> dict[str, Expected]:
    """What modules look like, with the task that each was grown for and its score."""
    shapes = body_shapes(modular(world))
    found = {name: Expected(torch.float32, (None, *shape)) for name, shape in shapes.items()}
    for name, shape in shapes.items() if compress != "none" else ():
        if len(shape) > 1:
            del found[name]
            found |= {f"{name}.{part}": one for part, one in int8_layout(prod(shape), 1.0).items()}
    found["sources"] = Expected(torch.int32, (None,), world.settings.tasks.count)
    return found | {"scores": Expected(torch.float32, (None,), least=scores[0], most=scores[1])}


def beside(world: World, head: bool, structure: bool) -> dict[str, Expected]:
    """What heads and structures of their tasks look like, which mean nothing but to agents that began alike."""
    tasks, model, found = world.settings.tasks, modular(world), dict[str, Expected]()
    if head:
        weight, bias = model.heads
        found[weight] = Expected(torch.float32, (None, tasks.classes, model.read))
        found[bias] = Expected(torch.float32, (None, tasks.classes))
        found["classes"] = Expected(torch.int32, (None, tasks.classes), len(world.bank.classes))
    if structure:
        found[STRUCTURE] = Expected(torch.float32, (None, model.basis + 1, model.depth))
    return found


def packed(
    world: World,
    stack: Stack,
    owner: str,
    compress: Compress,
    rows: np.ndarray,
    tasks: np.ndarray,
    scores: Sequence[float],
) -> dict[str, Tensor]:
    """What lanes in some rows can send of their modules, each for a task and with a score. Whoever it is sent to, bytes
    are rounded by the same random numbers of an `owner`."""
    model, row, at = modular(world), torch.from_numpy(rows), torch.from_numpy(tasks)
    slots = at + model.slot(0)

    def taken(name: str, place: Tensor) -> Tensor:
        tensor = stack.params[name]
        return tensor[row.to(tensor.device), place.to(tensor.device)].cpu()

    found = {name: taken(name, slots) for name in model.block.names}
    if compress != "none":
        who = [(*world.lanes[one], owner, u) for one, u in zip(rows.tolist(), tasks.tolist(), strict=True)]
        found = in_bytes(found, who)
    structure = taken(STRUCTURE, at)
    own_slot = structure[torch.arange(len(at)), slots]
    return found | {
        **{name: taken(name, at) for name in model.heads},
        "sources": at.int(),
        "scores": torch.tensor(scores, dtype=torch.float32),
        "classes": torch.from_numpy(padded(world)[rows, tasks]),
        STRUCTURE: torch.cat([structure[:, : model.basis], own_slot[:, None]], 1),
    }


def padded(world: World) -> np.ndarray:
    """The classes of each task of each lane, int32 [L, T, most]; a task with fewer says its last one again."""

    def find() -> np.ndarray:
        most, count = world.settings.tasks.classes, world.settings.tasks.count
        found = np.full((len(world.lanes), count, most), -1, np.int32)
        for row, stream in enumerate(world.streams):
            for at, task in enumerate(stream):
                known = task.classes or (-1,)
                found[row, at] = [*known, *[known[-1]] * (most - len(known))]
        return found

    return world.once(("classes",), find)


def whole(world: World, content: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Modules as if they had come whole."""
    return in_numbers(body_shapes(world.model), content)


def offers_of(sender: int, content: Mapping[str, Tensor]) -> list[Offer]:
    """The modules in a letter."""
    return [
        Offer(float(content["scores"][at]), int(source), sender, {name: tensor[at] for name, tensor in content.items()})
        for at, source in enumerate(content["sources"].tolist())
    ]


class Choice(NamedTuple):
    """What a lane makes of its offers."""

    offers: Sequence[Offer]
    tried: Sequence[float]  # the validation accuracy of each in a tryout; NaN: it was not tried
    chosen: int | None  # none: a fresh module is better than any


def choices(
    world: World,
    stack: Stack,
    offered: Mapping[int, Sequence[Offer]],
    tryout: bool,
    fresh: bool,
    epochs: int,
    frozen: bool,
) -> dict[int, Choice]:
    """Which of its offers each lane takes, by its row: that with the highest score, or the best of all in a `tryout`
    of so many epochs; where it must not be behind a `fresh` one, the first that is not."""
    ranked = {row: sorted(offers, key=lambda one: one.order) for row, offers in sorted(offered.items())}
    tried = try_out(world, stack, ranked, epochs, frozen) if tryout else {}
    if not fresh:
        nothing = {row: [np.nan] * len(offers) for row, offers in ranked.items()}
        best = {row: int(np.nanargmax(tried[row])) if row in tried else 0 for row in ranked}
        return {row: Choice(offers, tried.get(row, nothing[row]), best[row]) for row, offers in ranked.items()}
    for row, results in tried.items():
        order = sorted(range(len(results)), key=lambda at, results=results: -results[at])  # type: ignore[misc]
        ranked[row] = [ranked[row][at] for at in order]
    helping = beside_fresh(world, stack, ranked, epochs, frozen)
    return {row: Choice(ranked[row], results, chosen) for row, (chosen, results) in helping.items()}


def take(world: World, stack: Stack, owner: str, row: int, choice: Choice, frozen: bool) -> None:
    """Make what a lane has chosen the candidate of its current task, with its head and structure, and note all that it
    was offered."""
    told = [
        (one.sender, one.source, one.score, choice.tried[at], at == choice.chosen)
        for at, one in enumerate(choice.offers)
    ]
    stack.of(owner)["offers"][row, stack.task, : len(told)] = torch.tensor(told, dtype=torch.float64)
    if choice.chosen is not None:
        settle(world, stack, row, [choice.offers[choice.chosen]], frozen)
        came(stack, row, choice.offers[choice.chosen])
