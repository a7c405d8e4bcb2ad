"""Averaging that leaves agents something of their own: Ditto and FedRep."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, PositiveInt
from torch import Tensor

from shoal.agents.stack import PARAMS, Stack
from shoal.agents.state import State
from shoal.agents.world import World
from shoal.errors import SettingsError
from shoal.learners.additions import Addition, penalised, resting, trains_body
from shoal.learners.fisher import snapshot
from shoal.learners.step import Frame, Part, Tensors
from shoal.letters.mail import Mail
from shoal.mail.post import Post
from shoal.models.families import is_modular
from shoal.settings.groups import Settings
from shoal.sharing.arrived import combined
from shoal.sharing.fedavg import FedAvg
from shoal.sharing.federated import Federated, models
from shoal.sharing.penalty import remembered


def in_one_piece(mode: Federated, settings: Settings) -> None:
    """Raise for modular nets, whose common part hardly learns after the first tasks."""
    if is_modular(settings):
        raise SettingsError(
            f"mode `{mode.mode}` needs a net in one piece, got `{settings.model}`; use model = "
            f"{settings.model.removeprefix('modular-')} or another mode"
        )


class FedRep(FedAvg):
    """Averaging, and in every round the head learns alone, then the rest alone (Collins et al. 2021)."""

    example: ClassVar[Mapping[str, Any]] = {"every": 2, "head": 1}
    mode: Literal["fedrep"] = "fedrep"  # type: ignore[assignment]
    head: PositiveInt = Field(1, description="epochs of a round in which only heads learn; less than every")

    def suits(self, settings: Settings) -> None:
        super().suits(settings)
        in_one_piece(self, settings)
        if self.head >= self.every:
            raise SettingsError(
                f"sharing.fedrep.head = {self.head} leaves nothing of a round of sharing.fedrep.every = {self.every} "
                f"epochs to the rest of the net; use less than {self.every}"
            )

    def absorb(self, post: Post, questions: Sequence[Mail], answers: Sequence[Mail]) -> None:
        """The mean; whoever has got one learns in turns from then on."""
        super().absorb(post, questions, answers)
        rows = [post.world.row[lane] for lane in {mail.receiver for mail in answers}]
        remembered(post, ())["on"][rows] = 1

    def additions(self) -> tuple[Addition, ...]:
        return (resting(self.rests),)

    def rests(self, world: World, stack: Stack, parts: Mapping[str, Part]) -> dict[str, Tensor]:
        """Which units stand still now, bool [L, units of the part]."""
        if "on" not in stack.of(self.owner):
            return {}
        on = stack.of(self.owner)["on"] > 0
        heads = stack.epoch % self.every < self.head
        still = [name for name in parts if (name in world.model.heads) != heads]
        units = {name: len(range(*parts[name][0].indices(stack.params[name].shape[1]))) for name in still}
        return {name: on[:, None].expand(-1, count) for name, count in units.items()}


class Ditto(Federated):
    """Averaging of a second net, to which each agent's own is pulled while it learns (Li et al. 2021)."""

    mode: Literal["ditto"] = "ditto"
    mu: NonNegativeFloat = Field(0.1, description="strength of the pull")

    def suits(self, settings: Settings) -> None:
        super().suits(settings)
        in_one_piece(self, settings)

    def answer(self, post: Post, questions: Sequence[Mail]) -> Sequence[Mail]:
        """The second nets; as long as nothing has come, they are the agents' own."""
        second = self.beside(post)
        return models(second, questions, snapshot(post.world, second.stack))

    def beside(self, post: Post) -> Post:
        """The post as it would be if agents had their second nets."""
        stack, state = post.stack, post.stack.of(self.owner)
        params = {name: tensor.clone() for name, tensor in stack.params.items()}
        if "on" in state:
            on = state["on"] > 0
            for name, units in post.world.model.body.items():
                params[name][on, :units] = state[f"shared.{name}"][on]
        states = {**stack.states, PARAMS: State(len(stack.lanes), params)}
        return replace(post, stack=Stack(stack.lanes, states, stack.ledger, stack.inbox))

    def absorb(self, post: Post, questions: Sequence[Mail], answers: Sequence[Mail]) -> None:
        """The mean of second nets, which then learn as the first ones will until the next exchange; what they learn
        with, their heads and Adam's moments, begins anew each time."""
        second = self.beside(post)
        state = remembered(post, ("shared",))
        rows, mean = combined(second, questions, answers)
        if not len(rows):
            return
        for name, value in mean.items():
            second.stack.params[name][rows, : value.shape[1]] = value
        learned = self.learned(post.world, second.stack)
        state["on"][rows] = 1
        for name, tensor in learned.items():
            state[f"shared.{name}"][rows] = tensor[rows]

    def learned(self, world: World, stack: Stack) -> Tensors:
        """What second nets have in common after the epochs of a round."""
        learner, epochs = world.settings.learner, world.settings.learner.epochs
        made = stack.take(range(len(stack.lanes)), stack.lanes)
        for mode in world.settings.sharing:  # what pulls the first nets does not pull these
            made.states.pop(mode.owner, None)
        made.forget_moments()
        if stack.epoch == 0:
            learner.begin(world, made)
        for epoch in range(stack.epoch, min(stack.epoch + self.every, epochs)):
            made.epoch = epoch
            learner.epoch(world, made, epoch)
        return snapshot(world, made)

    def additions(self) -> tuple[Addition, ...]:
        return (penalised(self.owner, self.acts, self.penalty),)

    def acts(self, world: World, stack: Stack, parts: Mapping[str, Part]) -> bool:
        return "on" in stack.of(self.owner) and trains_body(world, parts)

    def penalty(self, frame: Frame) -> Tensor:
        """One agent's mu/2 times |v - w|^2, with w its second net."""
        total = frame.batch.weight.new_zeros(())
        for name in frame.model.body:
            shared = frame.state[f"shared.{name}"]
            total = total + (frame.free[name][: len(shared)] - shared).square().sum()
        return self.mu / 2 * frame.state["on"] * total
