"""Masks: agents on one frozen backbone ask for the mask of a task like theirs (L2D2-C; Nath et al. 2023)."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import permutations
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field, NonNegativeFloat, PositiveInt
from torch import Tensor

from shoal.agents.stack import MEAN, STEPS, VAR
from shoal.agents.world import World
from shoal.errors import SettingsError
from shoal.letters.letter import Letter
from shoal.letters.mail import ACCEPTED, OUT_OF_RANGE, Expected
from shoal.models.frozen import SCORES
from shoal.models.heads import NAMES
from shoal.settings.groups import Settings
from shoal.sharing.body import net_of
from shoal.sharing.images import classes_only, ids
from shoal.sharing.mode import Draft, Mode, Present, Received

SURE = 0.01  # the score of a weight of which only a bit was sent
LARGE = 100.0  # no weight or score that is sent is larger
MOST = 6  # classes whose matching is searched


class Masks(Mode):
    """Sharing of masks: a task like another's begins with, or gets, the mask and head that the other has found.

    Agents on one frozen backbone (`masked-mlp`) ask for the mask of a task like theirs.

    *Source:* L2D2-C (Nath et al. 2023).

    *Formula:* the question tells what the task is like, by its classes (`like = "label"`) or by the mean of what nets
    read of each class (`"feature"`: the best matching, squared distance over width at most `near`), and the validation
    accuracy there. A neighbour answers with mask and head of its best task that is alike if `margin` (0.9) times its
    own accuracy is more. The best mask takes the place of the agent's own; if validation accuracy falls, it is undone
    (`guard`).

    *Price:* K + 1 or K · width + 1 for a question; a mask is depth · width² / 8 bytes as bits (`send = "bits"`) or
    depth · width² numbers as scores, and K(width + 1) + 1 for head and accuracy.

    *Changed:* two messages in place of four; received masks replace and are not combined. Bits are enough, and where
    all learn 100 epochs masks gain nothing (`shoal sweep mnist network=ring --seeds 4 model=masked-mlp net.dropout=0.0
    learner.rate=1e-3 sharing=none,masks`: 95.2 ± 0.3 and 95.0 ± 0.2).
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
    guard: bool = Field(True, description="undo what lowers the accuracy on one's own validation rows?")

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

    @property
    def letters(self) -> Mapping[str, Letter]:
        score: dict[str, Any] = {"score": Expected(torch.float32, (1,), least=0.0, most=1.0)}
        like, holds = ("classes", "questions") if self.like == "label" else ("means", "prototypes")
        sent = {name: partial(self.look, name) for name in (*NAMES, "mask")}
        question = Letter(score | {like: partial(self.look, like)}, 1, (holds,), "classes")
        return {"question": question, "mask": Letter(score | sent, 1, ("masks",))}

    def look(self, name: str, world: World) -> Expected:
        """What a tensor of its letters looks like."""
        net, classes = world.settings.net, world.settings.tasks.classes
        if name == "classes":
            return Expected(torch.int32, (classes,), len(world.bank.classes))
        if name == "means":
            return Expected(torch.float32, (classes, net.width))
        if name == "mask" and self.send == "bits":
            return Expected(torch.uint8, (-(-net.depth * net.width**2 // 8),))
        shapes = {NAMES[0]: (classes, net.width), NAMES[1]: (classes,), "mask": (net.depth, net.width, net.width)}
        return Expected(torch.float32, shapes[name], least=-LARGE, most=LARGE)

    def judge(self, agent: Present, letter: Received) -> str:
        """No class is a task's twice."""
        if "classes" not in letter or len(letter["classes"].unique()) == len(letter["classes"]):
            return ACCEPTED
        return OUT_OF_RANGE

    def ask(self, agent: Present) -> Draft | None:
        """What its task is like, and how well it does there; nothing can be said of a task with fewer classes than
        others have."""
        like = self.told(agent, agent.task)
        if like is None:
            return None
        score = agent.scores[agent.task] if agent.epoch else torch.zeros(())
        return {"score": score.float()[None].clone(), **like}

    def told(self, agent: Present, task: int) -> dict[str, Tensor] | None:
        """What a task is like."""
        met = agent.tasks[task]
        if len(met.classes) != agent.settings.tasks.classes:
            return None
        if self.like == "label":
            return {"classes": ids(met.outputs)}
        x, y = agent.rows_of(task)
        means = [x[y == at].mean(0) if bool((y == at).any()) else x.mean(0) for at in range(len(met.classes))]
        return {"means": torch.stack(means).cpu()}

    def answer(self, agent: Present, question: Received | None, to: int) -> Draft | None:
        """The mask of the best task that is like the one asked about."""
        assert question is not None
        found = {}
        # The current task has a mask worth telling of once it has been trained.
        for task in range(agent.task + bool(agent.epoch)):
            order = self.matched(agent, task, question.tensors)
            if order is not None:
                found[task] = order
        best = max(found, key=lambda task: float(agent.scores[task]), default=None)
        if best is None or self.margin * float(agent.scores[best]) <= float(question["score"]):
            return None
        own = {name: agent.tensor(name)[best].cpu() for name in (SCORES, *NAMES)}
        mask = packed(own[SCORES]) if self.send == "bits" else own[SCORES].clamp(-LARGE, LARGE)
        heads = {name: own[name][found[best]] for name in NAMES}
        return {"score": agent.scores[best].float()[None].clone(), **heads, "mask": mask}

    def matched(self, agent: Present, task: int, asked: Mapping[str, Tensor]) -> list[int] | None:
        """Which output of a task stands for each of those that somebody asks about; None: the task is not like it."""
        mine = self.told(agent, task)
        if mine is None:
            return None
        if self.like == "label":
            here, wanted = mine["classes"].tolist(), asked["classes"].tolist()
            return [here.index(one) for one in wanted] if set(here) == set(wanted) else None
        gaps = torch.cdist(asked["means"], mine["means"]).square() / asked["means"].shape[1]
        rows = range(len(gaps))
        order = min(permutations(rows), key=lambda one: float(gaps[list(rows), list(one)].sum()))
        return list(order) if float(gaps[list(rows), list(order)].sum()) <= self.near else None

    def absorb(self, agent: Present, letters: Sequence[Received]) -> None:
        """The best mask takes the place of its own."""
        if not letters:
            return
        before = float(agent.scores[agent.task]) if agent.epoch else 0.0
        best = max(sorted(letters, key=lambda one: one.sender), key=lambda one: float(one["score"]))
        if self.margin * float(best["score"]) <= before:
            return  # it does better by now
        mask = best["mask"]
        scores = unpacked(mask, agent.tensor(SCORES).shape[1:]) if self.send == "bits" else mask
        undo = agent.begin_with({SCORES: scores} | {name: best[name] for name in NAMES})
        if self.guard and agent.epoch:
            logits, labels = agent.validated([agent.task])[agent.task]
            if float((logits.argmax(1) == labels).float().mean()) < before:
                undo()


def packed(scores: Tensor) -> Tensor:
    """A bit for every score, one where it is at least zero: uint8 [n / 8]."""
    return torch.from_numpy(np.packbits((scores >= 0).numpy().ravel()))


def unpacked(bits: Tensor, shape: Sequence[int]) -> Tensor:
    """Scores of the sign that the bits tell."""
    count = int(np.prod(shape))
    on = torch.from_numpy(np.unpackbits(bits.numpy())[:count].astype(np.float32))
    return ((2 * on - 1) * SURE).view(*shape)
