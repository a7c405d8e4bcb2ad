"""How much every weight matters to a lane: the diagonal of its empirical Fisher information over shared modules."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations_with_replacement
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from shoal.fleet.engine import crew, each
from shoal.fleet.stack import Stack
from shoal.fleet.world import World
from shoal.learners.learn import (
    Batch,
    batch_size,
    batches,
    cross_entropy,
    fixed_parts,
    generators,
    gradients,
    pool,
    slots,
)
from shoal.models import Linear, Modular, Monolithic

NAMES = ("module.weight", "module.bias")  # of what all agents have in common
Tensors = dict[str, Tensor]


def units(world: World) -> int:
    """How many modules all agents have: the layers of a monolithic net, the basis of a modular one."""
    return world.model.basis if isinstance(world.model, Modular) else world.model.depth


def snapshot(world: World, stack: Stack) -> Tensors:
    """The shared modules of all lanes as they are now, [L, units, ...]."""
    return {name: stack.params[name][:, : units(world)].clone() for name in NAMES}


def fisher(world: World, stack: Stack, rule: str, samples: int) -> Tensors:
    """The diagonal of every lane's empirical Fisher information over its shared modules, [L, units, ...]: of what it
    trains on, without dropout."""
    if rule == "frozen" or not world.edges:
        return {name: torch.zeros_like(tensor) for name, tensor in snapshot(world, stack).items()}
    work = by_batch if rule == "batch" else partial(by_sample, samples=samples)
    pieces: list[Tensors] = crew(stack.pieces(world), lambda piece: work(*piece))
    return {name: torch.cat([piece[name] for piece in pieces]) for name in NAMES}


def by_batch(world: World, stack: Stack) -> Tensors:
    """The mean over batches of the squared gradient of the batch's loss, which is the sum over its tasks of their mean
    cross-entropy, as in the paper's code."""
    held = pool(world, stack, stack.task, past=True)
    total = {name: torch.zeros_like(tensor) for name, tensor in snapshot(world, stack).items()}
    steps = torch.zeros(len(stack.lanes), device=world.device)
    rngs = generators(stack, "fisher", stack.task, stack.epoch)
    parts, extra, modules = frame(world, stack)
    for batch in batches(held, rngs, batch_size(world, held)):
        function = partial(task_loss, world.model, parts, world.engine == "loop")
        found = gradients(world, stack, function, (batch, extra), parts, modules, extra)
        for name, gradient in zip(parts, found, strict=True):
            total[name] += gradient.square()  # zero for a lane without an image in this batch
        steps += batch.weight.any(1)
    return {name: tensor / steps.view(-1, *[1] * (tensor.ndim - 1)) for name, tensor in total.items()}


def task_loss(
    model: Monolithic | Modular,
    parts: Mapping[str, Any],
    trim: bool,
    free: Tensors,
    fixed: Tensors,
    batch: Batch,
    extra: dict[str, Any],
) -> Tensor:
    """One agent's sum over the tasks of a batch of their mean cross-entropy."""
    errors = cross_entropy(model, parts, None, trim, free, fixed, batch, extra)
    same = (batch.task[:, None] == batch.task[None]) * batch.weight
    return (errors * batch.weight / same.sum(1).clamp(min=1)).sum()


def by_sample(world: World, stack: Stack, samples: int) -> Tensors:
    """The mean over some random images of the squared gradient of each one's own cross-entropy."""
    held = pool(world, stack, stack.task, past=True)
    rngs = generators(stack, "fisher", stack.task, stack.epoch)
    batch = next(iter(batches(held, rngs, min(samples, held.own))))
    if isinstance(world.model.block, Linear):
        return by_products(world, stack, batch)
    parts, extra, modules = frame(world, stack)
    own = snapshot(world, stack)
    function = partial(sample_squares, world.model, parts, world.engine == "loop")
    flat = each(function, world.engine)(own, fixed_parts(stack, modules, extra), batch, extra)
    sizes = [own[name][0].numel() for name in NAMES]
    return {name: part.view_as(own[name]) for name, part in zip(NAMES, flat.split(sizes, 1), strict=True)}


