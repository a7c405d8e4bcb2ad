"""Gradient tracking: agents learn as if they saw the data of all (K-GT, Liu et al. 2024; SCAFFOLD on graphs)."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from shoal.agents.engine import crew
from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.data.tasks import Lane
from shoal.errors import SettingsError
from shoal.learners.additions import Addition, penalised, trains_body
from shoal.learners.batches import Batch, batch_size, batches, generators, pool
from shoal.learners.fisher import errors, frame, snapshot
from shoal.learners.in_torch import autograd
from shoal.learners.step import Frame, Part, Tensors
from shoal.letters.mail import Expected, Mail
from shoal.mail.post import Post
from shoal.models.contract import Model, Usage, body_shapes
from shoal.settings.groups import Settings
from shoal.sharing.arrived import combined
from shoal.sharing.body import write_all
from shoal.sharing.bounds import WEIGHTIEST
from shoal.sharing.codecs import NONE
from shoal.sharing.federated import Federated, models
from shoal.sharing.mixing import PUSH_SUM, mixed, plain_gaps
from shoal.sharing.penalty import remembered

TRACK = "track"


class Tracking(Federated):
    """Averaging, and a correction of every gradient towards that of all (gradient tracking)."""

    copies: ClassVar[int] = 2
    example: ClassVar[Mapping[str, Any]] = {"every": 2, "samples": 8}
    mode: Literal["tracking"] = "tracking"
    when: Literal["before"] = Field("before", description="exchange before every so many epochs")
    samples: PositiveInt = Field(64, description="images that an agent's gradient is of")

    def suits(self, settings: Settings) -> None:
        if self.compress != NONE or self.weights == PUSH_SUM:
            raise SettingsError(
                "mode `tracking` sends gradients as they are, by weights that are the same both ways, got compress = "
                f"{self.compress} and weights = {self.weights}; use compress = none and weights = metropolis or mean"
            )
        super().suits(settings)

    def slopes(self, post: Post) -> Tensors:
        """Every lane's gradient over what agents have in common, [L, units, ...], at its weights now."""

        def find() -> Tensors:
            pieces = crew(post.stack.pieces(post.world), lambda piece: slope(*piece, self.samples))
            return {name: torch.cat([piece[name] for piece in pieces]) for name in post.world.model.body}

        return post.once(("slopes",), post, find)

    def tracked(self, post: Post) -> Tensors:
        """y_i = g_i + c_i; the correction of an earlier task counts no more."""
        state, own = post.stack.of(self.owner), self.slopes(post)
        if "on" not in state:
            return own
        here = (state["on"] == 1 + post.stack.task).to(torch.float32)
        return {
            name: own[name] + here.view(-1, *[1] * (own[name].ndim - 1)) * state[f"correction.{name}"] for name in own
        }

    def answer(self, post: Post, questions: Sequence[Mail]) -> Sequence[Mail]:
        """Everybody's modules and what it tracks."""
        if not post.world.edges:
            return []
        return models(post, questions, snapshot(post.world, post.stack), self.tracked(post), TRACK)

    def absorb(self, post: Post, questions: Sequence[Mail], answers: Sequence[Mail]) -> None:
        """The mean of weights, and c_i = sum_j w_ij y_j - g_i until the next exchange; the sum over agents of c stays
        zero where weights are the same both ways."""
        state = remembered(post, ("correction",))
        if answers:
            now, own = self.tracked(post), self.slopes(post)
            rows, found = mixed(post, plain_gaps(post, answers, now, f"{TRACK}."), 1.0, now)
        old = (state["on"] > 0) & (state["on"] != 1 + post.stack.task)
        for name in post.world.model.body:
            state[f"correction.{name}"][old] = 0
        state["on"][old] = 0
        at, mean = combined(post, questions, answers)
        if answers:
            state["on"][rows] = 1 + post.stack.task
            for name, tensor in found.items():
                state[f"correction.{name}"][rows] = tensor - own[name][rows]
        write_all(post.stack, at, mean)

    def expects(self, world: World, kind: str, sender: Lane) -> Mapping[str, Expected]:
        found = dict(super().expects(world, kind, sender))
        if kind == "receipt":
            return found
        far = Expected(torch.float32, (None,), least=-WEIGHTIEST, most=WEIGHTIEST)
        shapes = body_shapes(world.model).items()
        tracks = {f"{TRACK}.{name}": far._replace(shape=(None, *shape)) for name, shape in shapes}
        return {name: one for name, one in found.items() if not name.startswith("fisher.")} | tracks

    def additions(self) -> tuple[Addition, ...]:
        return (penalised(self.owner, self.acts, self.penalty),)

    def acts(self, world: World, stack: Stack, parts: Mapping[str, Part]) -> bool:
        return "on" in stack.of(self.owner) and trains_body(world, parts)

    def penalty(self, frame: Frame) -> Tensor:
        """One agent's <c, w>, of which c is the gradient."""
        total = frame.batch.weight.new_zeros(())
        for name in frame.model.body:
            correction = frame.state[f"correction.{name}"]
            total = total + (frame.free[name][: len(correction)] * correction).sum()
        return torch.where(frame.state["on"] > 0, total, 0.0)


def slope(world: World, stack: Stack, samples: int) -> Tensors:
    """The gradient of the mean loss over some random images of what a lane trains on, without dropout."""
    held = pool(world, stack, stack.task, past=True)
    rngs = generators(stack, TRACK, stack.task, stack.epoch)
    batch = next(batches(held, rngs, batch_size(world, held, samples)), None)
    if batch is None:  # nobody here has an image: their streams have ended
        return {name: torch.zeros_like(tensor) for name, tensor in snapshot(world, stack).items()}
    parts, usage, shown = frame(world, stack)
    function = partial(mean_loss, world.model, parts, world.engine == "loop")
    return autograd(world, stack, function, (batch, usage), parts, shown)


def mean_loss(
    model: Model, parts: Mapping[str, Part], trim: bool, free: Tensors, fixed: Tensors, batch: Batch, usage: Usage
) -> Tensor:
    """One agent's mean loss over the real images of a batch."""
    found = errors(model, parts, trim, free, fixed, batch, usage)
    return (found * batch.weight).sum() / batch.weight.sum().clamp(min=1)
