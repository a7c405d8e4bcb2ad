"""Heads: agents on one frozen backbone send what each task has added to it, so that others can solve it too (SKILL; Ge
et al. 2023)."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from shoal.agents.slots import slots
from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.data.tasks import Lane
from shoal.errors import SettingsError
from shoal.letters.mail import ACCEPTED, OUT_OF_RANGE, Expected, Mail
from shoal.letters.quote import Quote, Room, fitting, numbers
from shoal.mail.post import Post
from shoal.models.families import block_of
from shoal.models.frozen import BIAS
from shoal.models.heads import NAMES
from shoal.settings.groups import Settings
from shoal.settings.policies import Carries
from shoal.sharing.body import net_of
from shoal.sharing.contract import Sharing
from shoal.sharing.images import classes_only, ids

LARGE = 1e4  # no number that is sent is larger
LEAST = 1e-3  # the least variance of a feature
ANCHORS = ("mean", "var")


class Heads(Sharing):
    """Sharing of heads, biases and anchors: a lane can then solve tasks that it has never met.

    After each task a lane sends, of every task that has not gone to a neighbour, head, biases, classes, and an anchor
    of each class: mean and variance of the features of the backbone without biases. The receiver files them. It answers
    for tasks of others by them, begins a task of the same classes with them if that is better on its validation images,
    and tells by the nearest anchor of which task an image is when nobody says.
    """

    between: ClassVar[str] = "agents of model frozen-mlp with the same net.width and net.depth"
    example: ClassVar[Mapping[str, Any]] = {"begin": "any"}
    fixed: ClassVar[str] = "what it files has room for just these tasks"  # why it cannot go on with more
    mode: Literal["heads"] = "heads"
    every: Literal["task"] = Field("task", description="once, after a task")
    when: Literal["after"] = Field("after", description="exchange after a task")
    begin: Literal["same", "any", "never"] = Field(
        "same",
        description="a task begins with the best received head and biases for just its classes, with those that have "
        "most classes in common, or always afresh",
    )

    def suits(self, settings: Settings) -> None:
        classes_only(self, settings, "heads")
        if block_of(settings) != "frozen-mlp":
            raise SettingsError(
                f"mode `heads` shares heads and biases on a frozen backbone, and `{settings.model}` has none; use "
                'model = "frozen-mlp", or share by another mode'
            )

    def fits(self, sender: Settings, receiver: Settings) -> bool:
        return super().fits(sender, receiver) and net_of(sender) == net_of(receiver)

    def init(self, world: World) -> dict[str, Tensor]:
        """What neighbours have sent, by slot and task; what has `gone` to them; and the anchors of one's own tasks."""
        lanes, near, tasks = len(world.lanes), slots(world).most, world.settings.tasks.count
        found = {"gone": torch.zeros(lanes, near, tasks, dtype=torch.bool)}
        found["there"] = torch.zeros_like(found["gone"])
        found["met"] = torch.zeros(lanes, tasks, dtype=torch.bool)
        for name, want in self.expects(world, "heads", world.lanes[0]).items():
            shape = [size or 0 for size in want.shape[1:]]  # none of them is free
            if name != "task":
                found[name] = torch.zeros(lanes, near, tasks, *shape, dtype=want.dtype)
            if name in ANCHORS:
                found[f"own.{name}"] = torch.zeros(lanes, tasks, *shape)
        return found

    def answer(self, post: Post, questions: Sequence[Mail]) -> list[Mail]:
        """All that was learned and has not gone to a neighbour; what all have learned together is known there."""
        world, stack, mails = post.world, post.stack, []
        tasks, gone = world.settings.tasks, stack.of(self.owner)["gone"]
        anchors = self.anchors(post)
        for row, lane in enumerate(world.lanes):
            first = tasks.initial if tasks.common else 0
            whole = [len(world.streams[row][task].classes) == tasks.classes for task in range(stack.task + 1)]
            for other in post.out(lane):
                sent = gone[row, slots(world).of(lane, other)]
                new = [task for task in range(first, stack.task + 1) if whole[task] and not sent[task]]
                classes = np.array([world.streams[row][task].outputs for task in new])
                may = post.permitted(lane, [other], "heads", classes)
                new = [task for task, fine in zip(new, may, strict=True) if fine]
                layout = self.expects(world, "heads", other)
                new = new[: fitting(len(new), layout, post.left(lane, other))]
                if new:
                    payload = {name: stack.params[name][row, new].cpu() for name in (*NAMES, BIAS)}
                    payload |= {name: one[row, new] for name, one in anchors.items()}
                    payload["classes"] = ids(np.array([world.streams[row][task].outputs for task in new]))
                    mails.append(post.mail(lane, other, "heads", payload | {"task": ids(new)}, len(new)))
        return mails

    def anchors(self, post: Post) -> dict[str, Tensor]:
        """The anchors of all tasks so far of all lanes, [L, T, K, F]."""

        def find() -> dict[str, Tensor]:
            world, state = post.world, post.stack.of(self.owner)
            found = {name: state[f"own.{name}"].clone() for name in ANCHORS}
            for row in range(len(world.lanes)):
                for task in range(post.stack.task + 1):
                    if not state["met"][row, task] and task < int(world.ends[row]):
                        for name, value in zip(ANCHORS, anchored(world, row, task), strict=True):
                            found[name][row, task, : len(value)] = value
            return found

        return post.once(("anchors",), post.stack, find)

    def carries(self, kind: str) -> Carries | None:
        return Carries(("heads",), "classes") if kind == "heads" else None

    def objects(self, post: Post, mail: Mail) -> str:
        """No task is sent twice, and none has a class twice."""
        task, classes = mail.payload["task"].tolist(), mail.payload["classes"].tolist()
        twice = len(set(task)) < len(task) or any(len(set(one)) < len(one) for one in classes)
        return OUT_OF_RANGE if twice or not task else ACCEPTED

    def absorb(self, post: Post, questions: Sequence[Mail], answers: Sequence[Mail]) -> None:
        """File what has come, and let the next task begin with it."""
        world, stack, state = post.world, post.stack, post.stack.of(self.owner)
        anchors = self.anchors(post)
        for name, value in anchors.items():
            state[f"own.{name}"] = value
        state["met"][:, : stack.task + 1] = True
        for lane, other, _ in sorted(post.gone):
            mail = next(one for one in post.sent.values() if (one.sender, one.receiver) == (lane, other))
            state["gone"][world.row[lane], slots(world).of(lane, other), mail.payload["task"].long()] = True
        for mail in answers:
            place = world.row[mail.receiver], slots(world).of(mail.receiver, mail.sender), mail.payload["task"].long()
            state["there"][place] = True
            for name, value in mail.payload.items():
                if name != "task":
                    state[name][place] = value
        if self.begin != "never" and stack.task + 1 < world.settings.tasks.count:
            for row in sorted({world.row[mail.receiver] for mail in answers} | set(self.receiving(state))):
                self.warm(world, stack, row, stack.task + 1)

    def receiving(self, state: Mapping[str, Tensor]) -> list[int]:
        """The rows of lanes that have filed anything."""
        return [int(row) for row in state["there"].flatten(1).any(1).nonzero().flatten()]

    @torch.no_grad()
    def warm(self, world: World, stack: Stack, row: int, task: int) -> None:
        """Begin a task with what others have found for its classes, if that is better on validation images."""
        if task >= int(world.ends[row]):
            return
        wanted = world.streams[row][task].outputs
        filed = entries(stack.of(self.owner), row)
        if self.begin == "any":
            filed = sorted(filed, key=lambda one: -len(set(one.classes) & set(wanted)))[:1]
            filed = [one for one in filed if set(one.classes) & set(wanted)]
        else:
            filed = [one for one in filed if set(one.classes) == set(wanted)]
        own = {name: stack.params[name][row, task].clone() for name in (*NAMES, BIAS)}
        best, least = own, torch.inf
        size = int(world.validation.sizes[row, task])
        x, y = world.inputs[world.validation.rows[row, task, :size]], world.validation.labels[row, task, :size]
        for one in filed:
            found = {**own, BIAS: one.params[BIAS]} | {name: own[name].clone() for name in NAMES}
            for at, label in enumerate(wanted):
                if label in one.classes:
                    for name in NAMES:
                        found[name][at] = one.params[name][one.classes.index(label)]
            loss = float(F.cross_entropy(said(world, found, x), y)) if size else 0.0
            if loss < least:
                best, least = found, loss
        if self.begin == "same" and filed and size and least >= float(F.cross_entropy(said(world, own, x), y)):
            return
        for name, value in best.items():
            stack.params[name][row, task] = value

    def knows(self, world: World, stack: Stack, row: int, classes: Sequence[int], x: Tensor) -> Tensor | None:
        """Logits of images of a task of others, if one with these classes was filed."""
        for one in entries(stack.of(self.owner), row):
            if set(one.classes) == set(classes):
                return said(world, one.params, x)[:, [one.classes.index(label) for label in classes]]
        return None

    def expects(self, world: World, kind: str, sender: Lane) -> Mapping[str, Expected]:
        net, tasks = world.settings.net, world.settings.tasks
        anchor = (None, tasks.classes, net.width)
        shapes = {NAMES[0]: anchor, NAMES[1]: (None, tasks.classes), BIAS: (None, net.depth, net.width), "mean": anchor}
        found = {name: Expected(torch.float32, shape, least=-LARGE, most=LARGE) for name, shape in shapes.items()}
        return found | {
            "var": Expected(torch.float32, anchor, least=0.0, most=LARGE),
            "classes": Expected(torch.int32, (None, tasks.classes), len(world.bank.classes)),
            "task": Expected(torch.int32, (None,), tasks.count),
        }

    def quote(self, world: World, room: Room, other: World | None = None) -> list[Quote]:
        tasks, layout = world.settings.tasks, self.expects(world, "heads", world.lanes[0])
        items = fitting(tasks.count - (tasks.initial if tasks.common else 0), layout, room)
        return [Quote("heads", items, numbers(layout, items))]