@dataclass(frozen=True)
class Probed(Linear):
    """MLP modules that add a probe to what comes before their ReLU, and note what they read.

    The gradient of the sum of all losses at the probes is that of every image on its own, because images are columns.
    """

    probes: tuple[Tensor, ...] = ()  # [C, H, B], one for every time that shared modules run
    pieces: int = 1  # of the modules, which run one after the other; the first are shared
    notes: list[Tensor] = field(default_factory=list)

    def run(self, weight: Tensor, bias: Tensor, h: Tensor) -> Tensor:
        self.notes.append(h)
        time, piece = divmod(len(self.notes) - 1, self.pieces)
        count, width, inner = weight.shape
        z = torch.addmm(bias.reshape(count * width, 1), weight.reshape(count * width, inner), h)
        z = z.reshape(count, width, h.shape[1])
        return torch.relu(z + self.probes[time] if piece == 0 else z)


def by_products(world: World, stack: Stack, batch: Batch) -> Tensors:
    """`by_sample` for MLPs, without a gradient for each image.

    A module's gradient for one image is the sum over depths k of d_k h_k^T, with d_k the gradient before the ReLU and
    h_k what it read. The sum over images of its square is the sum over k and l of (d_k d_l) (h_k h_l)^T: products.
    """
    model, count, modular = world.model, units(world), isinstance(world.model, Modular)
    _, extra, width = frame(world, stack)
    fixed = fixed_parts(stack, width, extra)
    shape = (len(stack.lanes), model.depth, count if modular else 1, model.block.width, batch.y.shape[1])
    probes = torch.zeros(shape, device=world.device, requires_grad=True)

    def one(probes: Tensor, params: Tensors, batch: Batch, extra: dict[str, Any]) -> tuple[Tensor, Tensor]:
        cut: dict[str, Tensor | list[Tensor]] = dict(params)
        if modular and params["module.bias"].shape[0] > count:
            cut |= {name: [params[name][:count], params[name][count:]] for name in NAMES}
        pieces = len(cut["module.bias"]) if isinstance(cut["module.bias"], list) else 1
        block = Probed(model.block.pixels, model.block.width, probes.unbind(), pieces)  # type: ignore[union-attr]
        logits = replace(model, block=block).logits(cut, batch.x, batch.task, **extra)
        errors = F.cross_entropy(logits, batch.y, reduction="none")
        return (errors * batch.weight).sum(), torch.stack(block.notes[::pieces])

    losses, reads = torch.func.vmap(one)(probes, fixed, batch, extra)
    (pulls,) = torch.autograd.grad(losses.sum(), probes)
    reads = reads.detach()
    images = batch.weight.sum(1).clamp(min=1)
    if modular:
        bias, weight = pulls.sum(1).square().sum(-1), pulls.new_zeros(())
        for k, other in combinations_with_replacement(range(model.depth), 2):
            both = (pulls[:, k] * pulls[:, other]).flatten(1, 2) @ (reads[:, k] * reads[:, other]).mT
            weight = weight + (1 if k == other else 2) * both
        weight = weight.unflatten(1, (count, -1)).clamp(min=0)  # rounding can make a sum of squares negative
    else:
        alone = pulls.squeeze(2)
        weight, bias = alone.square() @ reads.square().mT, alone.square().sum(-1)
    return {
        "module.weight": weight / images.view(-1, 1, 1, 1),
        "module.bias": bias / images.view(-1, 1, 1),
    }


def sample_squares(
    model: Monolithic | Modular,
    parts: Mapping[str, Any],
    trim: bool,
    free: Tensors,
    fixed: Tensors,
    batch: Batch,
    extra: dict[str, Any],
) -> Tensor:
    """One agent's mean squared gradient, all shared tensors in a row."""

    def error(free: Tensors, one: Batch) -> Tensor:
        alone = Batch(*(part[None] for part in one))
        return cross_entropy(model, parts, None, trim, free, fixed, alone, extra)[0]

    every = torch.func.vmap(torch.func.grad(error), in_dims=(None, 0))(free, batch)
    rows = torch.cat([every[name].flatten(1) for name in NAMES], 1)
    return batch.weight @ rows.square() / batch.weight.sum().clamp(min=1)


def frame(world: World, stack: Stack) -> tuple[dict[str, Any], dict[str, Any], int]:
    """Which parts have gradients, and how the net is used: all slots that the current task may have."""
    shared = slice(0, units(world))
    parts = dict.fromkeys(NAMES, (shared,))
    if not isinstance(world.model, Modular):
        return parts, {}, 0
    width = min(world.model.slot(max(stack.task, world.model.initial)) + 1, world.model.slots)
    return parts, dict(slots(world, stack, width)), width
