"""Recurrent layers of all agents by the kernel, forth and back: in the place of `shoal.models.recurrent.Steps`."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from shoal.compiled.layout import GRU
from shoal.compiled.library import kernel

WIDEST, KEPT = 16, 5  # numbers in a vector, at most; what is kept of each state for the way back


class InKernel(torch.autograd.Function):
    """The states h[..., T, B, H] of a layer, as `Steps` has them, and what its way back needs."""

    @staticmethod
    def forward(
        x: Tensor, enter: Tensor, enter_bias: Tensor, pass_: Tensor, pass_bias: Tensor
    ) -> tuple[Tensor, Tensor]:
        if x.ndim == 3:
            states, kept = InKernel.forward(*(one[None] for one in (x, enter, enter_bias, pass_, pass_bias)))
            return states[0], kept[0]
        lanes, steps, batch, _ = x.shape
        states = x.new_empty(lanes, steps, batch, pass_.shape[-1])
        kept = x.new_empty(lanes, steps, KEPT * pass_.shape[-1] * -(-batch // WIDEST) * WIDEST)
        weights = {"enter": enter, "enter_bias": enter_bias, "pass": pass_, "pass_bias": pass_bias}
        called("shoal_gru_forth", x, {**weights, "states": states, "kept": kept})
        return states, kept

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        x, enter, _, pass_, _ = inputs
        ctx.save_for_backward(x, enter, pass_, *output)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx: Any, slope: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        held, one = (*ctx.saved_tensors, slope), slope.ndim == 3
        x, enter, pass_, states, kept, slope = (tensor[None] if one else tensor for tensor in held)
        weights = {"enter": enter, "pass": pass_}
        found = {f"to_{name}": torch.empty_like(weight, memory_format=torch.contiguous_format)
                 for name, weight in weights.items()}  # fmt: skip
        found |= {f"to_{name}_bias": weight.new_empty(weight.shape[:2]) for name, weight in weights.items()}
        if ctx.needs_input_grad[0]:
            found["to_x"] = x.new_empty(x.shape)
        called("shoal_gru_back", x, {**weights, "states": states, "kept": kept, "slope": slope, **found})
        order = ("to_x", "to_enter", "to_enter_bias", "to_pass", "to_pass_bias")
        given = [found.get(name) for name in order]
        return tuple(tensor[0] if one and tensor is not None else tensor for tensor in given)

    @staticmethod
    def vmap(info: Any, where: tuple[int | None, ...], *given: Tensor) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        """All agents at once."""
        lanes = [
            one.expand(info.batch_size, *one.shape) if axis is None else one.movedim(axis, 0)
            for one, axis in zip(given, where, strict=True)
        ]
        return InKernel.apply(*lanes), (0, 0)  # type: ignore[no-untyped-call]


def called(name: str, x: Tensor, tensors: dict[str, Tensor]) -> None:
    """Let the kernel read and write tensors of all lanes."""
    library = kernel().library
    assert library is not None
    x = x if x.stride(-1) == 1 else x.contiguous()
    held = {"x": x, **{word: one.contiguous() for word, one in tensors.items()}}
    if any(one.dtype != torch.float32 for one in held.values()):
        raise TypeError("what the kernel reads must be float32")
    (lanes, steps, batch, inputs), width = x.shape, tensors["pass"].shape[-1]
    told = dict(zip(GRU, (lanes, steps, batch, inputs, width, *x.stride()[:3]), strict=False))
    told |= {word: one.data_ptr() for word, one in held.items()}
    asked = np.array([told.get(word, 0) for word in GRU], np.int64)
    if getattr(library, name)(asked.ctypes.data):
        raise MemoryError("there is no memory for the states of one agent")
