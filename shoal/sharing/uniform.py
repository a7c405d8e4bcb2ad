"""Uniform: everybody sends random images of its own, unasked: the control for modes that choose."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field, PositiveInt

from shoal.data.tasks import Lane
from shoal.fleet.world import World
from shoal.learners import received
from shoal.mail.mail import Expected, Mail, by_receiver
from shoal.mail.post import Post
from shoal.mail.quote import Quote, Room, fitting, numbers
from shoal.rng import key
from shoal.settings.groups import Settings
from shoal.sharing.accept import Accept, accepting
from shoal.sharing.contract import Carries, Late, Sharing
from shoal.sharing.images import classes_of, classes_only, held, ids, images_of, store
from shoal.sharing.simp import sorted_in, unhelpful


class Uniform(Sharing):
    """Sharing of random images."""

    late: ClassVar[Mapping[str, Late]] = {"images": "all"}
    writes: ClassVar[tuple[str, ...]] = (received.OWNER,)
    example: ClassVar[Mapping[str, Any]] = {"every": 2, "images": 10, "memory": 12}
    mode: Literal["uniform"] = "uniform"
    every: PositiveInt = Field(16, description="epochs between exchanges")
    when: Literal["before", "after"] = Field("after", description="exchange before or after every so many epochs")
    images: PositiveInt = Field(100, description="images sent to every neighbour (Recv's 20 queries return 100)")
    memory: PositiveInt = Field(32, description="received images kept per task")
    buffer: Literal["reservoir", "replace"] = Field(
        "reservoir", description="a full buffer keeps all with equal chance, or always takes the new image"
    )
    once: bool = Field(True, description="leave out images that the buffer holds already")
    accept: Accept = accepting("the images of a sender that help")

    @property
    def room(self) -> int:
        return self.memory

    def suits(self, settings: Settings) -> None:
        classes_only(self, settings)

    def carries(self, kind: str) -> Carries | None:
        return Carries(("images",), "labels") if kind == "images" else None

    def objects(self, post: Post, mail: Mail) -> str:
        """Images may have to help."""
        return unhelpful(self.accept, post, mail)

    def answer(self, post: Post, questions: Sequence[Mail]) -> list[Mail]:
        """Random images of everybody's own, others for each neighbour."""
        world, mails = post.world, []
        for row, lane in enumerate(world.lanes):
            if not post.out(lane):
                continue
            own = held(world, post.stack, row)
            for other in post.out(lane):
                rng = key(*lane, "uniform", post.stack.task, post.stack.epoch, other.agent)
                count = fitting(self.images, self.expects(world, "images", other), post.left(lane, other))
                at: np.ndarray = rng.permutation(len(own.rows))
                at = at[post.permitted(lane, [other], "images", own.labels[at])][:count]
                payload = {"images": world.images(own.rows[at]), "labels": ids(own.labels[at])}
                mails.append(post.mail(lane, other, "images", payload, len(at)))
        return mails

    def absorb(self, post: Post, questions: Sequence[Mail], answers: Sequence[Mail]) -> None:
        """Keep every image in the buffers of all tasks so far that have its class."""
        for lane, mails in by_receiver(answers).items():
            store(post, lane, sorted_in(post, lane, mails), self.buffer, self.once)

    def expects(self, world: World, kind: str, sender: Lane) -> Mapping[str, Expected]:
        return {"images": images_of(world), "labels": classes_of(world)}

    def quote(self, world: World, room: Room, other: World | None = None) -> list[Quote]:
        layout = self.expects(world, "images", world.lanes[0])
        images = fitting(self.images, layout, room)
        return [Quote("images", images, numbers(layout, images))]
