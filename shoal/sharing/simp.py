"""Simp: receivers ask for classes by what they are worth to them; senders answer with random images
(docs/protocol.md, section 6)."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field, PositiveInt
from torch import Tensor
from torch.nn import functional as F

from shoal.data.tasks import Lane
from shoal.fleet.evaluate import Trained, nets
from shoal.fleet.world import World
from shoal.learners import received
from shoal.learners.received import Arrived
from shoal.mail.mail import ACCEPTED, OUT_OF_RANGE, Expected, Mail, by_receiver
from shoal.mail.post import Post
from shoal.mail.quote import Quote, Room, fitting, numbers
from shoal.rng import key
from shoal.settings.groups import Settings
from shoal.sharing.accept import NO_HELP, Accept, accepting, helps
from shoal.sharing.clock import due
from shoal.sharing.contract import Carries, Late, Sharing
from shoal.sharing.images import classes_of, classes_only, held, ids, images_of, per_lane, replies, store


class Simp(Sharing):
    """Sharing of images by class."""

    both_ways: ClassVar[bool] = True
    late: ClassVar[Mapping[str, Late]] = {"answer": "all"}
    writes: ClassVar[tuple[str, ...]] = (received.OWNER,)
    example: ClassVar[Mapping[str, Any]] = {"every": 2, "images": 10, "memory": 12}
    mode: Literal["simp"] = "simp"
    every: PositiveInt = Field(16, description="epochs between exchanges")
    when: Literal["before", "after"] = Field("after", description="exchange before or after every so many epochs")
    images: PositiveInt = Field(20, description="images that a neighbour returns")
    memory: PositiveInt = Field(160, description="received images kept per task")
    worth: Literal["class", "task"] = Field(
        "class", description="what a class is worth: its cross-entropy, or the error of the last task that has it"
    )
    scope: Literal["all", "current", "last"] = Field(
        "all", description="ask for classes of all tasks, of the current one, or of all in a task's last exchange only"
    )
    quota: Literal["floor", "remainder"] = Field(
        "remainder", description="shares of the images rounded down, or to exactly as many by largest remainder"
    )
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
        return {"question": Carries(("questions",), "classes"), "answer": Carries(("images",), "labels")}.get(kind)

    def objects(self, post: Post, mail: Mail) -> str:
        """Nobody asks for a class twice; images may have to help."""
        classes = mail.payload.get("classes")
        if classes is not None:
            return ACCEPTED if len(set(classes.tolist())) == len(classes) else OUT_OF_RANGE
        return unhelpful(self.accept, post, mail)

    def ask(self, post: Post) -> list[Mail]:
        """Every lane's classes and what they are worth, to all its neighbours."""
        world, net = post.world, nets(post.world, post.stack)
        found = per_lane(world, lambda lane: self.worths(post, lane, net) if post.out(lane) else {})
        mails = []
        for lane in world.lanes:
            # The most wanted first: if not all fits the budget, these are asked for.
            classes = sorted(found[lane], key=lambda one, lane=lane: (-found[lane][one], one))  # type: ignore[misc]
            for other in post.out(lane):
                may = post.permitted(lane, [other], "question", np.array(classes, np.int64))
                wanted = [one for one, fine in zip(classes, may, strict=True) if fine]
                count = fitting(len(wanted), self.expects(world, "question", other), post.left(lane, other))
                worth = torch.tensor([found[lane][one] for one in wanted[:count]])
                payload = {"classes": ids(wanted[:count]), "worth": worth}
                mails.append(post.mail(lane, other, "question", payload, len(payload["classes"])))
        return mails

    def worths(self, post: Post, lane: Lane, net: Sequence[Trained]) -> dict[int, float]:
        """What each class is worth to a lane."""
        world, stack, row = post.world, post.stack, post.world.row[lane]
        trained, split = net[row], world.validation
        errors: dict[int, list[Tensor]] = {}
        for task in range(stack.task + 1) if self.everything(post) else [stack.task]:
            size = int(split.sizes[row, task])
            logits, labels = trained.logits(split.rows[row, task, :size], task), split.labels[row, task, :size]
            loss = F.cross_entropy(logits, labels, reduction="none")
            wrong = (logits.argmax(1) != labels).float().mean()
            stream = world.streams[row][task]
            for one in stream.classes:
                if self.worth == "task":
                    errors[one] = [wrong[None]]  # the last task that has the class says
                else:
                    errors.setdefault(one, []).append(loss[labels == stream.outputs.index(one)])
        # A class without a validation image is worth nothing that could be measured.
        joined = {one: torch.cat(parts) for one, parts in errors.items()}
        return {one: float(values.mean()) for one, values in joined.items() if len(values)}

    def everything(self, post: Post) -> bool:
        """Does this exchange ask for all tasks?"""
        if self.scope != "last":
            return self.scope == "all"
        settings, now = post.world.settings, post.stack.epoch
        later = range(now + 1, settings.learner.epochs + 1)
        return not any(self in due(settings, post.stack.task, epoch) for epoch in later)

    def answer(self, post: Post, questions: Sequence[Mail]) -> list[Mail]:
        """For every question random images of its classes, as many of each as its worth says."""

        def reply(lane: Lane, mine: Sequence[Mail]) -> list[Mail]:
            own = held(post.world, post.stack, post.world.row[lane])
            mails = []
            for question in mine:
                classes, worth = question.payload["classes"].tolist(), question.payload["worth"].double().numpy()
                here = [at for at, one in enumerate(classes) if (own.labels == one).any()]
                layout = self.expects(post.world, "answer", question.sender)
                wanted = fitting(self.images, layout, post.left(lane, question.sender))
                rng = key(*lane, "simp", post.stack.task, post.stack.epoch, question.sender.agent)
                picks = [np.zeros(0, np.int64)]
                for at, count in zip(here, quotas(worth[here], wanted, self.quota), strict=True):
                    picks.append(rng.permutation(np.flatnonzero(own.labels == classes[at]))[:count])
                chosen = np.concatenate(picks)
                chosen = chosen[post.permitted(lane, [question.sender], "answer", own.labels[chosen])]
                payload = {"images": post.world.images(own.rows[chosen]), "labels": ids(own.labels[chosen])}
                mails.append(post.reply(question, "answer", payload, len(chosen)))
            return mails

        return replies(post.world, questions, reply)

    def absorb(self, post: Post, questions: Sequence[Mail], answers: Sequence[Mail]) -> None:
        """Keep every image in the buffers of all tasks so far that have its class."""
        for lane, mails in by_receiver(answers).items():
            store(post, lane, sorted_in(post, lane, mails), self.buffer, self.once)

    def expects(self, world: World, kind: str, sender: Lane) -> Mapping[str, Expected]:
        if kind == "question":
            return {"classes": classes_of(world), "worth": Expected(torch.float32, (None,), least=0.0)}
        return {"images": images_of(world), "labels": classes_of(world)}

    def quote(self, world: World, room: Room, other: World | None = None) -> list[Quote]:
        tasks = world.settings.tasks
        question, answer = (self.expects(world, kind, world.lanes[0]) for kind in ("question", "answer"))
        classes = tasks.classes * (1 if self.scope == "current" else tasks.count)
        asked = fitting(min(classes, len(world.bank.classes)), question, room)
        # A question for few classes leaves more to the answer: at least one class is asked for.
        images = fitting(self.images, answer, room.less(question, 1))
        return [Quote("question", asked, numbers(question, asked)), Quote("answer", images, numbers(answer, images))]


