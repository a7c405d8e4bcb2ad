"""Heads: agents on one frozen backbone send what each task has added to it, so that others can solve it too (SKILL; Ge
et al. 2023)."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from shoal.agents.slots import slots
from shoal.agents.stack import MEAN, STEPS, VAR, Stack
from shoal.agents.world import World
from shoal.data.tasks import Task
from shoal.errors import SettingsError
from shoal.letters.letter import Letter
from shoal.letters.mail import ACCEPTED, OUT_OF_RANGE, Expected
from shoal.models.families import block_of
from shoal.models.frozen import BIAS
from shoal.models.heads import NAMES
from shoal.settings.groups import Settings
from shoal.sharing.body import net_of
from shoal.sharing.filed import ANCHORS, anchored, entries, said
from shoal.sharing.images import classes_only
from shoal.sharing.mode import Draft, Mode, Present, Received

LARGE = 1e4  # no number that is sent is larger


class Heads(Mode):
    """Sharing of heads, biases and anchors: an agent can then solve tasks that it has never met.

    Agents on one frozen backbone (`frozen-mlp`) send what each task has added to it, and can then solve tasks that they
    have never met.

    *Source:* SKILL (Ge et al. 2023).

    *Formula:* after each task, to every neighbour, all tasks that have not gone there: head, biases, classes and an
    anchor of each class, mean and variance of the features of the backbone *without* biases. The receiver files them:
    (1) it answers for tasks of others by the filed head, (2) a task of the same classes begins with the best of them if
    its validation loss is lower than afresh (`begin`), (3) where nobody says of which task an image is, the likeliest
    anchor, Σ (f − μ)²/σ² + log σ², picks the task (`shoal.sharing.heads.task_free`).

    *Price:* K(width + 1) + depth · width + K + 2K · width + 1 for a task, once.

    *Changed:* one Gaussian per class in place of 25 components per task; no epoch is chosen on test data; nothing is
    passed on.
    """

    between: ClassVar[str] = "agents of model frozen-mlp with the same net.width and net.depth"
    example: ClassVar[Mapping[str, Any]] = {"begin": "any"}
    fixed: ClassVar[str] = "what it files has room for just these tasks"  # why it cannot go on with more
    mode: Literal["heads"] = "heads"
    writes: ClassVar[tuple[str, ...]] = (MEAN, VAR, STEPS)
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

    @property
    def letters(self) -> Mapping[str, Letter]:
        """Items are tasks."""
        return {"heads": Letter(look, sent_at_most, ("heads",), "classes", least=1)}

    def init(self, world: World) -> dict[str, Tensor]:
        """What neighbours have sent, by slot and task; what has `gone` to them; and the anchors of one's own tasks."""
        lanes, near, tasks = len(world.lanes), slots(world).most, world.settings.tasks.count
        found = {"gone": torch.zeros(lanes, near, tasks, dtype=torch.bool)}
        found["there"] = torch.zeros_like(found["gone"])
        found["met"] = torch.zeros(lanes, tasks, dtype=torch.bool)
        for name, want in self.letters["heads"].look(world).items():
            shape = [size or 0 for size in want.shape[1:]]  # none of them is free
            if name != "task":
                found[name] = torch.zeros(lanes, near, tasks, *shape, dtype=want.dtype)
            if name in ANCHORS:
                found[f"own.{name}"] = torch.zeros(lanes, tasks, *shape)
        return found

    def answer(self, agent: Present, question: Received | None, to: int) -> Draft:
        """All that was learned and has not gone to a neighbour; what all have learned together is known there."""
        tasks, gone = agent.settings.tasks, agent.kept["gone"][agent.slot(to)]
        first, met = tasks.initial if tasks.common else 0, agent.tasks
        new = [at for at in range(first, len(met)) if len(met[at].classes) == tasks.classes and not gone[at]]
        classes = np.array([met[at].outputs for at in new]).reshape(-1, tasks.classes)
        letter = {name: agent.tensor(name)[new].cpu() for name in (*NAMES, BIAS)}
        return (
            letter
            | {name: one[new] for name, one in anchors(agent).items()}
            | {"classes": classes, "task": np.array(new)}
        )

    def judge(self, agent: Present, letter: Received) -> str:
        """No task is sent twice, and none has a class twice."""
        task, classes = letter["task"].tolist(), letter["classes"].tolist()
        twice = len(set(task)) < len(task) or any(len(set(one)) < len(one) for one in classes)
        return OUT_OF_RANGE if twice or not task else ACCEPTED

    def absorb(self, agent: Present, letters: Sequence[Received]) -> None:
        """File what has come, and let the next task begin with it."""
        kept = {name: one.clone() for name, one in agent.kept.items()}
        kept |= {f"own.{name}": one for name, one in anchors(agent).items()}
        kept["met"][: len(agent.tasks)] = True
        for other, sent in agent.sent("heads").items():
            kept["gone"][agent.slot(other), sent.tensors["task"].long()] = True
        for letter in letters:
            place = agent.slot(letter.sender), letter["task"].long()
            kept["there"][place] = True
            for name in letter.tensors.keys() - {"task"}:
                kept[name][place] = letter[name]
        agent.keep(**kept)
        if self.begin != "never" and agent.coming is not None and kept["there"].any():
            self.warm(agent, agent.coming)

    @torch.no_grad()
    def warm(self, agent: Present, coming: Task) -> None:
        """Begin the coming task with what others have found for its classes, if that is better on validation images."""
        task, wanted, filed = agent.task + 1, coming.outputs, entries(agent.kept)
        if self.begin == "any":
            filed = sorted(filed, key=lambda one: -len(set(one.classes) & set(wanted)))[:1]
            filed = [one for one in filed if set(one.classes) & set(wanted)]
        else:
            filed = [one for one in filed if set(one.classes) == set(wanted)]
        own = {name: agent.tensor(name)[task].clone() for name in (*NAMES, BIAS)}
        best, least = own, torch.inf
        x, y = agent.validation(task)
        for one in filed:
            found = {**own, BIAS: one.params[BIAS]} | {name: own[name].clone() for name in NAMES}
            for at, label in enumerate(wanted):
                if label in one.classes:
                    for name in NAMES:
                        found[name][at] = one.params[name][one.classes.index(label)]
            loss = float(F.cross_entropy(said(agent.model, found, x), y)) if len(y) else 0.0
            if loss < least:
                best, least = found, loss
        if self.begin == "same" and filed and len(y) and least >= float(F.cross_entropy(said(agent.model, own, x), y)):
            return
        agent.begin_with(best, task)

    def knows(self, world: World, stack: Stack, row: int, classes: Sequence[int], x: Tensor) -> Tensor | None:
        """Logits of images of a task of others, if one with these classes was filed."""
        for one in entries({name: kept[row] for name, kept in stack.of(self.owner).items()}):
            if set(one.classes) == set(classes):
                return said(world.model, one.params, x)[:, [one.classes.index(label) for label in classes]]
        return None


