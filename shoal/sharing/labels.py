"""Labels: agents ask neighbours what images without a label show, and who is sure says so (CaPC, Choquette-Choo et al.
2021, without its cryptography; only those that are sure vote, as in PATE, Papernot et al. 2018)."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from shoal.agents import received
from shoal.agents.received import Arrived
from shoal.agents.world import World
from shoal.errors import SettingsError
from shoal.letters.letter import Letter
from shoal.letters.mail import ACCEPTED, OUT_OF_RANGE, Expected
from shoal.settings.groups import Settings
from shoal.sharing.images import classes_only
from shoal.sharing.mode import Draft, Mode, Present, Received
from shoal.sharing.recv import score

SCENARIOS = ("drawn", "split", "parity", "overlap")  # those that leave images that an agent does not learn from


class Labels(Mode):
    """Asking for labels: images go out, and what comes back is a number for each.

    *Source:* CaPC (Choquette-Choo et al. 2021), without its cryptography; PATE (Papernot et al. 2018); uncertainty
    sampling (Settles 2009).

    *Formula:* a task brings `pool` (32) images per class that have no label; nobody reads these labels. The agent sends
    the `queries` (20) of which it is least sure and the classes of its task. A neighbour that knows at least the share
    `cover` (all) of these classes gives each the most that any of its heads gives it, and answers where one class has
    at least the share `sure` (0.9). What most of those that answered say, at least `agree` (1), is the label with which
    the image is learned; a tie says nothing.

    *Price:* b p + K for a question, and 2 for each answered image. Only for scenarios that leave such images (`drawn`,
    `split`, `overlap`).
    """

    both_ways: ClassVar[bool] = True
    writes: ClassVar[tuple[str, ...]] = (received.OWNER,)
    writes_weights: ClassVar[bool] = False
    parallel: ClassVar[bool] = True
    example: ClassVar[Mapping[str, Any]] = {
        "every": 2, "queries": 6, "pool": 4, "memory": 12, "sure": 0.0, "cover": 0.1
    }  # fmt: skip
    mode: Literal["labels"] = "labels"
    every: PositiveInt = Field(16, description="epochs between exchanges")
    when: Literal["before", "after"] = Field("after", description="exchange before or after every so many epochs")
    pool: PositiveInt = Field(32, description="rows without a label that come with a task, per class")
    queries: PositiveInt = Field(20, description="rows that are asked about at an exchange")
    memory: PositiveInt = Field(160, description="labelled rows kept per task")
    scorer: Literal["confidence", "margin", "entropy", "random"] = Field(
        "entropy", description="what to ask about: low confidence, small margin, high entropy; or any at random"
    )
    sure: float = Field(0.9, ge=0, le=1, description="how sure a neighbour must be to answer")
    cover: float = Field(1.0, gt=0, le=1, description="the share of the task's classes that it must know to answer")
    agree: PositiveInt = Field(1, description="how many neighbours must say the same")

    @property
    def room(self) -> int:
        return self.memory

    def suits(self, settings: Settings) -> None:
        classes_only(self, settings, "labels")
        tasks = settings.tasks
        if tasks.scenario not in SCENARIOS or tasks.train == "all":
            raise SettingsError(
                "mode `labels` asks about rows that an agent does not learn from, and tasks.scenario = "
                f"{tasks.scenario!r} with tasks.train = {tasks.train!r} leaves none; use one of "
                f"{', '.join(SCENARIOS)} with a number of rows, or share by another mode"
            )

    def init(self, world: World) -> dict[str, Tensor]:
        """Which images of the pool of each task have a label by now."""
        tasks = world.settings.tasks
        return {"known": torch.zeros(len(world.lanes), tasks.count, self.pool * tasks.classes, dtype=torch.bool)}

    @property
    def letters(self) -> Mapping[str, Letter]:
        """Of which class an image without a label is nobody knows: it may be of any class of its task. A question
        leaves room for the answer to one in the other direction."""
        asked: dict[str, Any] = {"images": "rows", "classes": classes_of_a_task}
        told: dict[str, Any] = {"queries": Expected(torch.int32, (None,), self.queries), "labels": "classes"}
        return {
            "question": Letter(asked, self.queries, ("images",), "classes", alike=True, leaves="answer", least=1),
            "answer": Letter(told, self.queries, ("labels",), "labels", least=1),
        }

    def judge(self, agent: Present, letter: Received) -> str:
        """An answer gives a label of the task to images that its receiver has asked about, each one once."""
        asked = letter.asked
        if letter.kind == "question" or asked is None:  # it is late, and says nothing
            return ACCEPTED
        queries, labels = letter["queries"].tolist(), letter["labels"].tolist()
        fits = len(set(queries)) == len(queries) and max(queries, default=-1) < len(asked["images"])
        return ACCEPTED if fits and set(labels) <= set(asked["classes"].tolist()) else OUT_OF_RANGE

    def ask(self, agent: Present) -> Draft | None:
        """The images without a label that it is least sure of; where in the pool each is, it keeps to itself."""
        task, known = agent.tasks[agent.task], agent.kept["known"][agent.task].numpy()
        if len(task.classes) * self.pool != len(known):  # its stream has ended, or the task has fewer classes
            return None
        rows = agent.unlabelled(agent.task, len(known))
        open_ = np.flatnonzero(~known[: len(rows)])
        if not len(open_):
            return None
        logits = agent.net.read(agent.read(agent.images(rows[open_])), agent.task)
        hard = score(self.scorer, logits, torch.zeros(0), agent.rng()).cpu()
        at = open_[hard.argsort(descending=True, stable=True)[: self.queries].numpy()]
        return {"images": rows[at], "classes": np.array(task.classes), "at": at}

    def answer(self, agent: Present, question: Received | None, to: int) -> Draft | None:
        """Which images it is sure about, and of which class it takes each for. What a class gets is the most that any
        head that has it gives it."""
        assert question is not None
        classes = question["classes"].tolist()
        know = [one for one in classes if any(one in task.classes for task in agent.tasks)]
        if len(know) < self.cover * len(classes) or not know:
            return None
        x = agent.read(question["images"])
        gets = torch.zeros(len(x), len(classes))
        for at, task in enumerate(agent.tasks):
            here = [place for place, one in enumerate(classes) if one in task.classes]
            if here:
                likely = agent.net.read(x, at).softmax(1).cpu()
                own = likely[:, [task.outputs.index(classes[place]) for place in here]]
                gets[:, here] = torch.maximum(gets[:, here], own)
        share, best = (gets / gets.sum(1, keepdim=True).clamp(min=1e-12)).max(1)
        sure = (share >= self.sure).nonzero().squeeze(1).numpy()
        return {"queries": sure, "labels": np.array(classes)[best.numpy()[sure]]}

    def absorb(self, agent: Present, letters: Sequence[Received]) -> None:
        """Learn with the label that most of those that answered say; a tie says nothing. Which images a late answer is
        about is not remembered."""
        asked, outputs = agent.noted, agent.classes
        if asked is None:
            return
        votes = np.zeros((len(asked["at"]), len(outputs)), np.int64)
        for letter in letters:
            if letter.asked is not None:
                for query, label in zip(letter["queries"].tolist(), letter["labels"].tolist(), strict=True):
                    votes[query, outputs.index(label)] += 1
        most = votes.max(1, initial=0)
        clear = np.flatnonzero((most >= self.agree) & ((votes == most[:, None]).sum(1) == 1))
        if not len(clear):
            return
        images, tasks = agent.images(asked["images"][clear]), np.full(len(clear), agent.task)
        arrived = Arrived(images, np.arange(len(clear)), votes[clear].argmax(1), tasks)
        agent.receive(arrived, "reservoir", once=True)
        known = agent.kept["known"].clone()
        known[agent.task, torch.from_numpy(asked["at"][clear])] = True
        agent.keep(known=known)


def classes_of_a_task(world: World) -> Expected:
    """What all classes of a task look like in a message."""
    return Expected(torch.int32, (world.settings.tasks.classes,), len(world.bank.classes))