def quotas(worth: np.ndarray, total: int, rule: str) -> list[int]:
    """How many of `total` images each class gets in proportion to its worth; equally, if none is worth anything."""
    if not len(worth):
        return []
    worth = np.maximum(worth, 0)
    shares = total * worth / worth.sum() if worth.sum() > 0 else np.full(len(worth), total / len(worth))
    counts = np.floor(shares).astype(int)
    if rule == "remainder":
        order = np.argsort(-(shares - counts), kind="stable")
        counts[order[: total - counts.sum()]] += 1
    return [int(count) for count in counts]


def unhelpful(accept: Accept, post: Post, mail: Mail) -> str:
    """Why a receiver does not want the images of a mail; empty: it does."""
    if accept == "all" or helps(post, mail.receiver, sorted_in(post, mail.receiver, [mail])):
        return ""
    return NO_HELP


def sorted_in(post: Post, lane: Lane, mails: Sequence[Mail]) -> list[Arrived]:
    """Received images with each of the lane's tasks so far that has their class."""
    stream = post.world.streams[post.world.row[lane]][: post.stack.task + 1]
    return [
        Arrived(image, task.outputs.index(label), at)
        for mail in mails
        for image, label in zip(mail.payload["images"], mail.payload["labels"].tolist(), strict=True)
        for at, task in enumerate(stream)
        if label in task.classes
    ]