def anchors(agent: Present) -> dict[str, Tensor]:
    """The anchors of all tasks that an agent has met, [T, K, F]."""

    def find() -> dict[str, Tensor]:
        kept = agent.kept
        found = {name: kept[f"own.{name}"].clone() for name in ANCHORS}
        for at, task in enumerate(agent.tasks):
            if not kept["met"][at] and task.classes:
                for name, value in zip(ANCHORS, anchored(agent, at), strict=True):
                    found[name][at, : len(value)] = value
        return found

    return agent.once("anchors", find)


def sent_at_most(world: World) -> int:
    """Of how many tasks a letter is at most."""
    tasks = world.settings.tasks
    return tasks.count - (tasks.initial if tasks.common else 0)


def look(world: World) -> dict[str, Expected]:
    """What the heads of tasks look like in a letter."""
    net, tasks = world.settings.net, world.settings.tasks
    anchor = (None, tasks.classes, net.width)
    shapes = {NAMES[0]: anchor, NAMES[1]: (None, tasks.classes), BIAS: (None, net.depth, net.width), "mean": anchor}
    found = {name: Expected(torch.float32, shape, least=-LARGE, most=LARGE) for name, shape in shapes.items()}
    return found | {
        "var": Expected(torch.float32, anchor, least=0.0, most=LARGE),
        "classes": Expected(torch.int32, (None, tasks.classes), len(world.bank.classes)),
        "task": Expected(torch.int32, (None,), tasks.count),
    }
