"""Nets of one's own in JAX: the steps of an epoch are one `scan`, agents go by `vmap` or one after the other, and Adam
and the drawing of batches are compiled with it by one `jit`.

Only where `jax` is installed (`pip install jax`); shoal does not need it.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from bench.in_jax import Tree, as_jax
from bench.problem import BETAS, EPSILON, Weights

WAYS = ("vmap", "map")  # `map` goes agent by agent, which keeps what a convolution unfolds in a cache


def mlp(given: Tree, x: Any) -> Any:
    """Two linear layers with ReLU, of rows [B, ...]."""
    import jax

    h = x.reshape(len(x), -1)
    for layer in ("1", "3"):
        h = jax.nn.relu(h @ given[f"{layer}.weight"].T + given[f"{layer}.bias"])
    return h


def cnn(given: Tree, x: Any) -> Any:
    """Two convolutions with ReLU and pooling. Convolutions are products of unfolded images, channels last: XLA is
    several times slower on a CPU at those of its own, and worse where each agent has other weights."""
    import jax
    from jax import numpy as jnp

    h = x.transpose(0, 2, 3, 1)
    for layer in ("0", "3"):
        weight = given[f"{layer}.weight"]
        many, rows, columns, channels = h.shape
        wide = jnp.pad(h, ((0, 0), (1, 1), (1, 1), (0, 0)))
        places = [(down, right) for down in range(3) for right in range(3)]
        spots = jnp.concatenate([wide[:, a : a + rows, b : b + columns] for a, b in places], -1)
        flat = spots.reshape(-1, 9 * channels) @ weight.transpose(2, 3, 1, 0).reshape(9 * channels, -1)
        h = jax.nn.relu(flat + given[f"{layer}.bias"]).reshape(many, rows // 2, 2, columns // 2, 2, -1).max((2, 4))
    return h.transpose(0, 3, 1, 2).reshape(len(x), -1)


def gru(given: Tree, x: Any) -> Any:
    """A GRU over the rows of an image; its last state. What it reads is multiplied for all rows at once."""
    import jax
    from jax import numpy as jnp

    rows = x.reshape(len(x), -1, x.shape[-1]).transpose(1, 0, 2)
    read = rows @ given["gru.weight_ih_l0"].T + given["gru.bias_ih_l0"]

    def one(h: Any, row: Any) -> tuple[Any, None]:
        reset, update, new = jnp.split(row, 3, -1)
        held_reset, held_update, held_new = jnp.split(h @ given["gru.weight_hh_l0"].T + given["gru.bias_hh_l0"], 3, -1)
        update = jax.nn.sigmoid(update + held_update)
        new = jnp.tanh(new + jax.nn.sigmoid(reset + held_reset) * held_new)
        return (1 - update) * new + update * h, None

    last, _ = jax.lax.scan(one, jnp.zeros((len(x), given["gru.weight_hh_l0"].shape[1])), read)
    return last


NETS: dict[str, Callable[[Tree, Any], Any]] = {"mlp": mlp, "cnn": cnn, "gru": gru}


class Mapped:
    """Agents with a net each, which learn one task; batches are whole."""

    def __init__(self, name: str, x: Tensor, y: Tensor, batch: int, rate: float, way: str) -> None:
        """Rows x[L, N, ...], as floats, and their labels y[L, N]."""
        import jax

        if x.shape[1] % batch:
            raise ValueError(f"{x.shape[1]} rows are not whole batches of {batch}")
        self.images = x.shape[:2]
        self.data = as_jax(x), as_jax(y.int())
        self.state: tuple[Any, ...] = ()
        self.key = jax.random.key(0, impl="unsafe_rbg")
        epoch = each(one_epoch(NETS[name], batch, rate), way)
        self.given = jax.jit(epoch, donate_argnums=0)
        self.drawn = jax.jit(self.own_epoch(epoch), donate_argnums=0)

    def begin(self, weights: Mapping[str, Tensor], data: tuple[Tensor, Tensor] | None = None) -> None:
        """From these weights [L, ...], `head.weight` and `head.bias` among them, with a fresh Adam; what is compiled
        stays."""
        import jax

        if data is not None:
            self.data = as_jax(data[0]), as_jax(data[1].int())
        first = {name: as_jax(tensor) for name, tensor in weights.items()}
        zeros = jax.tree.map(jax.numpy.zeros_like, first)
        self.state = first, zeros, jax.tree.map(jax.numpy.copy, zeros), jax.numpy.zeros(self.images[0], "int32")

    def own_epoch(self, epoch: Callable[..., Any]) -> Callable[..., Any]:
        """An epoch that draws the order of rows itself."""
        import jax

        def run(state: Any, data: Any, key: Any) -> tuple[Any, Any]:
            key, shuffle = jax.random.split(key)
            order = jax.numpy.argsort(jax.random.bits(shuffle, self.images), 1).astype("int32")
            return epoch(state, data, order), key

        return run

    def epoch(self, order: Tensor | None = None) -> None:
        """One epoch of all agents; rows in this order [L, N], or as it draws them itself."""
        import jax

        if order is None:
            self.state, self.key = self.drawn(self.state, self.data, self.key)
        else:
            self.state = self.given(self.state, self.data, as_jax(order.int()))
        jax.block_until_ready(self.state)

    def weights(self) -> Weights:
        """The weights as they are now."""
        import numpy as np

        return {name: torch.from_numpy(np.array(tensor)) for name, tensor in self.state[0].items()}


def each(epoch: Callable[..., Any], way: str) -> Callable[..., Any]:
    """The epoch of one agent as that of all, in one of WAYS."""
    import jax

    if way == "vmap":
        every: Callable[..., Any] = jax.vmap(epoch)
        return every
    return lambda *given: jax.lax.map(lambda own: epoch(*own), given)


def one_epoch(net: Callable[[Tree, Any], Any], batch: int, rate: float) -> Callable[..., Any]:
    """One agent's epoch: (state, data, order) -> state."""
    import jax
    from jax import numpy as jnp

    beta1, beta2 = BETAS

    def loss(free: Tree, x: Any, y: Any) -> Any:
        logits = net(free, x) @ free["head.weight"].T + free["head.bias"]
        # A sum with zeros and ones: going back, a gather would be a scatter, which is slow on a CPU.
        own = (logits * jax.nn.one_hot(y, logits.shape[1])).sum(1)
        return (jax.nn.logsumexp(logits, 1) - own).mean()

    def epoch(state: Any, data: Any, order: Any) -> Any:
        def step(state: Any, at: Any) -> tuple[Any, None]:
            free, mean, var, count = state
            gradients = jax.grad(loss)(free, data[0][at], data[1][at])
            count = count + 1
            mean = jax.tree.map(lambda m, g: m + (g - m) * (1 - beta1), mean, gradients)
            var = jax.tree.map(lambda v, g: v * beta2 + g**2 * (1 - beta2), var, gradients)
            one, two = 1 - beta1**count, 1 - beta2**count
            moved = jax.tree.map(lambda m, v: rate * m / one / (jnp.sqrt(v / two) + EPSILON), mean, var)
            return (jax.tree.map(jnp.subtract, free, moved), mean, var, count), None

        return jax.lax.scan(step, state, order.reshape(-1, batch))[0]

    return epoch
