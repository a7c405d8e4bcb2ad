"""Masks: agents on one frozen backbone ask for the mask of a task like theirs (L2D2-C; Nath et al. 2023)."""

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field, NonNegativeFloat, PositiveInt
from torch import Tensor

from shoal.agents.evaluate import accuracy
from shoal.agents.stack import MEAN, STEPS, VAR
from shoal.agents.world import World
from shoal.data.tasks import Lane
from shoal.errors import SettingsError
from shoal.mail.mail import ACCEPTED, OUT_OF_RANGE, Expected, Mail, by_receiver
from shoal.mail.post import Post
from shoal.mail.quote import Quote, Room, numbers
from shoal.models.frozen import SCORES
from shoal.models.heads import NAMES
from shoal.settings.groups import Settings
from shoal.sharing.body import net_of
from shoal.sharing.contract import Carries, Sharing
from shoal.sharing.images import classes_only, ids

SURE = 0.01  # the score of a weight of which only a bit was sent
LARGE = 100.0  # no weight or score that is sent is larger
MOST = 6  # classes whose matching is searched


class Match(NamedTuple):
    """A task of one's own like the one that somebody asks about, and which of its outputs is which of theirs."""

    task: int
    order: list[int]


class Masks(Sharing):
    """Sharing of masks: a task like another's begins with, or gets, the mask and head that the other has found.

    A lane tells what its task is like and how well it does. A neighbour with a task within `near` of it, on which it
    does so much better that `margin` times its validation accuracy is still more, sends that task's mask. The best one
    that comes takes the place of the lane's own, unless its validation accuracy would fall.
    """

    between: ClassVar[str] = "agents of model masked-mlp with the same net.width and net.depth"
    both_ways: ClassVar[bool] = True
    writes: ClassVar[tuple[str, ...]] = (MEAN, VAR, STEPS)
    example: ClassVar[Mapping[str, Any]] = {"every": 2, "like": "feature", "near": 1e6, "guard": False}
    mode: Literal["masks"] = "masks"
    every: PositiveInt = Field(20, description="epochs between exchanges")
    when: Literal["before", "after"] = Field("before", description="exchange before or after every so many epochs")
    like: Literal["label", "feature"] = Field(
        "label", description="what tasks are compared by: their classes, or the mean of what nets read of each class"
    )
    near: NonNegativeFloat = Field(
        1.0, description="tasks this near are alike (like = feature): squared distance over width, best matching"
    )
    send: Literal["bits", "scores"] = Field("bits", description="a mask as a bit for every weight, or as scores")
    margin: float = Field(0.9, gt=0, le=1, description="how much of the other's accuracy must be more than one's own")
    guard: bool = Field(True, description="undo what lowers the accuracy on one's own validation images?")

    def suits(self, settings: Settings) -> None:
        classes_only(self, settings, "masks")
        if not settings.model.startswith("masked"):
            raise SettingsError(
                f"mode `masks` shares masks of a frozen backbone, and `{settings.model}` has none; use model = "
                '"masked-mlp", or share by another mode'
            )
        if self.like == "feature" and settings.tasks.classes > MOST:
            raise SettingsError(
                f'sharing.masks.like = "feature" tries every matching of classes, {MOST} at most, got tasks.classes = '
                f'{settings.tasks.classes}; use like = "label"'
            )

    def fits(self, sender: Settings, receiver: Settings) -> bool:
        return super().fits(sender, receiver) and net_of(sender) == net_of(receiver)

    def carries(self, kind: str) -> Carries | None:
        if kind == "question":
            return Carries(("questions",), "classes") if self.like == "label" else Carries(("prototypes",))
        return Carries(("masks",)) if kind == "mask" else None

    def objects(self, post: Post, mail: Mail) -> str:
        """No class is a task's twice."""
        classes = mail.payload.get("classes")
        return ACCEPTED if classes is None or len(classes.unique()) == len(classes) else OUT_OF_RANGE

    def ask(self, post: Post) -> list[Mail]:
        """What everybody's task is like, and how well it does there; nothing can be said of a task with fewer classes
        than others have."""
        world, mails = post.world, []
        for row, lane in enumerate(world.lanes):
            like = self.told(post, row, post.stack.task)
            if like is None or not post.out(lane):
                continue
            score = known(post)[row, post.stack.task] if post.stack.epoch else torch.zeros(())
            payload = like | {"score": score.float()[None].clone()}
            mails += [post.mail(lane, other, "question", payload, 1) for other in post.out(lane)]
        return mails

    def told(self, post: Post, row: int, task: int) -> dict[str, Tensor] | None:
        """What a task is like."""
        world, met = post.world, post.world.streams[row][task]
        if len(met.classes) != world.settings.tasks.classes:
            return None
        if self.like == "label":
            return {"classes": ids(met.outputs)}
        size = int(world.train.sizes[row, task])
        x, y = world.inputs[world.train.rows[row, task, :size]], world.train.labels[row, task, :size]
        means = [x[y == at].mean(0) if bool((y == at).any()) else x.mean(0) for at in range(len(met.classes))]
        return {"means": torch.stack(means).cpu()}

    def answer(self, post: Post, questions: Sequence[Mail]) -> list[Mail]:
        """The mask of the best task that is like the one asked about."""
        world, mails = post.world, []
        for question in questions:
            row, theirs = world.row[question.receiver], float(question.payload["score"])
            scores, found = known(post), []
            for task in range(post.stack.task + 1):
                order = self.matched(post, row, task, question.payload)
                # The current task has a mask worth telling of once it has been trained.
                if order is not None and (task < post.stack.task or post.stack.epoch):
                    found.append(Match(task, order))
            best = max(found, key=lambda one: float(scores[row, one.task]), default=None)
            if best is None or self.margin * float(scores[row, best.task]) <= theirs:
                continue
            own = {name: post.stack.params[name][row, best.task].cpu() for name in (SCORES, *NAMES)}
            payload = {name: own[name][best.order] for name in NAMES}
            payload["mask"] = packed(own[SCORES]) if self.send == "bits" else own[SCORES].clamp(-LARGE, LARGE)
            payload["score"] = scores[row, best.task].float()[None].clone()
            mails.append(post.reply(question, "mask", payload, 1))
        return mails

    def matched(self, post: Post, row: int, task: int, asked: Mapping[str, Tensor]) -> list[int] | None:
        """Which output of a task stands for each of those that somebody asks about; None: the task is not like it."""
        mine = self.told(post, row, task)
        if mine is None:
            return None
        if self.like == "label":
            here, wanted = mine["classes"].tolist(), asked["classes"].tolist()
            return [here.index(one) for one in wanted] if set(here) == set(wanted) else None
        gaps = torch.cdist(asked["means"], mine["means"]).square() / asked["means"].shape[1]
        rows = range(len(gaps))
        order = min(permutations(rows), key=lambda one: float(gaps[list(rows), list(one)].sum()))
        return list(order) if float(gaps[list(rows), list(order)].sum()) <= self.near else None

    def absorb(self, post: Post, questions: Sequence[Mail], answers: Sequence[Mail]) -> None:
        """The best mask takes the place of the lane's own."""
        world, stack, task = post.world, post.stack, post.stack.task
        boxes = by_receiver(answers)
        if not boxes:
            return
        before = known(post)[:, task] if stack.epoch else torch.zeros(len(world.lanes))
        owners, undo = (stack.params, stack.of(MEAN), stack.of(VAR), stack.of(STEPS)), {}
        for lane, mails in boxes.items():
            row = world.row[lane]
            best = max(sorted(mails, key=lambda one: one.sender), key=lambda one: float(one.payload["score"]))
            if self.margin * float(best.payload["score"]) <= float(before[row]):
                continue  # it does better by now
            undo[row] = [{name: one[name][row, task].clone() for name in (SCORES, *NAMES)} for one in owners]
            mask = best.payload["mask"]
            shape = stack.params[SCORES].shape[2:]
            stack.params[SCORES][row, task] = unpacked(mask, shape) if self.send == "bits" else mask
            for name in (SCORES, *NAMES):
                if name != SCORES:
                    stack.params[name][row, task] = best.payload[name]
                for one in owners[1:]:
                    one[name][row, task] = 0
        if self.guard and stack.epoch:
            after = accuracy(world, stack, "validation", [task])[:, 0]
            for row, values in undo.items():
                if after[row] < before[row]:
                    for one, old in zip(owners, values, strict=True):
                        for name, value in old.items():
                            one[name][row, task] = value

    def expects(self, world: World, kind: str, sender: Lane) -> Mapping[str, Expected]:
        net, classes = world.settings.net, world.settings.tasks.classes
        score = {"score": Expected(torch.float32, (1,), least=0.0, most=1.0)}
        if kind == "question" and self.like == "label":
            return score | {"classes": Expected(torch.int32, (classes,), len(world.bank.classes))}
        if kind == "question":
            return score | {"means": Expected(torch.float32, (classes, net.width))}
        shapes = {NAMES[0]: (classes, net.width), NAMES[1]: (classes,)}
        found = {name: Expected(torch.float32, shape, least=-LARGE, most=LARGE) for name, shape in shapes.items()}
        if self.send == "bits":
            return score | found | {"mask": Expected(torch.uint8, (-(-net.depth * net.width**2 // 8),))}
        scores = Expected(torch.float32, (net.depth, net.width, net.width), least=-LARGE, most=LARGE)
        return score | found | {"mask": scores}

    def quote(self, world: World, room: Room, other: World | None = None) -> list[Quote]:
        kinds = ((kind, self.expects(world, kind, world.lanes[0])) for kind in ("question", "mask"))
        return [Quote(kind, 1, numbers(layout, 1)) for kind, layout in kinds]


def known(post: Post) -> Tensor:
    """The validation accuracy of all lanes on their tasks so far, [L, T]; zero where there is nothing to test."""

    def find() -> Tensor:
        return accuracy(post.world, post.stack, "validation", range(post.stack.task + 1)).nan_to_num()

    return post.once(("accuracy",), post.stack, find)


def packed(scores: Tensor) -> Tensor:
    """A bit for every score, one where it is at least zero: uint8 [n / 8]."""
    return torch.from_numpy(np.packbits((scores >= 0).numpy().ravel()))


def unpacked(bits: Tensor, shape: Sequence[int]) -> Tensor:
    """Scores of the sign that the bits tell."""
    count = int(np.prod(shape))
    on = torch.from_numpy(np.unpackbits(bits.numpy())[:count].astype(np.float32))
    return ((2 * on - 1) * SURE).view(*shape)
