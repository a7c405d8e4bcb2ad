"""Simp: receivers ask for classes by what they are worth to them; senders answer with random images
(docs/protocol.md, section 6)."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field, PositiveInt
from torch import Tensor
from torch.nn import functional as F

from shoal.agents.world import World
from shoal.letters.letter import Letter
from shoal.letters.mail import OUT_OF_RANGE, Expected
from shoal.sharing.by_class import ByClass
from shoal.sharing.choices import quotas
from shoal.sharing.contract import Late
from shoal.sharing.mode import Draft, Present, Received


class Simp(ByClass):
    """Images of the classes that receivers ask for.

    *Source:* Le et al. 2024.

    *Formula:* class c is worth w_c, the mean cross-entropy of the receiver's validation images of that class (`worth =
    "task"`: the error of the last task that has it). It sends its classes and what they are worth; a neighbour returns
    `images` (b = 20) random ones, of class c the share w_c / Σ w, by largest remainder. They go into the buffers, of
    160 each, of all the receiver's tasks that have the class.

    *Price:* 2 for each class asked for, and b(p + 1).

    *Changed:* the paper rounds shares down (`quota = "floor"`), its code does not; received images train through the
    head of their own task, where the paper's code used the current one.
    """

    both_ways: ClassVar[bool] = True
    late: ClassVar[Mapping[str, Late]] = {"answer": "all"}
    example: ClassVar[Mapping[str, Any]] = {"every": 2, "images": 10, "memory": 12}
    mode: Literal["simp"] = "simp"
    images: PositiveInt = Field(20, description="rows that a neighbour returns")
    memory: PositiveInt = Field(160, description="received rows kept per task")
    worth: Literal["class", "task"] = Field(
        "class", description="what a class is worth: its cross-entropy, or the error of the last task that has it"
    )
    scope: Literal["all", "current", "last"] = Field(
        "all", description="ask for classes of all tasks, of the current one, or of all in a task's last exchange only"
    )
    quota: Literal["floor", "remainder"] = Field(
        "remainder", description="shares of the rows rounded down, or to exactly as many by largest remainder"
    )

    @property
    def letters(self) -> Mapping[str, Letter]:
        worth = Expected(torch.float32, (None,), least=0.0)
        return {
            "question": Letter({"classes": "classes", "worth": worth}, self.wanted, ("questions",), "classes"),
            "answer": Letter({"images": "rows", "labels": "classes"}, self.images, ("images",), "labels"),
        }

    def wanted(self, world: World) -> int:
        """How many classes a question can be about."""
        tasks = world.settings.tasks
        return min(tasks.classes * (1 if self.scope == "current" else tasks.count), len(world.bank.classes))

    def judge(self, agent: Present, letter: Received) -> str:
        """Nobody asks for a class twice; images may have to help."""
        if letter.kind == "question":
            classes = letter["classes"].tolist()
            return "" if len(set(classes)) == len(classes) else OUT_OF_RANGE
        return super().judge(agent, letter)

    def ask(self, agent: Present) -> Draft:
        """Its classes and what each is worth to it, the most wanted first."""
        everything = self.scope == "all" or (self.scope == "last" and agent.last)
        errors: dict[int, list[Tensor]] = {}
        for at, (logits, labels) in agent.validated(range(agent.task + 1) if everything else [agent.task]).items():
            task = agent.tasks[at]
            if self.worth == "task":  # the last task that has a class says
                wrong = (logits.argmax(1) != labels).float().mean()
                errors |= {one: [wrong[None]] for one in task.classes}
                continue
            loss = F.cross_entropy(logits, labels, reduction="none")
            for one in task.classes:
                errors.setdefault(one, []).append(loss[labels == task.outputs.index(one)])
        # A class without a validation image is worth nothing that could be measured.
        parts = {one: torch.cat(some) for one, some in errors.items()}
        worth = {one: float(values.mean()) for one, values in parts.items() if len(values)}
        order = sorted(worth, key=lambda one: (-worth[one], one))
        return {"classes": np.array(order, np.int64), "worth": np.array([worth[one] for one in order])}

    def answer(self, agent: Present, question: Received | None, to: int) -> Draft:
        """Random images of the classes asked for, as many of each as its worth says."""
        assert question is not None
        own, rng, picks = agent.held, agent.rng(to), [np.zeros(0, np.int64)]
        classes, worth = question["classes"].tolist(), question["worth"].double().numpy()
        known = agent.once("classes", lambda: set(own.labels.tolist()))
        here = [at for at, one in enumerate(classes) if one in known]
        for at, count in zip(here, quotas(worth[here], agent.fits("answer", to), self.quota), strict=True):
            mine = agent.once(f"class {classes[at]}", lambda at=at: np.flatnonzero(own.labels == classes[at]))  # type: ignore[misc]
            picks.append(rng.permutation(mine)[:count])
        chosen = np.concatenate(picks)
        return {"images": own.rows[chosen], "labels": own.labels[chosen]}