class Entry(NamedTuple):
    """What somebody has sent of a task."""

    classes: list[int]
    params: dict[str, Tensor]
    mean: Tensor  # [K, F]
    var: Tensor


def entries(state: Mapping[str, Tensor], row: int) -> list[Entry]:
    """All that a lane has filed, in the order of neighbours and tasks."""
    found = []
    for at in state["there"][row].nonzero().tolist():
        one = {name: state[name][row, at[0], at[1]] for name in (*NAMES, BIAS, "classes", *ANCHORS)}
        params = {name: one[name] for name in (*NAMES, BIAS)}
        found.append(Entry(one["classes"].tolist(), params, one["mean"], one["var"]))
    return found


@torch.no_grad()
def said(world: World, params: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """The logits of a head and biases on the backbone."""
    here = {name: one[None].to(x.device) for name, one in params.items()}
    found: Tensor = world.model.logits(here, x, 0)
    return found


@torch.no_grad()
def plain(world: World, x: Tensor) -> Tensor:
    """The features of the backbone without biases: they are the same in all agents."""
    nothing = torch.zeros(1, world.settings.net.depth, world.settings.net.width, device=x.device)
    found: Tensor = world.model.features({BIAS: nothing}, x, 0)
    return found.cpu()


def anchored(world: World, row: int, task: int) -> tuple[Tensor, Tensor]:
    """Mean and variance of the plain features of each class of a task, [K, F]."""
    size = int(world.train.sizes[row, task])
    features = plain(world, world.inputs[world.train.rows[row, task, :size]])
    labels = world.train.labels[row, task, :size].cpu()
    groups = [features[labels == at] for at in range(len(world.streams[row][task].classes))]
    groups = [one if len(one) else features for one in groups]
    return torch.stack([one.mean(0) for one in groups]), torch.stack([one.var(0, correction=0) for one in groups])


class Free(NamedTuple):
    """How a lane does when nobody says of which task an image is, as shares of all test images."""

    mapped: float  # images of which the right task, or one of the same classes, was found
    right: float  # images of which the right class was


@torch.no_grad()
def task_free(world: World, stack: Stack, row: int, mode: Heads) -> Free:
    """The task of the likeliest anchor, of one's own and filed tasks, answers for each test image of one's own."""
    state, tasks = stack.of(mode.owner), range(int(world.ends[row]))
    mine = [
        Entry(
            list(world.streams[row][task].outputs),
            {name: stack.params[name][row, task] for name in (*NAMES, BIAS)},
            *(state[f"own.{name}"][row, task, : len(world.streams[row][task].classes)] for name in ANCHORS),
        )
        for task in tasks
    ]
    every = [*mine, *entries(state, row)]
    mean, var = torch.cat([one.mean for one in every]), torch.cat([one.var for one in every]).clamp(min=LEAST)
    owner = torch.tensor([at for at, one in enumerate(every) for _ in one.classes])
    mapped, right = [], []
    for task in tasks:
        size = int(world.test.sizes[row, task])
        x = world.inputs[world.test.rows[row, task, :size]]
        truth = np.array(world.streams[row][task].outputs)[world.test.labels[row, task, :size].cpu().numpy()]
        far = [
            ((part[:, None] - mean).square() / var + var.log()).sum(2).argmin(1) for part in plain(world, x).split(64)
        ]
        chosen = owner[torch.cat(far)].numpy()
        guess = np.zeros(size, np.int64)
        for at in np.unique(chosen).tolist():
            here = np.flatnonzero(chosen == at)
            best = said(world, every[at].params, x[torch.from_numpy(here)]).argmax(1).cpu().numpy()
            guess[here] = np.array(every[at].classes)[best]
        same = [set(one.classes) == set(mine[task].classes) for one in every]
        mapped.append(np.array(same)[chosen].mean())
        right.append((guess == truth).mean())
    return Free(float(np.mean(mapped)), float(np.mean(right)))
