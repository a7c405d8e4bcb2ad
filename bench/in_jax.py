"""JAX: one agent's step, mapped over lanes by `vmap`, an epoch as one `scan`, all of it compiled by `jit`.

Only where `jax` is installed (`pip install jax`); shoal does not need it.
"""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from bench.problem import BETAS, EPSILON, Masks, Problem, Weights

Tree = dict[str, Any]


def there() -> bool:
    """Is JAX installed?"""
    return find_spec("jax") is not None


def version() -> str:
    """Its version, or that there is none."""
    if not there():
        return "not installed"
    from importlib.metadata import version

    return version("jax")


class Mapped:
    """All lanes of a problem."""

    def __init__(self, problem: Problem) -> None:
        import jax

        self.problem = problem
        self.frozen: Tree = {}
        self.state: tuple[Any, ...] = ()
        self.begin()
        self.data = as_jax(problem.x), as_jax(problem.y.int()), as_jax(problem.task.int())
        self.key = jax.random.key(0, impl="unsafe_rbg")
        # Batches have one shape: the last is filled up with images that do not count.
        self.places = problem.batches * problem.batch
        epoch = jax.vmap(one_epoch(problem), in_axes=(0, 0, 0, 0, 0))
        self.given = jax.jit(epoch, donate_argnums=0)
        self.drawn = jax.jit(own_epoch(problem, epoch, self.places), donate_argnums=0)

    def begin(self) -> None:
        """From the first weights; what is compiled stays."""
        import jax

        first = {name: as_jax(tensor) for name, tensor in self.problem.weights.items()}
        if self.problem.modules is not None:
            for name in ("module.weight", "module.bias"):
                self.frozen[name], first[name] = first[name][:, :-1], first[name][:, -1:]
        zeros = jax.tree.map(jax.numpy.zeros_like, first)
        counts = {name: jax.numpy.zeros(tensor.shape[:2], "int32") for name, tensor in first.items()}
        self.state = first, zeros, jax.tree.map(jax.numpy.copy, zeros), counts

    def epoch(self, order: Tensor | None = None, masks: Masks | None = None) -> None:
        import jax

        if order is None:
            self.state, self.key = self.drawn(self.state, self.frozen, self.data, self.key)
            jax.block_until_ready(self.state)
            return
        rows = torch.zeros(self.problem.lanes, self.places, dtype=torch.int32)
        rows[:, : order.shape[1]] = order
        stacked = None
        if masks is not None:
            steps = len(masks) // self.problem.batches
            turns = [torch.stack([torch.stack(list(one), 1) for one in masks[at::steps]], 1) for at in range(steps)]
            stacked = [jax.numpy.asarray(turn.numpy()) for turn in turns]  # [L, batches, D, modules, H, B]
        self.state = self.given(self.state, self.frozen, self.data, jax.numpy.asarray(rows.numpy()), stacked)

    def weights(self) -> Weights:
        import numpy as np

        found = {name: torch.from_numpy(np.array(tensor)) for name, tensor in self.state[0].items()}
        for name, tensor in self.frozen.items():
            found[name] = torch.cat([torch.from_numpy(np.array(tensor)), found[name]], 1)
        return found


def as_jax(tensor: Tensor) -> Any:
    """A copy: what JAX is given it may use up."""
    from jax import numpy as jnp

    return jnp.array(tensor.numpy())


