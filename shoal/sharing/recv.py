"""Recv: receivers ask for images like those they find hard; senders answer with their nearest
(docs/protocol.md, section 6)."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field, NonNegativeInt, PositiveInt
from torch import Tensor
from torch.nn import functional as F

from shoal.agents import received
from shoal.agents.received import Arrived, digests
from shoal.agents.world import World
from shoal.errors import SettingsError
from shoal.letters.letter import Letter
from shoal.letters.mail import EXPIRED, OUT_OF_RANGE, TOO_MANY, Expected
from shoal.models import dropout
from shoal.settings.groups import Settings
from shoal.sharing.accept import NO_HELP
from shoal.sharing.asked import history, remember, remembered
from shoal.sharing.by_class import ImageMode
from shoal.sharing.contract import Late
from shoal.sharing.mode import Draft, Present, Received
from shoal.sharing.search import Queries, closest

Scorer = Literal["cross-entropy", "confidence", "margin", "entropy", "random"]


class Recv(ImageMode):
    """Images that receivers ask for, like those that they find hard.

    *Source:* Le et al. 2024.

    *Formula:* an agent sends the `queries` (q = 20) validation images, of all its tasks so far, with the largest
    cross-entropy (`scorer`), and their classes, to all neighbours. A neighbour looks at its own images, training images
    of its task and memories, of those of its tasks that have the class, and returns for each query the `nearest` (k =
    5) with the largest cosine of what the head of that task reads. The receiver keeps an image if the query's task has
    its class, in a buffer of `memory` (32) for each task, and learns it with its own.

    *Price:* q(p + 1) for the question, at most qk(p + 2) for the answer: 15,700 and 78,600 on MNIST, every 16 epochs.

    *Changed:* the paper does not say that classes are sent; its code sends them, and so do we, and count them. In the
    paper's code modular nets ask about the current task alone, and an agent that has answered never uses dropout again
    (`scope`, `leak`; only protocol `paper`).
    """

    both_ways: ClassVar[bool] = True
    late: ClassVar[Mapping[str, Late]] = {"answer": "all"}
    writes: ClassVar[tuple[str, ...]] = (received.OWNER, dropout.OWNER)
    companion: ClassVar[str] = "shoal.sharing.batched.recv"
    example: ClassVar[Mapping[str, Any]] = {"every": 2, "queries": 6, "nearest": 3, "memory": 12}
    mode: Literal["recv"] = "recv"
    queries: PositiveInt = Field(20, description="hard validation rows sent to every neighbour")
    nearest: PositiveInt = Field(5, description="rows that a neighbour returns for each")
    scorer: Scorer = Field(
        "cross-entropy",
        description="what is hard: loss, low confidence, small margin, high entropy; or any row at random",
    )
    scope: Literal["all", "current"] = Field("all", description="queries are from all tasks so far, or the current one")
    prefilter: Literal["label", "none"] = Field(
        "label", description="label: the query's class is sent too, and only tasks that have it are searched"
    )
    receive: Literal["class", "none"] = Field(
        "class", description="class: a row's class is sent too; it is kept if the query's task has that class"
    )
    labels: Literal["true", "query"] = Field("true", description="received rows have their own label, or the query's")
    oldest: NonNegativeInt = Field(0, description="senders search their tasks from this one on")
    leak: bool = Field(False, description="after answering once, train without dropout for good (the paper's code did)")
    own_validation: Literal["keep", "drop"] = Field(
        "keep",
        description="received rows that are among the receiver's own validation rows are learned, or left out",
    )

    def suits(self, settings: Settings) -> None:
        super().suits(settings)
        if self.labels == "true" and self.receive == "none":
            raise SettingsError(
                'sharing.recv.labels = "true" needs the labels that receive = "none" does not send; '
                'use labels = "query" or receive = "class"'
            )

    @property
    def letters(self) -> Mapping[str, Letter]:
        """A question leaves room for the answer to one in the other direction."""
        asked: dict[str, Any] = {"images": "rows"} | ({"labels": "classes"} if self.prefilter == "label" else {})
        told: dict[str, Any] = {"images": "rows"} | ({"labels": "classes"} if self.receive == "class" else {})
        told["queries"] = Expected(torch.int32, (None,), self.queries)
        return {
            "question": Letter(asked, self.queries, ("images",), "labels", share=self.nearest + 1, alike=True),
            "answer": Letter(told, self.queries * self.nearest, ("images",), "labels"),
        }

    def init(self, world: World) -> dict[str, Tensor]:
        """What was asked, where answers can be late."""
        return {} if world.prompt else history(self.queries, len(world.lanes))

    def ask(self, agent: Present) -> Draft:
        """Its validation images, the hardest first; of which task each is, and its label there, it keeps to itself."""
        known = agent.validated(range(agent.task + 1) if self.scope == "all" else [agent.task])
        scores = [score(self.scorer, logits, labels, agent.rng(task)).cpu() for task, (logits, labels) in known.items()]
        order = torch.cat(scores).argsort(dim=0, descending=True, stable=True).numpy()
        rows = np.concatenate([agent.tasks[task].validation[: len(labels)] for task, (_, labels) in known.items()])
        tasks = np.concatenate([np.full(len(labels), task) for task, (_, labels) in known.items()])
        local = np.concatenate([labels.cpu().numpy() for _, labels in known.values()])
        rows = rows[order]
        return {"images": rows, "labels": agent.labels_of(rows), "task": tasks[order], "local": local[order]}

    def answer(self, agent: Present, question: Received | None, to: int) -> Draft:
        """Its own images that are nearest to those of the question: first the nearest to each, then the second nearest,
        and so on, so that every one has its nearest if not all fits a link."""
        assert question is not None
        here = Queries(*np.array([[agent._row], [0], [len(question["images"])]]))
        near = closest(agent._post, question.tensors, here, self.oldest, self.nearest)
        return {"images": near.rows, "labels": near.labels, "queries": near.query}

    def judge(self, agent: Present, letter: Received) -> str:
        """An answer is to images that its receiver has asked about, and has so many for each."""
        if letter.kind == "question":
            return ""
        asked, earlier = letter.asked, remembered(agent, letter)
        if asked is None and letter.late and earlier is None:
            return EXPIRED
        count = letter["queries"].bincount()
        known = len(asked["images"]) if asked is not None else len(earlier["task"]) if earlier is not None else 0
        if len(count) > known:
            return OUT_OF_RANGE
        if len(count) and int(count.max()) > self.nearest:
            return TOO_MANY
        unwanted = self.accept == "helps" and not agent.helped_by(self.sorted_in(agent, letter))
        return NO_HELP if unwanted else ""

    def absorb(self, agent: Present, letters: Sequence[Received]) -> None:
        """Keep what fits a task in that task's buffer, and remember what was asked where answers can be late."""
        if letters:
            arrived = Arrived.joined([self.sorted_in(agent, letter) for letter in letters])
            agent.receive(arrived, self.buffer, once=False)
        if not agent.prompt:
            remember(agent, self.queries)
        if self.leak and agent.answered:
            agent.train_without_dropout()

    def sorted_in(self, agent: Present, letter: Received) -> Arrived:
        """What of an answer fits the tasks that its receiver has asked for."""
        asked, which = agent.noted if letter.asked is not None else remembered(agent, letter), letter["queries"].numpy()
        if asked is None:
            return Arrived(letter["images"], *np.zeros((3, 0), np.int64))
        tasks, local = (np.asarray(asked[name], np.int64)[which] for name in ("task", "local"))
        fits = np.full(len(which), True)
        if "labels" in letter:
            true = agent.outputs[tasks, letter["labels"].numpy()].astype(np.int64)
            local, fits = local if self.labels == "query" else true, true >= 0
        if held_out := self.held_out(agent):
            fits &= np.array([one not in held_out for one in digests(letter["images"])], bool)
        return Arrived(letter["images"], np.flatnonzero(fits), local[fits], tasks[fits])

    def held_out(self, agent: Present) -> set[int]:
        """What names the images that an agent does not learn from others because it validates on them."""
        if self.own_validation == "keep":
            return set()
        return set(digests(agent.images(np.concatenate([one.validation for one in agent.tasks]))))


def score(scorer: str, logits: Tensor, labels: Tensor, rng: np.random.Generator) -> Tensor:
    """How hard images are, [n], by logits [n, K] and labels [n]; larger is harder (Settles 2009).

    cross-entropy -log p(y); confidence -max p; margin -(p1 - p2) of the two largest; entropy -sum p log p.
    """
    if scorer == "random":
        return torch.from_numpy(rng.random(len(logits)))
    if scorer == "cross-entropy":
        return F.cross_entropy(logits, labels, reduction="none")
    log = logits.log_softmax(1)
    if scorer == "entropy":
        return -(log.exp() * log).sum(1)
    top = log.exp().topk(2, 1).values
    return -top[:, 0] if scorer == "confidence" else top[:, 1] - top[:, 0]
