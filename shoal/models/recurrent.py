"""Recurrent layers in operations that all agents take at once.

Torch's own go step by step through autograd, and `vmap` cannot map them. Here the way back is written out: what a step
passes on depends on the steps behind it in one product alone, and all else is computed for all steps together."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn


def gated(module: nn.Module) -> list["Gated"]:
    """Let every GRU of a module be one that `vmap` can map; those whose steps something else may take."""
    for part in module.modules():
        if type(part) is nn.GRU:
            part.__class__ = Gated
    return [part for part in module.modules() if isinstance(part, Gated) and part.plain and part.single]


class Gated(nn.GRU):
    """In the place of an `nn.GRU`, with the same weights and, up to rounding, the same numbers. What takes its `steps`
    is `Steps`, or what knows the same, faster."""

    steps: Any

    @property
    def plain(self) -> bool:
        """Is it a GRU that is written out here?"""
        return bool(self.bias) and not self.bidirectional and not (self.dropout and self.num_layers > 1)

    @property
    def single(self) -> bool:
        """Are its numbers float32?"""
        return all(one.dtype == torch.float32 for one in self.parameters())

    def forward(self, x: Any, hx: Any = None) -> Any:
        wanted = self.training or self.steps is not Steps  # who only answers needs no way back, and torch can do that
        if not wanted or hx is not None or not self.plain or not isinstance(x, Tensor) or x.ndim != 3:
            return super().forward(x, hx)
        h, last = x.transpose(0, 1) if self.batch_first else x, []
        for at in range(self.num_layers):
            weights = (getattr(self, f"{name}_l{at}") for name in ("weight_ih", "bias_ih", "weight_hh", "bias_hh"))
            h, *_ = self.steps.apply(h, *weights)
            last.append(h[-1])
        return (h.transpose(0, 1) if self.batch_first else h), torch.stack(last)


class Steps(torch.autograd.Function):
    """The states h[..., T, B, H] of a layer of a GRU (Cho et al. 2014, as torch has it) that begins at zero, of its
    inputs x[..., T, B, I], enter[..., 3H, I] and its bias[..., 3H], and pass_[..., 3H, H] and its bias; then what the
    way back needs. Tensors of one agent, or of all, whose axis comes first.

    r and z are sigmoid, n = tanh(a_n + r g_n), where a is what the inputs give and g what the state h' before gives to
    the three, and h = n + z (h' - n).
    """

    @staticmethod
    def forward(
        x: Tensor, enter: Tensor, enter_bias: Tensor, pass_: Tensor, pass_bias: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        if x.ndim == 3:
            one = Steps.forward(x[None], enter[None], enter_bias[None], pass_[None], pass_bias[None])
            return one[0][0], one[1][0], one[2][0]
        (lanes, steps, batch, _), width = x.shape, pass_.shape[-1]
        gates = torch.baddbmm(enter_bias[:, None], x.flatten(1, 2), enter.mT).view(lanes, steps, batch, 3 * width)
        h, bias = x.new_zeros(lanes, batch, width), pass_bias[:, None]
        states, given = (x.new_empty(lanes, steps, batch, size) for size in (width, width))
        for at in range(steps):
            both, new = gates[:, at, :, : 2 * width], gates[:, at, :, 2 * width :]
            more = torch.baddbmm(bias, h, pass_.mT)
            both.add_(more[..., : 2 * width]).sigmoid_()
            given[:, at] = more[..., 2 * width :]
            new.addcmul_(both[..., :width], more[..., 2 * width :]).tanh_()
            h = torch.lerp(new, h, both[..., width:])
            states[:, at] = h
        return states, gates, given

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        x, enter, _, pass_, _ = inputs
        ctx.save_for_backward(x, enter, pass_, *output)
        ctx.mark_non_differentiable(*output[1:])

    @staticmethod
    def backward(ctx: Any, slope: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        held = ctx.saved_tensors
        if slope.ndim == 3:
            found = turned([one[None] for one in held], slope[None], ctx.needs_input_grad[0])
            return tuple(one if one is None else one[0] for one in found)
        return turned(held, slope, ctx.needs_input_grad[0])

    @staticmethod
    def vmap(info: Any, where: tuple[int | None, ...], *given: Tensor) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        """All agents at once."""
        lanes = [
            one.expand(info.batch_size, *one.shape) if axis is None else one.movedim(axis, 0)
            for one, axis in zip(given, where, strict=True)
        ]
        return Steps.apply(*lanes), (0, 0, 0)  # type: ignore[no-untyped-call]


Gated.steps = Steps


def turned(held: Sequence[Tensor], slope: Tensor, deeper: bool) -> tuple[Tensor | None, ...]:
    """The gradients at the inputs, unless nothing is `deeper`, and at the four weights, of all agents, from what
    `Steps` has held and the slope at the states."""
    x, enter, pass_, states, gates, given = held
    reset, update, new = gates.chunk(3, -1)
    before = torch.cat([torch.zeros_like(states[:, :1]), states[:, :-1]], 1)
    # How much what goes into each gate, and what the state before gives to the new state, moves with the state.
    passed = torch.empty_like(gates)
    at_reset, at_update, at_given = passed.chunk(3, -1)
    at_new = (1 - update).mul_(torch.addcmul(torch.ones(()), new, new, value=-1))
    torch.mul(at_new, reset, out=at_given)
    torch.mul(at_given, given, out=at_reset).mul_(1 - reset)
    torch.sub(before, new, out=at_update).mul_(update).mul_(1 - update)
    whole, back = torch.empty_like(states), torch.zeros_like(states[:, 0])
    for at in reversed(range(x.shape[1])):
        here = torch.add(slope[:, at], back, out=whole[:, at])
        pulls = passed[:, at].unflatten(-1, (3, -1)).mul_(here.unsqueeze(-2)).flatten(-2)
        back = torch.bmm(pulls, pass_).addcmul_(here, update[:, at])
    to_pass, to_pass_bias = torch.bmm(passed.flatten(1, 2).mT, before.flatten(1, 2)), passed.sum((1, 2))
    torch.mul(at_new, whole, out=at_given)
    flat = passed.flatten(1, 2)
    to_x = torch.bmm(flat, enter).view(x.shape) if deeper else None
    return to_x, torch.bmm(flat.mT, x.flatten(1, 2)), flat.sum(1), to_pass, to_pass_bias
