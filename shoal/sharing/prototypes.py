"""Prototypes: agents share the mean features of their classes, and learn features near them (FedProto; Tan et al. 2022,
without the server)."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field, NonNegativeFloat, PositiveInt
from torch import Tensor

from shoal.data.tasks import Lane
from shoal.fleet.evaluate import Trained, nets
from shoal.fleet.stack import Stack
from shoal.fleet.world import World
from shoal.learners.step import Frame, Part
from shoal.mail.mail import ACCEPTED, OUT_OF_RANGE, TOO_LARGE, Expected, Mail, by_receiver
from shoal.mail.post import Post
from shoal.mail.quote import Quote, Room, fitting, numbers
from shoal.settings.groups import Settings
from shoal.sharing.bounds import LARGEST, size
from shoal.sharing.contract import Carries, Sharing
from shoal.sharing.images import classes_of, classes_only, held, ids, per_lane


class Prototypes(Sharing):
    """Sharing of mean features, one for each class and exchange: cheap if exchanges are rare; also between other nets.

    Everybody sends, for each of its classes, the mean of what its head reads, and adds to its loss
    strength * |f(x) - p(y)|^2 / F, with p(y) the mean over its own and all that has come at the last exchange.
    """

    between: ClassVar[str] = "agents of the same blocks, net.width and net.depth, modular or not"
    example: ClassVar[Mapping[str, Any]] = {"every": 2}
    mode: Literal["prototypes"] = "prototypes"
    every: PositiveInt = Field(5, description="epochs between exchanges")
    when: Literal["before", "after"] = Field("before", description="exchange before or after every so many epochs")
    strength: NonNegativeFloat = Field(1.0, description="how much the distance from prototypes counts")

    def suits(self, settings: Settings) -> None:
        classes_only(self, settings, "prototypes")

    def fits(self, sender: Settings, receiver: Settings) -> bool:
        """Only features that are as many can be compared."""
        return super().fits(sender, receiver) and read_by(sender) == read_by(receiver)

    def init(self, world: World) -> dict[str, Tensor]:
        """The prototypes of classes, whether each has one from others, and which class every output stands for."""
        lanes, classes = len(world.lanes), len(world.bank.classes)
        tasks, outputs = world.open.shape[1:]
        stands = torch.zeros(lanes, tasks, outputs, dtype=torch.int64)
        for row, stream in enumerate(world.streams):
            for at, task in enumerate(stream):
                stands[row, at, : len(task.outputs)] = torch.tensor(task.outputs, dtype=torch.int64)
        return {
            "mean": torch.zeros(lanes, classes, world.model.read, device=world.device),
            "on": torch.zeros(lanes, classes, device=world.device),
            "stands": stands.to(world.device),
        }

    def answer(self, post: Post, questions: Sequence[Mail]) -> list[Mail]:
        """The prototypes of all classes of a lane, those of its current task first."""
        world, mails = post.world, []
        for lane, (classes, means) in own_prototypes(post).items():
            for other in post.out(lane):
                may = np.flatnonzero(post.permitted(lane, [other], "prototypes", np.array(classes, np.int64)))
                at = may[: fitting(len(may), self.expects(world, "prototypes", other), post.left(lane, other))]
                if len(at) or not len(classes):
                    payload = {"classes": ids(np.array(classes, np.int64)[at]), "mean": means[torch.from_numpy(at)]}
                    mails.append(post.mail(lane, other, "prototypes", payload, len(at)))
        return mails

    def carries(self, kind: str) -> Carries | None:
        return Carries(("prototypes",), "classes") if kind == "prototypes" else None

    def objects(self, post: Post, mail: Mail) -> str:
        """Nobody sends a class twice, or features far larger than the receiver's own."""
        classes, means = mail.payload["classes"], mail.payload["mean"]
        if not 0 < len(classes) == len(classes.unique()):
            return OUT_OF_RANGE
        mine = own_prototypes(post).get(mail.receiver)
        most = LARGEST * max(1.0, float(size({"": mine[1][None]})) if mine is not None else 1.0)
        return TOO_LARGE if float(size({"": means[None]})) > most else ACCEPTED

    def absorb(self, post: Post, questions: Sequence[Mail], answers: Sequence[Mail]) -> None:
        """For every class that somebody has told of, the mean over oneself and all that have."""
        state = post.stack.of(self.owner)
        for lane, mails in by_receiver(answers).items():
            row, classes = post.world.row[lane], len(post.world.bank.classes)
            total, heard = torch.zeros(classes, post.world.model.read, dtype=torch.float64), torch.zeros(classes)
            for mail in sorted(mails, key=lambda one: one.sender):
                at = mail.payload["classes"].long()
                total[at] += mail.payload["mean"]
                heard[at] += 1
            theirs = heard > 0
            mine, means = own_prototypes(post)[lane]
            total[mine] += means
            heard[mine] += 1
            state["mean"][row] = (total / heard.clamp(min=1)[:, None]).float().to(post.world.device)
            state["on"][row] = theirs.float().to(post.world.device)

    def acts(self, world: World, stack: Stack, parts: Mapping[str, Part]) -> bool:
        return bool(stack.of(self.owner)["on"].any())

    def penalty(self, frame: Frame) -> Tensor:
        """One agent's mean over images of the squared distance of features from the prototype of the class."""
        batch, state = frame.batch, frame.state
        features = frame.model.features(frame.params, batch.x, batch.task, training=True, **frame.usage)
        known = state["stands"][batch.task, batch.y]
        far = (features - state["mean"][known]).square().mean(1)
        counts = batch.weight * state["on"][known]
        found: Tensor = self.strength * (far * counts).sum() / batch.weight.sum().clamp(min=1)
        return found

    def expects(self, world: World, kind: str, sender: Lane) -> Mapping[str, Expected]:
        return {"classes": classes_of(world), "mean": Expected(torch.float32, (None, world.model.read))}

    def quote(self, world: World, room: Room, other: World | None = None) -> list[Quote]:
        tasks, layout = world.settings.tasks, self.expects(world, "prototypes", world.lanes[0])
        count = fitting(min(tasks.classes * tasks.count, len(world.bank.classes)), layout, room)
        return [Quote("prototypes", count, numbers(layout, count))]


def read_by(settings: Settings) -> tuple[str, int, int]:
    """What two agents whose heads read features of one shape have in common."""
    return settings.block, settings.net.width, settings.net.depth


def own_prototypes(post: Post) -> dict[Lane, tuple[list[int], Tensor]]:
    """The classes of every lane that can send or receive, those of its current task first, and the mean features of
    its own images of each, [n, F]."""

    def find() -> dict[Lane, tuple[list[int], Tensor]]:
        trained = nets(post.world, post.stack)
        return per_lane(post.world, lambda lane: means_of(post, lane, trained[post.world.row[lane]]))

    return post.once(("prototypes",), post.stack, find)


def means_of(post: Post, lane: Lane, net: Trained) -> tuple[list[int], Tensor]:
    own = held(post.world, post.stack, post.world.row[lane])
    features = torch.zeros(len(own.rows), post.world.model.read)
    for task in np.unique(own.task).tolist():
        here = np.flatnonzero(own.task == task)
        features[here] = net.features(own.x[here], task).cpu()
    now = set(own.labels[own.task == post.stack.task].tolist())
    classes = sorted(set(own.labels.tolist()), key=lambda one: (one not in now, one))
    means = [features[own.labels == one].mean(0) for one in classes]
    return classes, torch.stack(means) if means else features[:0]
