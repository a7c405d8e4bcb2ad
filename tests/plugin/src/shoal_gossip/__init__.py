"""A mode in the long form, and a learner in the short one."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, PositiveInt

import shoal
from shoal.agents.world import World
from shoal.data.tasks import Lane
from shoal.learners.step import Frame
from shoal.letters.mail import Expected, Mail
from shoal.letters.quote import Quote, Room
from shoal.mail.post import Post
from shoal.sharing.contract import Sharing


class Gossip(Sharing):
    """Everybody tells its neighbours the biases of its heads, and believes a part of what it hears."""

    example: ClassVar[Mapping[str, Any]] = {"every": 2}
    mode: Literal["gossip"] = "gossip"
    every: PositiveInt = Field(4, description="epochs between exchanges")
    when: Literal["before", "after"] = Field("before", description="exchange before or after every so many epochs")
    trust: float = Field(0.5, ge=0, le=1, description="how much of what is heard is believed")

    def answer(self, post: Post, questions: Sequence[Mail]) -> list[Mail]:
        said = post.stack.params["head.bias"].cpu().clone()
        ends = [(row, lane, other) for row, lane in enumerate(post.world.lanes) for other in post.out(lane)]
        return [post.mail(lane, other, "rumour", {"bias": said[row]}, 1) for row, lane, other in ends]

    def absorb(self, post: Post, questions: Sequence[Mail], answers: Sequence[Mail]) -> None:
        for mail in answers:
            row = post.world.row[mail.receiver]
            post.stack.params["head.bias"][row].lerp_(mail.payload["bias"].to(post.world.device), self.trust)
            post.stack.moved[row] = True

    def expects(self, world: World, kind: str, sender: Lane) -> Mapping[str, Expected]:
        return {"bias": Expected(torch.float32, (world.settings.tasks.count, world.settings.tasks.classes))}

    def quote(self, world: World, room: Room, other: World | None = None) -> list[Quote]:
        return [Quote("rumour", 1, world.settings.tasks.count * world.settings.tasks.classes)]


@shoal.penalty
def steady(frame: Frame, strength: float = 0.1) -> torch.Tensor:
    """Weights stay near where the last task has left them.

    strength: how hard they are held
    """
    total = frame.batch.weight.new_zeros(())
    for name, old in frame.state.items():
        total = total + (frame.free[name] - old).square().sum()
    return strength * total


def murmur(word: str) -> None:
    """Say something softly."""
    print(f"psst, {word}")


def quiet(model: str, dataset: str, modes: tuple[str, ...], initial: int) -> dict[str, Any]:
    """Modes act at every third epoch."""
    return {"tasks": {}, "net": {}, "learner": {}, "sharing": {mode: {"every": 3} for mode in modes}}
