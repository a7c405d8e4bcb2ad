"""Fed-A-GEM: averaging, and no step against what the neighbourhood remembers (Dai et al. 2023, without the server)."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor
from torch.utils import _pytree as tree

from shoal.agents.engine import parted
from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.data.tasks import Lane
from shoal.errors import SettingsError
from shoal.learners.additions import Addition, bending, trains_body
from shoal.learners.batches import generators, remembered
from shoal.learners.fisher import snapshot
from shoal.learners.in_torch import objective
from shoal.learners.step import Part, Step, Tensors
from shoal.learners.usual import usage_of
from shoal.letters.mail import ACCEPTED, Expected, Mail
from shoal.letters.quote import Quote, Room, numbers
from shoal.mail.post import Post
from shoal.models.contract import body_shapes
from shoal.settings.groups import Settings
from shoal.settings.policies import Carries
from shoal.sharing.arrived import combined
from shoal.sharing.body import write_all
from shoal.sharing.federated import Federated, models

STEEPEST = 1e6  # no slope that is sent is larger


class FedAGEM(Federated):
    """Averaging with neighbours, and steps that do not raise the loss on what they and oneself remember.

    After averaging everybody takes the gradient of its loss on some of its memories, and sends it at the next exchange.
    With g the sum of its own and those that came, every gradient v of a step with v g < 0 becomes v - (v g / g g) g.
    """

    example: ClassVar[Mapping[str, Any]] = {"every": 1, "samples": 8}
    mode: Literal["fedagem"] = "fedagem"
    samples: PositiveInt = Field(32, description="remembered images that the gradient is of")

    def suits(self, settings: Settings) -> None:
        super().suits(settings)
        if settings.learner.memory == 0:
            raise SettingsError(
                "mode `fedagem` compares steps with what is remembered, but learner.memory = 0 keeps nothing; raise "
                "learner.memory, or share by fedavg"
            )

    def init(self, world: World) -> dict[str, Tensor]:
        """The gradient on one's own memories, and the sum of it and those that came; zero until there are some."""
        lanes, body, shapes = len(world.lanes), world.model.body, body_shapes(world.model)
        return {
            f"{word}.{name}": torch.zeros(lanes, units, *shapes[name], device=world.device)
            for word in ("own", "sum")
            for name, units in body.items()
        }

    def answer(self, post: Post, questions: Sequence[Mail]) -> list[Mail]:
        """Everybody's modules, and the gradient on its memories as it was after the last averaging."""
        world, state = post.world, post.stack.of(self.owner)
        mails = list(models(post, questions, snapshot(world, post.stack)))
        for row, lane in enumerate(world.lanes):
            slope = {name: state[f"own.{name}"][row].cpu() for name in world.model.body}
            if any(bool(one.any()) for one in slope.values()):
                slope = {name: one.clamp(-STEEPEST, STEEPEST) for name, one in slope.items()}
                mails += [post.mail(lane, other, "slope", slope, 1) for other in post.out(lane)]
        return mails

    def carries(self, kind: str) -> Carries | None:
        return Carries(("gradients",)) if kind == "slope" else super().carries(kind)

    def objects(self, post: Post, mail: Mail) -> str:
        return ACCEPTED if mail.kind == "slope" else super().objects(post, mail)

    def absorb(self, post: Post, questions: Sequence[Mail], answers: Sequence[Mail]) -> None:
        """The mean over oneself and what has arrived; then the gradient there, and the sum of those that came."""
        world, stack, state = post.world, post.stack, post.stack.of(self.owner)
        letters, slopes = ([mail for mail in answers if (mail.kind == "slope") == one] for one in (False, True))
        write_all(stack, *combined(post, questions, letters))
        heard = sorted({world.row[mail.receiver] for mail in answers})
        if not heard:
            return
        found = remembered_slopes(world, stack, self.samples)
        for name in world.model.body:
            own, total = state[f"own.{name}"], state[f"sum.{name}"]
            # The gradient that was sent is the one that is summed; the new one goes with the next exchange.
            total[heard] = own[heard]
            for mail in sorted(slopes, key=lambda one: one.sender):
                total[world.row[mail.receiver]] += mail.payload[name].to(world.device)
            own[heard] = found[name][heard]

    def additions(self) -> tuple[Addition, ...]:
        return (bending(self.bends),)

    def bends(self, world: World, stack: Stack, parts: Mapping[str, Part], found: Tensors) -> Tensors:
        """Every lane's gradients without what points against those of the neighbourhood's memories."""
        if not trains_body(world, parts):
            return found
        body, state = world.model.body, stack.of(self.owner)
        wanted = {name: state[f"sum.{name}"] for name in body}
        if not any(bool(one.any()) for one in wanted.values()):
            return found
        return found | projected({name: found[name] for name in body}, wanted)

    def expects(self, world: World, kind: str, sender: Lane) -> Mapping[str, Expected]:
        if kind != "slope":
            return super().expects(world, kind, sender)
        shapes = body_shapes(world.model)
        return {
            name: Expected(torch.float32, (units, *shapes[name]), least=-STEEPEST, most=STEEPEST)
            for name, units in world.model.body.items()
        }

    def quote(self, world: World, room: Room, other: World | None = None) -> list[Quote]:
        slope = numbers(self.expects(world, "slope", world.lanes[0]), 1)
        return [*super().quote(world, room, other), Quote("slope", 1, slope)]


def projected(found: Tensors, wanted: Tensors) -> Tensors:
    """Every lane's gradients without what, in the units that they have in common, points against those `wanted`."""
    changed = {name: one.clone() for name, one in found.items()}
    for row in range(len(next(iter(wanted.values())))):
        mine = [found[name][row, : one.shape[1]].flatten() for name, one in wanted.items()]
        theirs = [one[row].flatten() for one in wanted.values()]
        # Lane by lane: how a sum over all of them is made depends on how many there are.
        both, length = (
            torch.stack([torch.dot(a.clone(), b.clone()) for a, b in zip(one, theirs, strict=True)]).sum()
            for one in (mine, theirs)
        )
        if both < 0:
            for name, one in wanted.items():
                changed[name][row, : one.shape[1]] -= both / length * one[row]
    return changed


def remembered_slopes(world: World, stack: Stack, samples: int) -> Tensors:
    """Every lane's gradient of its loss on some of its memories of earlier tasks; zero where there are none. Lane after
    lane, so that none depends on how many there are."""
    past = remembered(stack, samples, generators(stack, "fedagem", stack.task, stack.epoch))
    usage, single = usage_of(world, stack), [1] * len(stack.lanes)
    own = zip(parted(past, single, single=True), parted(usage, single, single=True), strict=True)
    parts: dict[str, Part] = {name: (slice(0, units),) for name, units in world.model.body.items()}
    found: dict[str, list[Tensor]] = {name: [] for name in parts}
    for row, (batch, used) in enumerate(own):
        # Copies, because how a product is summed depends on where in memory it begins.
        fixed = {name: tensor[row].clone() for name, tensor in stack.params.items()}
        free = {name: fixed[name][part].clone().requires_grad_() for name, part in parts.items()}
        batch, used = tree.tree_map(torch.clone, (batch, used))  # running statistics are not to be written
        step = Step(batch, parts, None, used)
        loss = objective(world.model, step, True, True, free, fixed, batch, used, [])
        slopes = torch.autograd.grad(loss, list(free.values()), allow_unused=True, materialize_grads=True)
        for name, slope in zip(free, slopes, strict=True):
            found[name].append(slope)
    return {name: torch.stack(one) for name, one in found.items()}
