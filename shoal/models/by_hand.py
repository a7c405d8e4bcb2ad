"""MLPs forth and back by hand, all lanes at once: what autograd would find, in fewer library calls.

Tensors have the lane axis first. Activations are feature-major, as in `mlp.py`: h[L, H, B].
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from shoal.models import heads
from shoal.models.chains import Layer, masks_of
from shoal.models.contract import Forth, Part
from shoal.models.params import MODULE, STRUCTURE

if TYPE_CHECKING:
    from shoal.models.modular import Modular, Slots

Tensors = dict[str, Tensor]
WEIGHT, BIAS = MODULE
HEAD, HEAD_BIAS = heads.NAMES
THRESHOLD = torch.ops.aten.threshold_backward.grad_input


class Note(NamedTuple):
    """What modules that train read, and the gradient of what comes before their ReLU; noted, if someone wants to know,
    from the last depth to the first, instead of the gradients of their weights."""

    read: Tensor  # [L, H, B]
    slope: Tensor  # [L, C * H, B]


def run(weight: Tensor, bias: Tensor, h: Tensor) -> Tensor:
    """Modules that lie one below the other, weight[L, n, H] and bias[L, n, 1], on h[L, H, B]: [L, n, B]."""
    return torch.bmm(weight, h).add_(bias).relu_()


def monolithic(
    depth: int,
    params: Mapping[str, Tensor],
    x: Tensor,
    task: int | Tensor,
    parts: Mapping[str, Part],
    masks: Sequence[Tensor] | None = None,
    note: list[Note] | None = None,
) -> Forth:
    """A net of one module after the other."""
    weights, biases = params[WEIGHT].unbind(1), params[BIAS].unsqueeze(-1).unbind(1)
    drops = None if masks is None else [mask.squeeze(1) for mask in masks]
    hidden = [x.mT]
    for k in range(depth):
        out = run(weights[k], biases[k], hidden[k])
        hidden.append(out if drops is None else out.mul_(drops[k]))
    logits, from_head = head(params, hidden[depth], task, parts)
    first, last = parts[WEIGHT][0].indices(depth)[:2] if WEIGHT in parts else (depth, depth)

    def back(pull: Tensor) -> Tensors:
        found, slope = from_head(pull)
        into: list[Tensor] = []
        into_bias: list[Tensor] = []
        for k in reversed(range(first, depth)):
            if drops is not None:
                slope.mul_(drops[k])
            behind_relu(slope, hidden[k + 1])
            if note is not None:
                note.append(Note(hidden[k], slope))
            elif k < last:
                into.insert(0, torch.bmm(slope, hidden[k].mT))
                into_bias.insert(0, slope.sum(-1))
            if k > first:
                slope = torch.bmm(weights[k].mT, slope)
        return {**found, WEIGHT: torch.stack(into, 1), BIAS: torch.stack(into_bias, 1)} if into else found

    return Forth(logits, back)


def layered(
    layers: Sequence[Layer],
    peak: float,
    params: Mapping[str, Tensor],
    x: Tensor,
    task: int | Tensor,
    parts: Mapping[str, Part],
    masks: Sequence[Tensor] | None = None,
) -> Forth:
    """A chain of linear layers, each a weight [L, 1, out, in] and a bias [L, 1, out], on rows x[L, B, ...]."""
    hidden, names = [(x.flatten(2).float() / peak).mT], [layer.tensors for layer in layers]
    drops = masks_of(layers, masks) if masks else [None] * len(layers)
    for layer, (weight, bias), drop in zip(layers, names, drops, strict=True):
        out = torch.bmm(params[weight][:, 0], hidden[-1]).add_(params[bias][:, 0, :, None])
        out = out.relu_() if layer.bends else out
        hidden.append(out if drop is None else out.mul_(drop))
    logits, from_head = head(params, hidden[-1], task, parts)

    def back(pull: Tensor) -> Tensors:
        found, slope = from_head(pull)
        for k, (weight, bias) in reversed(list(enumerate(names))):
            if not any(name in parts for layer in names[: k + 1] for name in layer):
                break
            if (drop := drops[k]) is not None:
                slope.mul_(drop)
            if layers[k].bends:
                behind_relu(slope, hidden[k + 1])
            if weight in parts:
                found[weight] = torch.bmm(slope, hidden[k].mT)[:, None]
            if bias in parts:
                found[bias] = slope.sum(-1)[:, None]
            if k:
                slope = torch.bmm(params[weight][:, 0].mT, slope)
        return found

    return Forth(logits, back)


def behind_relu(slope: Tensor, out: Tensor) -> None:
    """Turn the gradient after a ReLU into that before it, in place; `out` is what came out of it, dropped or not."""
    THRESHOLD(slope, out, 0, grad_input=slope)


def head(
    params: Mapping[str, Tensor], h: Tensor, task: int | Tensor, parts: Mapping[str, Part]
) -> tuple[Tensor, Callable[[Tensor], tuple[Tensors, Tensor]]]:
    """Logits [L, B, K] of h[L, F, B] by the head of one task, or by each image's own; and the way back, to the
    gradients of the heads that train and to that of h."""
    weight, bias = params[HEAD], params[HEAD_BIAS]
    if weight.shape[1] == 1:  # for all tasks
        task = 0
    first, last = (task, task + 1) if isinstance(task, int) else (0, weight.shape[1])
    flat = weight[:, first:last].flatten(1, 2)
    every = torch.bmm(h.mT, flat.mT).add_(bias[:, first:last].flatten(1)[:, None])
    lanes, batch, classes = *every.shape[:2], bias.shape[2]
    if isinstance(task, int):
        logits, own = every, None
    else:
        own = torch.arange(0, lanes * batch * last, last, device=task.device) + task.flatten()
        logits = every.view(-1, classes).index_select(0, own).view(lanes, batch, classes)

    def back(pull: Tensor) -> tuple[Tensors, Tensor]:
        if own is not None:
            wide = torch.zeros_like(every)
            wide.view(-1, classes).index_copy_(0, own, pull.reshape(-1, classes))
            pull = wide
        found = {}
        if HEAD in parts:
            found = {
                HEAD: torch.bmm(pull.mT, h.mT).unflatten(1, (last - first, -1)),
                HEAD_BIAS: pull.sum(1).unflatten(1, (last - first, -1)),
            }
            found = {name: units_of(one, first, last, parts[name][0], params[name]) for name, one in found.items()}
        return found, torch.bmm(flat.mT, pull.mT)

    return logits, back


def units_of(gradient: Tensor, first: int, last: int, units: slice, value: Tensor) -> Tensor:
    """The gradient of some `units` of a tensor, of which those from `first` to `last` have one; that of others is
    zero."""
    wanted = units.indices(value.shape[1])[:2]
    if wanted == (first, last):
        return gradient
    found = value.new_zeros(gradient.shape[0], value.shape[1], *gradient.shape[2:])
    found[:, first:last] = gradient
    return found[:, wanted[0] : wanted[1]]


def modular(
    model: "Modular",
    params: Mapping[str, Tensor],
    x: Tensor,
    task: int | Tensor,
    parts: Mapping[str, Part],
    *,
    slots: "Slots",
    masks: Sequence[Tensor] | None = None,
    note: list[Note] | None = None,
) -> Forth | None:
    """A net whose tasks compose modules. None, where structures train on images of several tasks."""
    if isinstance(task, int) and task < model.initial:
        return initial(model.depth, params, x, task, parts, slots.choice[:, task], masks)
    weight, bias = params[WEIGHT], params[BIAS]
    lanes, count, width, _ = weight.shape
    if isinstance(task, int):
        soft = model.soft(params, slots, task)  # [L, slots, D]
        shares = (soft * slots.visible[..., None])[:, :count].unbind(2)
    elif STRUCTURE in parts:
        return None
    else:
        lane = torch.arange(lanes, device=task.device)[:, None]
        every = model.shares(params, slots)[:, :, :count]  # [L, T, C, D]
        shares = every[lane, task].permute(3, 0, 2, 1).contiguous().unbind()  # [L, C, B] each
    wide, tall = weight.flatten(1, 2), bias.flatten(1)[:, :, None]
    plain = 0 if model.dropout_basis else model.basis * width  # what comes first has no dropout
    drops = None if masks is None or plain >= count * width else [mask.flatten(1, 2) for mask in masks]
    reads, outs, h = [], [], x.mT
    for k in range(model.depth):
        out = run(wide, tall, h)
        if drops is not None:
            out[:, plain:].mul_(drops[k])
        reads.append(h)
        outs.append(out)
        h = mixed(out, shares[k])
    logits, from_head = head(params, h, task, parts)
    first, last = parts[WEIGHT][0].indices(count)[:2] if WEIGHT in parts else (count, count)

    def back(pull: Tensor) -> Tensors:
        found, slope = from_head(pull)
        taken: list[Tensor] = []
        into: list[Tensor] = []
        into_bias: list[Tensor] = []
        for k in reversed(range(model.depth if STRUCTURE in parts or first < last else 0)):
            if STRUCTURE in parts:
                # As a row: what the library does with a column depends on the number of lanes.
                taken.insert(0, torch.bmm(slope.view(lanes, 1, -1), outs[k].view(lanes, count, -1).mT))
            if k == 0 and first == last:
                break
            slope = spread(slope, shares[k])
            behind_relu(slope, outs[k])
            if drops is not None:
                slope[:, plain:].mul_(drops[k])
            mine = slope[:, first * width : last * width]
            if note is not None:
                note.append(Note(reads[k], mine))
            elif first < last:
                into.append(torch.bmm(mine, reads[k].mT))
                into_bias.append(mine.sum(-1))
            if k:
                slope = torch.bmm(wide.mT, slope)
        if into:
            found[WEIGHT], found[BIAS] = (total(one).unflatten(1, (-1, width)) for one in (into, into_bias))
        if STRUCTURE in parts and isinstance(task, int):
            units, places = parts[STRUCTURE]
            pulls = torch.zeros_like(soft)
            pulls[:, :count] = torch.cat(taken, 1).mT
            pulls *= slots.visible[..., None]
            inner = softmax_back(pulls, soft, 1)[:, None]
            found[STRUCTURE] = units_of(inner, task, task + 1, units, params[STRUCTURE])[:, :, places]
        return found

    return Forth(logits, back)


def softmax_back(pull: Tensor, soft: Tensor, axis: int) -> Tensor:
    """The gradient at what a softmax has read, of a `pull` on what it gave. By torch's own function, which has no
    public name: where another torch lacks it, by its formula, which rounds in another way."""
    if hasattr(torch, "_softmax_backward_data"):
        return torch._softmax_backward_data(pull, soft, axis, soft.dtype)
    return soft * (pull - (soft * pull).sum(axis, keepdim=True))


def log_softmax_back(pull: Tensor, logs: Tensor, axis: int) -> Tensor:
    """The same for the logarithm of a softmax."""
    if hasattr(torch, "_log_softmax_backward_data"):
        return torch._log_softmax_backward_data(pull, logs, axis, logs.dtype)
    return pull - logs.exp() * pull.sum(axis, keepdim=True)


def total(tensors: Sequence[Tensor]) -> Tensor:
    """The sum of tensors, which goes into the first."""
    for one in tensors[1:]:
        tensors[0].add_(one)
    return tensors[0]


def mixed(out: Tensor, share: Tensor) -> Tensor:
    """The weighted sum of module outputs [L, C * H, B]; share[L, C] for one task, [L, C, B] for a batch of several."""
    lanes, count = share.shape[:2]
    every = out.unflatten(1, (count, -1))
    if share.ndim == 2:
        return torch.bmm(share[:, None], every.flatten(2)).view(lanes, *every.shape[2:])
    found: Tensor = (every * share[:, :, None]).sum(1)
    return found


def spread(slope: Tensor, share: Tensor) -> Tensor:
    """The gradient of module outputs [L, C * H, B] from that of their weighted sum [L, H, B]."""
    share = share[:, :, None, None] if share.ndim == 2 else share[:, :, None]
    return (slope[:, None] * share).flatten(1, 2)


def initial(
    depth: int,
    params: Mapping[str, Tensor],
    x: Tensor,
    task: int,
    parts: Mapping[str, Part],
    choice: Tensor,
    masks: Sequence[Tensor] | None,
) -> Forth:
    """An initial task, which uses one module at each depth: choice[L, D]."""
    lane = torch.arange(len(choice), device=choice.device)[:, None]
    names = [name for name in MODULE if name in parts]
    chosen = {name: params[name][lane, choice] for name in MODULE}
    inner = {**parts, **dict.fromkeys(names, (slice(0, depth),))}
    logits, inside = monolithic(depth, {**params, **chosen}, x, task, inner, masks)

    def back(pull: Tensor) -> Tensors:
        found = inside(pull)
        for name in names:
            whole = torch.zeros_like(params[name])
            for k in range(depth):  # a module may run at several depths
                whole[lane[:, 0], choice[:, k]] += found[name][:, k]
            found[name] = whole[:, parts[name][0]]
        return found

    return Forth(logits, back)