def own_epoch(problem: Problem, epoch: Callable[..., Any], places: int) -> Callable[..., Any]:
    """An epoch of all lanes that draws order and masks itself, the masks from random bits."""
    import jax
    from jax import numpy as jnp

    modules = [1]
    if problem.modules is not None:
        dropped = problem.weights["module.weight"].shape[1] - problem.modules.basis
        modules = [dropped, dropped - 1]
    lanes, width = problem.lanes, problem.x.shape[2]

    def masks(key: Any, count: int) -> Any:
        shape = (lanes, problem.batches, problem.depth, count, width, problem.batch)
        if problem.dropout != 0.5:
            return jax.random.bernoulli(key, 1 - problem.dropout, shape) / (1 - problem.dropout)
        return jax.random.bits(key, (*shape[:-1], -(-problem.batch // 32)), "uint32")

    def run(state: Any, frozen: Tree, data: Any, key: Any) -> tuple[Any, Any]:
        key, shuffle, *drops = jax.random.split(key, 2 + len(modules))
        order = jnp.argsort(jax.random.bits(shuffle, (lanes, problem.images)), 1).astype("int32")
        rows = jnp.zeros((lanes, places), "int32").at[:, : problem.images].set(order)
        drawn = [masks(one, count) for one, count in zip(drops, modules, strict=True)] if problem.dropout else None
        return epoch(state, frozen, data, rows, drawn), key

    return run


def one_epoch(problem: Problem) -> Callable[..., Any]:
    """One agent's epoch: (state, frozen, data, rows, masks) -> state."""
    import jax
    from jax import numpy as jnp

    modular, depth = problem.modules, problem.depth

    def plain(free: Tree, frozen: Tree, x: Any, masks: Any) -> Any:
        h = x.T
        for k in range(depth):
            h = jax.nn.relu(free["module.weight"][k] @ h + free["module.bias"][k][:, None])
            h = h if masks is None else h * masks[k, 0]
        return h

    def mixed(free: Tree, frozen: Tree, x: Any, masks: Any, hide: bool) -> Any:
        assert modular is not None
        weight, bias = frozen["module.weight"], frozen["module.bias"]
        if not hide:
            weight, bias = (jnp.concatenate([frozen[name], free[name]]) for name in ("module.weight", "module.bias"))
        count, width = bias.shape
        logits = free["structure"][:count] if hide and modular.renormalise else free["structure"]
        shares = jax.nn.softmax(logits, 0)[:count]
        h = x.T
        for k in range(depth):
            outputs = jax.nn.relu(weight.reshape(-1, width) @ h + bias.reshape(-1, 1)).reshape(count, width, -1)
            if masks is not None:
                outputs = jnp.concatenate([outputs[: modular.basis], outputs[modular.basis :] * masks[k]])
            h = jnp.tensordot(shares[:, k], outputs, 1)
        return h

    def loss(free: Tree, frozen: Tree, x: Any, y: Any, task: Any, real: Any, masks: Any, hide: bool) -> Any:
        h = plain(free, frozen, x, masks) if modular is None else mixed(free, frozen, x, masks, hide)
        heads = free["head.weight"]
        every = (heads.reshape(-1, heads.shape[2]) @ h).reshape(*heads.shape[:2], -1) + free["head.bias"][..., None]
        # Sums with zeros and ones: going back, a gather would be a scatter, which XLA does number by number on a CPU.
        own = jax.nn.one_hot(task, len(heads), axis=0)  # [T, B]
        logits = (every * own[:, None]).sum(0)  # [K, B]
        wrong = jax.nn.logsumexp(logits, 0) - (logits * jax.nn.one_hot(y, len(logits), axis=0)).sum(0)
        return (wrong * real).sum() / real.sum()

    def adam(value: Any, mean: Any, var: Any, count: Any, gradient: Any, here: Any) -> tuple[Any, ...]:
        """A unit is a module or a head; those not `here` stay as they are."""
        beta1, beta2 = BETAS
        shape = (-1, *[1] * (value.ndim - 1))
        on = here.reshape(shape)
        count = count + here
        times = jnp.maximum(count, 1).astype("float32").reshape(shape)
        mean = jnp.where(on, mean + (gradient - mean) * (1 - beta1), mean)
        var = jnp.where(on, var * beta2 + gradient**2 * (1 - beta2), var)
        moved = mean / (1 - beta1**times) / (jnp.sqrt(var / (1 - beta2**times)) + EPSILON)
        return jnp.where(on, value - problem.rate * moved, value), mean, var, count

    def step(state: Any, frozen: Tree, x: Any, y: Any, task: Any, real: Any, masks: Any, hide: bool) -> Any:
        free, mean, var, counts = state
        gradients = jax.grad(loss)(free, frozen, x, y, task, real, masks, hide)
        heads = (jax.nn.one_hot(task, free["head.bias"].shape[0], axis=0) * real).sum(1) > 0
        made: tuple[Tree, ...] = ({}, {}, {}, {})
        for name in free:
            here = heads if name.startswith("head") else jnp.full(len(free[name]), not (hide and "module" in name))
            done = adam(free[name], mean[name], var[name], counts[name], gradients[name], here)
            for kept, one in zip(made, done, strict=True):
                kept[name] = one
        return made

    def spread(mask: Any) -> Any:
        """A mask of random bits, 32 to a word, where it is used: as floats those of an epoch would not fit a cache."""
        if mask.dtype != "uint32":
            return mask
        each = (mask[..., None] >> jnp.arange(32, dtype="uint32")) & 1
        return each.reshape(*mask.shape[:-1], -1)[..., : problem.batch].astype("float32") * 2

    def epoch(state: Any, frozen: Tree, data: Any, rows: Any, masks: Any) -> Any:
        real = (jnp.arange(len(rows)) < problem.images).astype("float32").reshape(problem.batches, -1)

        def one(state: Any, turn: Any) -> tuple[Any, None]:
            at, counts, drops = turn
            x, y, task = (part[at] for part in data)
            drops = None if drops is None else [spread(one) for one in drops]
            for number, hide in enumerate((False, True) if modular else (False,)):
                state = step(state, frozen, x, y, task, counts, None if drops is None else drops[number], hide)
            return state, None

        return jax.lax.scan(one, state, (rows.reshape(problem.batches, -1), real, masks))[0]

    return epoch
