"""modmod: agents share modules that they grew for tasks like the one a neighbour is about to learn
(docs/protocol.md, section 6).

Everybody describes its coming task to its neighbours; they answer with their modules that promise to transfer best, and
what is needed to use them; the best of all becomes the candidate of the task.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from math import isfinite
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field, NonNegativeInt, PositiveInt
from torch import Tensor

from shoal.agents.stack import MODEL, Stack
from shoal.agents.world import World
from shoal.errors import SettingsError
from shoal.learners.candidates import OWNER, Offer, grown
from shoal.letters.letter import Letter
from shoal.letters.mail import ACCEPTED, OUT_OF_RANGE, TOO_LARGE, Expected
from shoal.models import dropout
from shoal.models.families import block_of, family
from shoal.models.table import GROWTH, modular_form
from shoal.settings.groups import Settings
from shoal.sharing import modules
from shoal.sharing.accept import Accept, accepting
from shoal.sharing.anchors import anchor_layout
from shoal.sharing.body import far_larger
from shoal.sharing.contract import Late
from shoal.sharing.mode import Draft, Mode, Present, Received
from shoal.sharing.promises import described, promise
from shoal.sharing.scores import BUILT_IN, SCORES


class ModMod(Mode):
    """Modules that agents grew for tasks like the one that a neighbour is about to learn (Le et al. 2024).

    For modular nets.

    *Source:* Le et al. 2024.

    *Formula:* once, before task t, an agent tells its neighbours the classes of t (`metric = "iou"`), or sends up to 40
    validation images of each. A neighbour scores each of its own tasks u that kept a module, iou = |classes of both| /
    |classes of either|, or one of seven other scores (docs/protocol.md), and sends the best `modules` (1) above
    `min_similarity` (0 for iou). The receiver takes the highest (`choose = "tryout"`: the best on validation images
    after 20 epochs) as the candidate of its learner `modular`, with the rows of the head for classes in common, others
    at zero, and with the structure; validation images say whether it stays.

    *Price:* K for the question by classes, n(p + 1) for n images with labels; for a module width² + width, K(width + 2)
    for head and classes, depth · (basis + 1) for the structure and 2 for score and task: 4,314 on MNIST.

    *Changed:* head and structure are counted, and go only between agents with a common start; a module for a task with
    no class in common is not sent.

    *Then:* the candidate begins with these weights, and learns as always; among offers of equal scores one with
    head and structure counts more, then that of the earlier task, then of the lower agent. Without an offer the
    candidate is a fresh one. With `tryout`, offers are tried in groups of three on copies of the agent, by
    component dropout in which they take turns batch by batch, and the best is taken as it was received. `frozen`:
    it does not train in its first task. `extra_random`: a fresh module is tried beside it, in turns, and the better
    on validation data is judged at the end.

    *Between:* a module fits where its kind and width do, whatever the depth; the first one comes in the second task
    after the initial ones, because nobody has grown one before. The accuracy at epoch 0 of a task is that of the net as
    received, before any training.

    *Bytes:* `compress = "int8"` sends each weight as a byte, rounded at random by the module's own numbers (the same to
    all), in place of four; it costs no accuracy that two seeds show (`shoal sweep digits network=ring --seeds 2
    sharing=modmod sharing.modmod.compress=none,int8`: 86.43 ± 0.18 and 86.48 ± 0.27).
    """

    between: ClassVar[str] = "agents of modular nets of the same kind of module and net.width"
    both_ways: ClassVar[bool] = True
    # A question describes the task that comes next, and the answer is for that task: once it has begun, both are of no
    # use any more.
    late: ClassVar[Mapping[str, Late]] = {"question": "never", "modules": "never"}
    writes: ClassVar[tuple[str, ...]] = (MODEL, OWNER, dropout.OWNER)
    offers: ClassVar[bool] = True
    parallel: ClassVar[bool] = True
    companion: ClassVar[str] = "shoal.sharing.batched.modmod"
    example: ClassVar[Mapping[str, Any]] = {"min_similarity": -1.0}
    mode: Literal["modmod"] = "modmod"
    every: Literal["task"] = Field("task", description="once, before a task")
    when: Literal["before"] = Field("before", description="before the task")
    start: NonNegativeInt | Literal["grown"] = Field(
        "grown", description="the first task with exchanges; grown: when the first agents can have grown a module"
    )
    metric: str = Field(
        "iou",
        description="how well a module promises to transfer: by classes (iou), by what rows are like (anchors), or by "
        f"images of the coming task ({', '.join(BUILT_IN)})",
    )
    examples: PositiveInt = Field(
        40, description="validation rows per class that describe a task (not for iou and anchors)"
    )
    modules: PositiveInt = Field(1, description="modules that a neighbour sends at most")
    min_similarity: float | Literal["metric"] = Field(
        "metric",
        description="a module is sent if its score is above; metric: 0 for iou, -0.25 for anchors, else no limit",
    )
    choose: Literal["trust", "tryout"] = Field(
        "trust", description="take the module with the highest score, or the best of all on validation data in a tryout"
    )
    tryout: PositiveInt = Field(20, description="epochs of a tryout")
    accept: Accept = accepting("a module that after a tryout is not behind a fresh one")
    transfer_head: bool = Field(True, description="a module comes with the head of its task, for classes in common?")
    transfer_structure: bool = Field(True, description="a module comes with the structure of its task?")
    frozen: bool = Field(False, description="does a received module stay as it is until the end of the task?")
    extra_random: bool = Field(False, description="try a fresh module beside a received one?")
    compress: Literal["none", "int8"] = Field(
        "none",
        description="the weights of a module go as they are, or as a byte each, rounded at random; a module is sent "
        "once, so that no codec with a memory serves",
    )
    leak: bool = Field(
        False, description="after looking at rows once, train without dropout for good (the paper's code did)"
    )

    @property
    def spare(self) -> int:
        """Candidates of a task beyond the first."""
        return int(self.extra_random)

    def init(self, world: World) -> dict[str, Tensor]:
        """Every module that lanes were offered for each task, [L, T, most, 5]: the sender, the sender's task that it
        was grown for, how well it promises to transfer, its accuracy on validation data in a tryout (NaN: it was not
        tried), chosen. NaN where there were fewer."""
        most = self.modules * world.most_heard
        return {"offers": torch.full((len(world.lanes), world.settings.tasks.count, most, 5), torch.nan).double()}

    def suits(self, settings: Settings) -> None:
        if settings.tasks.classes == 1 and SCORES.find(self.metric).asks not in ("classes", "anchor"):
            raise SettingsError(
                f'sharing.modmod.metric = "{self.metric}" compares classes, and with tasks.classes = 1 numbers are '
                'predicted; use metric = "anchors", or "iou", which then takes all modules for alike'
            )
        if family(settings) != GROWTH:
            raise SettingsError(
                f"mode `modmod` needs a modular model, got `{settings.model}`; use model = "
                f"{modular_form(settings.model)} or drop the mode"
            )
        if SCORES.find(self.metric).compares and settings.learner.memory == 0:
            raise SettingsError(
                f'sharing.modmod.metric = "{self.metric}" compares rows of a task with those that the sender kept of '
                "its own, but learner.memory = 0 keeps none; raise learner.memory or use another metric"
            )

    def fits(self, sender: Settings, receiver: Settings) -> bool:
        """A module fits wherever it has the same shape, in nets of whatever depth."""
        whole = {"depth", "basis"}  # of a net, not of a module
        shapes = [
            {name: said for name, said in one.net.shape.items() if name not in whole} for one in (sender, receiver)
        ]
        same = block_of(sender) == block_of(receiver) and shapes[0] == shapes[1]
        return same and super().fits(sender, receiver)

    @property
    def letters(self) -> Mapping[str, Letter]:
        """A question names classes or has an anchor of the coming task, and then goes whole or not at all; or it has
        images of it, and leaves room for a module. Modules say of which classes they are if their heads come too."""
        metric, labels = SCORES.find(self.metric), {"labels": local_labels}
        if metric.asks == "classes":
            question = Letter({"classes": "classes"}, in_a_task, ("questions",), "classes", cut=False)
        elif metric.asks == "anchor":
            question = Letter(lambda world: anchor_layout(), 1, ("prototypes",), cut=False)
        else:
            asked: dict[str, Any] = {"images": "rows"} | (labels if metric.asks == "labelled" else {})
            most = partial(in_a_task, each=self.examples)
            question = Letter(asked, most, ("images",), leaves="modules", spare=1)
        look = partial(modules.look, compress=self.compress, scores=metric.range)
        kin = partial(modules.beside, head=self.transfer_head, structure=self.transfer_structure)
        by = "classes" if self.transfer_head else ""
        return {"question": question, "modules": Letter(look, self.at_most, ("modules",), by, least=1, kin=kin)}

    def at_most(self, world: World) -> int:
        """How many modules a neighbour can send."""
        tasks = world.settings.tasks
        return min(self.modules, max(1, tasks.count - tasks.initial - 1))

    def ask(self, agent: Present) -> Draft:
        """What its coming task is like."""
        return described(agent, agent.task, self.metric, self.examples)

    def answer(self, agent: Present, question: Received | None, to: int) -> Draft | None:
        """Its modules that promise to transfer best to the task that is asked about."""
        assert question is not None
        kept = grown(agent._world, agent._stack, agent._row)
        scores = {u: promise(agent, question.tensors, u, self.metric) for u in kept}
        return self.offer(agent, self.best(scores), scores)

    def best(self, scores: Mapping[int, float]) -> list[int]:
        """The tasks whose modules are worth sending, the best first."""
        return sorted((u for u in scores if self.enough(scores[u])), key=lambda u: (-scores[u], u))

    def enough(self, score: float) -> bool:
        """Is a module with this score worth sending?"""
        return isfinite(score) and (self.limit is None or score > self.limit)

    @property
    def limit(self) -> float | None:
        """The score that a module must be above to be sent; None: any will do."""
        return SCORES.find(self.metric).floor if self.min_similarity == "metric" else self.min_similarity

    def offer(self, agent: Present, tasks: Sequence[int], scores: Mapping[int, float]) -> Draft | None:
        """An agent's modules for some of its tasks, and what is needed to use them."""
        if not tasks:
            return None
        rows, told = np.full(len(tasks), agent._row), [scores[u] for u in tasks]
        return modules.packed(agent._world, agent._stack, self.mode, self.compress, rows, np.array(tasks), told)

    def judge(self, agent: Present, letter: Received) -> str:
        """A question says something; labels are of two classes at least; offers are of tasks that could be, each once,
        of weights not far larger than the receiver's own."""
        if letter.kind == "modules":
            tasks = letter["sources"].tolist()
            could = agent.settings.tasks.initial <= min(tasks, default=-1) and max(tasks) < letter.clock[0]
            if not could or len(set(tasks)) < len(tasks):
                return OUT_OF_RANGE
            whole = letter.once("whole", lambda: modules.whole(agent._world, letter.tensors))
            return TOO_LARGE if far_larger(agent, whole, agent.model.body) else ACCEPTED
        if "labels" in letter and len(letter["labels"].unique()) < 2:
            return OUT_OF_RANGE
        items = len(next(iter(letter.tensors.values())))
        return ACCEPTED if (items == 1 if "spread" in letter else items) else OUT_OF_RANGE

    def absorb(self, agent: Present, letters: Sequence[Received]) -> None:
        """The best offer becomes the candidate of the coming task, with its head and structure; where modules have to
        help, the best of those that do, or none."""
        contents = [
            (one.sender, one.once("whole", partial(modules.whole, agent._world, one.tensors))) for one in letters
        ]
        offers = [offer for sender, content in contents for offer in modules.offers_of(sender, content)]
        if offers:
            self.take(agent._world, agent._stack, {agent._row: offers})
        if self.leak and agent.answered:
            agent.train_without_dropout()

    def take(self, world: World, stack: Stack, offered: Mapping[int, Sequence[Offer]]) -> None:
        """Choose among what lanes were offered, by their rows."""
        how = self.choose == "tryout", self.accept == "helps", self.tryout, self.frozen
        for row, choice in modules.choices(world, stack, offered, *how).items():
            modules.take(world, stack, self.mode, row, choice, self.frozen)


def in_a_task(world: World, each: int = 1) -> int:
    """So many items of every class of a task."""
    return world.settings.tasks.classes * each


def local_labels(world: World) -> Expected:
    """What labels in a question look like: places among the classes of its task."""
    return Expected(torch.int32, (None,), world.settings.tasks.classes)
