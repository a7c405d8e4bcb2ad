"""Compressed mail: what every mode that averages models can be told about how it sends them.

In the *difference* form, which keeps the mean of the fleet where it is, an agent compares what came with what it has
sent itself: x_i + sum_j w_ij (Q(x_j) - Q(x_i)). Copies that both ends keep are in shoal/sharing/copies.py, `power`
(PowerGossip) is in shoal/sharing/power.py.

Weights are coded per module, biases go as they are. Of n weights, `compress = "topk"` sends the largest `ratio`, 4
bytes each and 2 or 4 for its place; `randk` a random `ratio`, 4 bytes each, both ends draw the places; `int8`, `int4` a
byte or half, rounded at random (Alistarh et al. 2017); `sign` a bit, and the mean size (Bernstein et al. 2018). FedCurv
takes int8 in the difference form.

With copies (CHOCO, Koloskova et al. 2019) q = Q(x_i − copy), copy += q at both ends, x_i + γ Σ w_ij (copy_j − copy_i).
There is a pair of copies for each directed edge; a sender adds what a receipt (one number) has confirmed and until then
sends the same again. Memory: two models and two coded ones per neighbour.

The difference form rounds the weights themselves, however near agents are: with int4 they stay 8 % of the size of their
weights away from the mean, with int8 0.4 %; `shoal check` says so above 1 %, and of a γ beyond what has been seen to
converge (`tests/sharing/test_compress.py`).

`power`: no γ. Price: rank × (rows or columns) + biases per module. Where two agents do not differ, a new direction is
drawn. What all of them cost in accuracy: (docs/results.md).
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Annotated, Literal

import numpy as np
import torch
from annotated_types import Gt, Le
from pydantic import Field, PositiveInt
from torch import Tensor

from shoal.errors import SettingsError
from shoal.learners.step import Tensors
from shoal.letters.mail import Expected
from shoal.models.contract import Model, body_shapes
from shoal.rng import key
from shoal.settings.groups import Settings
from shoal.sharing.codecs import BUILT_IN, CODECS, NONE, POWER, Codec
from shoal.sharing.mode import Mode, Present, Received
from shoal.weakly import weakly

COPIES, DIFFERENCE = "copies", "difference"
COARSE = 0.01  # agents that cannot come nearer to their mean than this share of their weights do not agree
MANY = 2**30  # more mails than an edge ever carries


class Compressing(Mode):
    """The settings of a mode whose mail can be compressed."""

    compress: str = Field(
        NONE,
        description=f"how weights are made small: none, {', '.join(BUILT_IN)}, or power (low rank); biases go as "
        "they are",
    )
    ratio: Annotated[float, Gt(0), Le(1)] = Field(0.1, description="the share of weights that topk and randk send")
    form: Literal["auto", "difference", "copies"] = Field(
        "auto",
        description="what is coded: weights, compared with what one has sent oneself, or the difference to copies that "
        "both ends keep; auto: difference for int8, copies for others",
    )
    gamma: Annotated[float, Gt(0), Le(1)] | Literal["auto"] = Field(
        "auto",
        description="the step towards neighbours, of which too large a one diverges; auto: what the codec stands",
    )
    rank: PositiveInt = Field(1, description="of what compress = power sends")

    @property
    def way(self) -> str:
        """In which form mail is: none, difference, copies or power."""
        if self.compress in (NONE, POWER):
            return self.compress
        return (DIFFERENCE if self.compress == "int8" else COPIES) if self.form == "auto" else self.form

    @property
    def step(self) -> float:
        """The step towards neighbours."""
        if self.gamma != "auto":
            return self.gamma
        return 1.0 if self.way in (NONE, POWER, DIFFERENCE) else codec_of(self).gamma(self.ratio)

    @property
    def doubt(self) -> str:
        """Why its step may be too large or its codec too coarse, in a sentence; empty: it has been seen to converge."""
        if self.way == DIFFERENCE and (floor := codec_of(self).floor) > COARSE:
            return (
                f'sharing.{self.mode}.form = "difference" stalls with compress = {self.compress}: agents have been '
                f"seen to stay {100 * floor:.0f} % of the size of their weights away from their mean, and to move that "
                'far apart if they were nearer; use form = "copies", which has been seen to reach it'
            )
        if self.way != COPIES or self.step <= (most := codec_of(self).gamma(self.ratio)):
            return ""
        return (
            f"sharing.{self.mode}.gamma = {self.step:g} may diverge: with compress = {self.compress} and ratio = "
            f"{self.ratio:g} steps up to {most:g} have been seen to converge"
        )


def codec_of(mode: Compressing) -> Codec:
    return CODECS.find(mode.compress)


def possible(mode: Compressing, settings: Settings) -> None:
    """Raise for settings that cannot work."""
    if mode.compress not in (NONE, POWER):
        codec = CODECS.find(mode.compress)
        if mode.way == DIFFERENCE and not codec.apart:
            raise SettingsError(
                f'sharing.{mode.mode}.form = "difference" compares coded weights number by number, which '
                f'{mode.compress} does not leave; use form = "copies", or randk, int8 or int4'
            )
    elif mode.form != "auto" or (mode.gamma != "auto" and mode.compress == POWER):
        what = "form" if mode.form != "auto" else "gamma"
        raise SettingsError(
            f"sharing.{mode.mode}.{what} means nothing with compress = {mode.compress}; drop it, or use a codec: "
            f"{', '.join(CODECS)}"
        )


def matrices(model: Model) -> dict[str, tuple[int, int]]:
    """What of a module is coded: rows and columns of its weights, by name; vectors go as they are."""
    shapes = body_shapes(model).items()
    return {name: (shape[0], prod(shape[1:])) for name, shape in shapes if len(shape) > 1}


@weakly
def suited(model: Model, mode: Compressing) -> dict[str, tuple[int, int]]:
    """`matrices` of a net that the mode can serve; or why it cannot."""
    found = matrices(model)
    if mode.compress != NONE and not found:
        raise SettingsError(
            f"sharing.{mode.mode}.compress = {mode.compress} codes matrices, and what agents have in common here has "
            "none; use compress = none"
        )
    least = min((min(shape) for shape in found.values()), default=0)
    if mode.compress == POWER and mode.rank > least:
        raise SettingsError(
            f"sharing.{mode.mode}.rank = {mode.rank} is more than the smallest matrix has, {least}; use a rank of at "
            f"most {least}, or another codec"
        )
    return found


def layout(mode: Compressing, model: Model, prefix: str = "") -> dict[str, Expected]:
    """What modules look like as they are sent."""
    found: dict[str, Expected] = {}
    matrix = suited(model, mode) if mode.compress != NONE else {}
    for name, shape in body_shapes(model).items():
        if name in matrix:
            parts = codec_of(mode).layout(prod(shape), mode.ratio)
            found |= {f"{prefix}{name}.{part}": one for part, one in parts.items()}
        else:
            found[prefix + name] = Expected(torch.float32, (None, *shape))
    return found


def coded(mode: Compressing, values: Tensors, who: Sequence[int | str], where: Sequence[int | str]) -> Tensors:
    """One agent's modules, tensors [U, ...] by name, as they are sent; `who` names its own random numbers, `where`
    those that both ends draw."""
    found: Tensors = {}
    for name, tensor in values.items():
        if tensor.ndim < 3:
            found[name] = tensor
            continue
        draws = (path_of(path, name) for path in (who, where))
        parts = codec_of(mode).encode(tensor.flatten(1), mode.ratio, *draws)
        found |= {f"{name}.{part}": one for part, one in parts.items()}
    return found


def path_of(path: Sequence[int | str], name: str) -> np.random.Generator:
    """The generator of one tensor."""
    seed, *rest = path
    assert isinstance(seed, int)
    return key(seed, *rest, name)


def decoded(
    mode: Compressing, model: Model, payload: Mapping[str, Tensor], where: Sequence[int | str], prefix: str = ""
) -> Tensors:
    """What a receiver makes of it, tensors [u, ...] by name."""
    found: Tensors = {}
    for name, shape in body_shapes(model).items():
        whole = prefix + name
        if whole in payload:
            found[name] = payload[whole]
            continue
        parts = {key.rpartition(".")[2]: one for key, one in payload.items() if key.startswith(f"{whole}.")}
        found[name] = codec_of(mode).decode(parts, prod(shape), path_of(where, whole)).unflatten(1, shape)
    return found


# The difference form


def moment(mode: Compressing, seed: int, clock: tuple[int, int]) -> tuple[int | str, ...]:
    """The name of the random numbers that all agents of a seed draw at an exchange."""
    return seed, mode.mode, "places", *clock


def coded_now(mode: Compressing, agent: Present, values: Tensors) -> Tensors:
    """An agent's modules, [U, ...] by name, as they are sent now."""
    who = agent.seed, agent.number, mode.mode, "rounding", *agent.clock
    where = moment(mode, agent.seed, agent.clock)
    return coded(mode, {name: tensor.cpu() for name, tensor in values.items()}, who, where)


def opened(mode: Compressing, agent: Present, letter: Received) -> Tensors:
    """A letter as if it had come whole."""

    def find() -> Tensors:
        where, model, tensors = moment(mode, agent.seed, letter.clock), agent.model, letter.tensors
        prefixes = ("", "fisher.") if any(name.startswith("fisher.") for name in tensors) else ("",)
        rest = {name: tensors[name] for name in ("modules", "degree") if name in tensors}
        for prefix in prefixes:
            found = decoded(mode, model, tensors, where, prefix)
            rest |= {prefix + name: tensor for name, tensor in found.items()}
        return rest

    return letter.once("opened", find)


def as_sent(mode: Compressing, agent: Present, own: Tensors) -> Tensors:
    """What an agent has said of its weights at this exchange."""
    return decoded(mode, agent.model, coded_now(mode, agent, own), moment(mode, agent.seed, agent.clock))
