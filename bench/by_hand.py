"""Stacked PyTorch by hand: all lanes in one program of batched products, the way back written out, one Adam for all.

What somebody writes who has this one net in mind, and nothing else: no autograd, no modules, no object for an agent.
Activations are feature-major, h[L, H, B]. What ReLU and dropout have let through is positive, the rest is zero: so the
outputs are all that the way back needs to know of both.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from bench.problem import BETAS, EPSILON, Masks, Problem, Weights

back = torch.ops.aten.threshold_backward  # of a ReLU: the slope where the output is positive, else zero


class Body:
    """Some tensors [L, ...] and their gradients, each a view of one flat memory, and one fused Adam for all of it."""

    def __init__(self, rate: float, **first: Tensor) -> None:
        flat = torch.zeros(sum(tensor.numel() for tensor in first.values()))
        self.flat, flat.grad = flat, torch.zeros_like(flat)
        self.values, self.gradients = parts(flat, first), parts(flat.grad, first)
        for name, tensor in first.items():
            self.values[name].copy_(tensor)
        self.adam = torch.optim.Adam([flat], lr=rate, betas=BETAS, eps=EPSILON, fused=True)


def parts(flat: Tensor, like: dict[str, Tensor]) -> Weights:
    """A flat memory as tensors."""
    pieces = flat.split([tensor.numel() for tensor in like.values()])
    return {name: piece.view_as(tensor) for piece, (name, tensor) in zip(pieces, like.items(), strict=True)}


class Heads:
    """Heads [L, T, K, H + 1], the bias last, and their Adam: those without an image in a batch stay as they are."""

    def __init__(self, rate: float, weight: Tensor, bias: Tensor) -> None:
        self.rate = rate
        self.value = torch.cat([weight, bias[..., None]], -1)
        self.mean, self.var = torch.zeros_like(self.value), torch.zeros_like(self.value)
        self.count = torch.zeros(*weight.shape[:2], 1, 1, dtype=torch.float64)

    def step(self, gradient: Tensor, here: Tensor) -> None:
        """`here` [L, T] are the heads with an image in the batch."""
        beta1, beta2 = BETAS
        on = here[..., None, None]
        self.count += on
        root = (1 - beta2**self.count).sqrt()
        size = (self.rate * root / (1 - beta1 ** self.count.clamp(min=1)) * on).float()
        self.mean.addcmul_(gradient - self.mean, on.float(), value=1 - beta1)
        self.var.addcmul_(gradient.square() - self.var, on.float(), value=1 - beta2)
        least = (EPSILON * root).clamp(min=torch.finfo(torch.float32).tiny).float()
        self.value.addcdiv_(self.mean * size, self.var.sqrt() + least, value=-1)

    def learn(self, h: Tensor, y: Tensor, task: Tensor) -> Tensor:
        """One step on features h[L, H, B] of images of `task` [L, B] with labels y; what it says of the slope of h."""
        lanes, tasks, classes = self.value.shape[:3]
        weight, bias = self.value[..., :-1].flatten(1, 2), self.value[..., -1:].flatten(1, 2)
        every = torch.baddbmm(bias, weight, h).view(lanes, tasks, classes, -1)
        chosen = task[:, None, None]
        slope = every.take_along_dim(chosen, 1).squeeze(1).softmax(1)  # [L, K, B]
        slope.scatter_add_(1, y[:, None], slope.new_full((1, 1, 1), -1.0).expand(lanes, 1, y.shape[1]))
        slope /= y.shape[1]
        spread = torch.zeros_like(every).scatter_(1, chosen.expand(lanes, 1, classes, -1), slope[:, None]).flatten(1, 2)
        found = torch.bmm(weight.mT, spread)
        gradient = torch.cat([torch.bmm(spread, h.mT), spread.sum(2, keepdim=True)], 2).view_as(self.value)
        here = torch.zeros(lanes, tasks, dtype=torch.bool).scatter_(1, task, True)
        self.step(gradient, here)
        return found

    def weights(self) -> Weights:
        return {"head.weight": self.value[..., :-1], "head.bias": self.value[..., -1]}


class Dropout:
    """Masks from random bits: eight are looked up at once."""

    def __init__(self, rate: float) -> None:
        self.rate, self.random = rate, torch.Generator().manual_seed(0)
        self.table = torch.tensor([[2.0 * (byte >> bit & 1) for bit in range(8)] for byte in range(256)])

    def draw(self, *shape: int) -> Tensor:
        """Zero or 1 / (1 - rate)."""
        count = torch.Size(shape).numel()
        if self.rate != 0.5:
            return (torch.rand(shape, generator=self.random) >= self.rate) / (1 - self.rate)
        bits = torch.empty(-(-count // 64), dtype=torch.int64).random_(-(2**63), None, generator=self.random)
        return self.table.index_select(0, bits.view(torch.uint8).int()).view(-1)[:count].view(shape)


class Stacked:
    """All lanes of a problem."""

    def __init__(self, problem: Problem) -> None:
        self.problem, first = problem, problem.weights
        self.heads = Heads(problem.rate, first["head.weight"], first["head.bias"])
        self.dropout = Dropout(problem.dropout)
        self.scale = 1 / (1 - problem.dropout)
        self.lane = torch.arange(problem.lanes)[:, None]
        if problem.modules is None:
            self.body = Body(problem.rate, weight=first["module.weight"], bias=first["module.bias"])
            return
        # The candidate lies with the frozen modules, so that all are one product, and is trained beside them.
        self.weight, self.bias = first["module.weight"].clone(), first["module.bias"].clone()
        self.shares = Body(problem.rate, structure=first["structure"])
        self.candidate = Body(problem.rate, weight=self.weight[:, -1], bias=self.bias[:, -1])

    def epoch(self, order: Tensor | None = None, masks: Masks | None = None) -> None:
        problem = self.problem
        if order is None:
            order = torch.rand(problem.lanes, problem.images).argsort(1)
        at = 0
        for rows in order.split(problem.batch, 1):
            x, y, task = (one[self.lane, rows] for one in (problem.x, problem.y, problem.task))
            for hide in (False, True) if problem.modules else (False,):
                given = None if masks is None else [one[..., : rows.shape[1]] for one in masks[at]]
                at += 1
                if problem.modules is None:
                    self.step(x.mT, y, task, given)
                else:
                    self.mix(x.mT, y, task, given, hide)

    def masks(self, given: Sequence[Tensor] | None, modules: int, batch: int) -> Sequence[Tensor] | None:
        """The masks of a step; none without dropout."""
        if given is not None or not self.problem.dropout or not modules:
            return given
        lanes, width = self.problem.lanes, self.problem.x.shape[2]
        return self.dropout.draw(self.problem.depth, lanes, modules, width, batch).unbind()

    def step(self, h: Tensor, y: Tensor, task: Tensor, given: Sequence[Tensor] | None) -> None:
        """One step of a monolithic net."""
        weight, bias = self.body.values["weight"], self.body.values["bias"]
        masks = self.masks(given, 1, h.shape[2])
        outputs = [h]
        for k in range(self.problem.depth):
            h = torch.baddbmm(bias[:, k, :, None], weight[:, k], h).relu_()
            if masks is not None:
                h *= masks[k].squeeze(1)
            outputs.append(h)
        slope = self.heads.learn(h, y, task)
        scale = 1 if masks is None else self.scale
        for k in reversed(range(self.problem.depth)):
            slope = back(slope, outputs[k + 1], 0)
            if scale != 1:
                slope *= scale
            torch.bmm(slope, outputs[k].mT, out=self.body.gradients["weight"][:, k])
            torch.sum(slope, 2, out=self.body.gradients["bias"][:, k])
            if k:
                slope = torch.bmm(weight[:, k].mT, slope)
        self.body.adam.step()

    def mix(self, h: Tensor, y: Tensor, task: Tensor, given: Sequence[Tensor] | None, hide: bool) -> None:
        """One step of a modular net, with the candidate or without."""
        problem = self.problem
        assert problem.modules is not None
        basis, depth = problem.modules.basis, problem.depth
        every = self.weight.shape[1]
        count = every - 1 if hide else every
        lanes, width, batch = h.shape
        weight = self.weight[:, :count].reshape(lanes, -1, width)
        bias = self.bias[:, :count].reshape(lanes, -1, 1)
        counted = count if problem.modules.renormalise else every
        soft = self.shares.values["structure"][:, :counted].softmax(1)  # [L, C, D]
        share = soft[:, :count]
        masks = self.masks(given, count - basis, batch)
        enters, leaves = [h], []
        for k in range(depth):
            outputs = torch.baddbmm(bias, weight, h).relu_().view(lanes, count, width, batch)
            if masks is not None:
                outputs[:, basis:] *= masks[k]
            h = torch.bmm(share[:, None, :, k], outputs.flatten(2)).view(lanes, width, batch)
            enters.append(h)
            leaves.append(outputs)
        slope = self.heads.learn(h, y, task)
        scaled = share.clone()
        if masks is not None:
            scaled[:, basis:] *= self.scale
        said = torch.zeros_like(soft)
        gradients = self.candidate.gradients
        self.candidate.flat.grad.zero_()  # type: ignore[union-attr]
        for k in reversed(range(depth)):
            flat = slope.reshape(lanes, 1, -1)
            said[:, :count, k] = torch.bmm(flat, leaves[k].flatten(2).mT).squeeze(1)
            if k:
                spread = back((scaled[:, :, k, None] * flat).view_as(leaves[k]), leaves[k], 0)
                own = spread[:, -1]
                slope = torch.bmm(weight.mT, spread.flatten(1, 2))
            elif not hide:
                own = back(scaled[:, -1:, k, None] * slope, leaves[k][:, -1], 0)
            if not hide:
                gradients["weight"].baddbmm_(own, enters[k].mT)
                gradients["bias"] += own.sum(2)
        structure = self.shares.gradients["structure"].zero_()
        structure[:, :counted] = soft * (said - (soft * said).sum(1, keepdim=True))
        self.shares.adam.step()
        if not hide:
            self.candidate.adam.step()
            self.weight[:, -1], self.bias[:, -1] = self.candidate.values["weight"], self.candidate.values["bias"]

    def weights(self) -> Weights:
        """The weights as they are now."""
        if self.problem.modules is None:
            body = {f"module.{name}": tensor for name, tensor in self.body.values.items()}
        else:
            body = {"module.weight": self.weight, "module.bias": self.bias, **self.shares.values}
        return {name: tensor.clone() for name, tensor in (body | self.heads.weights()).items()}
