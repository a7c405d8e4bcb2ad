"""Push: senders decide what each neighbour should see, and learn it from the neighbours' votes (Geng et al. 2021; the
paper's authors left such a sender unfinished)."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor
from torch.nn import functional as F

from shoal.agents.received import digests
from shoal.agents.slots import slots
from shoal.agents.world import World
from shoal.letters.letter import Letter
from shoal.letters.mail import Expected
from shoal.sharing.accept import NO_HELP
from shoal.sharing.agent import Held
from shoal.sharing.by_class import ImageMode, histogram, marks, sorted_in
from shoal.sharing.choices import class_by_class, greedy, spread
from shoal.sharing.contract import Late
from shoal.sharing.drafts import REPLIES
from shoal.sharing.mode import Draft, Present, Received

HIGHEST = 5.0  # a loss counts no more than this
MANY = 2**31 - 1


class Push(ImageMode):
    """Sharing of images that senders choose, by what neighbours have voted for.

    *Source:* Geng et al. 2021; the paper's authors left such a sender unfinished.

    *Formula:* i scores an image x for neighbour j by z(x)·w_ij, z = features of length one, one-hot class, own loss (at
    most 5) and 1; w_ij = (Σ z z' + ridge I)⁻¹ Σ z v, where earlier sums count `forget` (0.9) after each vote. It sends
    b images, each random with chance ε, else the highest scores; ε starts at 1, is multiplied by `decay` with each vote
    and never less than `least`; an image goes once to a neighbour. The vote v of j is 0 if no task of j has the class
    or a buffer holds the image, else σ((loss − m)/s) with m and s of its validation images of that task; `vote =
    "kept"` votes 1 for what went into a buffer.

    *Price:* b(p + 1), and 2b for votes. Without an edge back ε stays 1.

    *Without votes:* `choose = "herding"` (iCaRL's order within classes), `"spread"` (farthest from all that was sent),
    `"coverage"` (the receiver tells how many images of each class it has, C numbers; Akcin et al. 2022).

    *Changed:* closed form in place of their Adam; class and loss beside features; `decay` 0.9 and not 0.99; the vote is
    by loss on validation data, where their code was empty.
    """

    late: ClassVar[Mapping[str, Late]] = {"images": "all"}
    asking: ClassVar[tuple[str, ...]] = ("votes", "histogram")
    example: ClassVar[Mapping[str, Any]] = {"every": 1, "images": 3, "memory": 12}
    mode: Literal["push"] = "push"
    images: PositiveInt = Field(20, description="rows sent to every neighbour")
    memory: PositiveInt = Field(160, description="received rows kept per task")
    choose: Literal["votes", "herding", "spread", "coverage"] = Field(
        "votes",
        description="what to send: what votes are expected for; rows near the mean of their class; rows far from "
        "all that was sent; or what makes the receiver's classes, which it tells, as many of each",
    )
    vote: Literal["surprise", "kept"] = Field(
        "surprise", description="votes are by the receiver's loss, or 1 for rows that it has kept"
    )
    decay: float = Field(0.9, gt=0, le=1, description="the chance of a random row is multiplied by it with each vote")
    least: float = Field(0.1, ge=0, le=1, description="the least chance of a random row")
    forget: float = Field(0.9, gt=0, le=1, description="how much earlier votes count after new ones")
    ridge: PositiveFloat = Field(1.0, description="the penalty of the linear model")

    @property
    def letters(self) -> Mapping[str, Letter]:
        """How many images of each class there are says what an agent has: it is as good as labels."""
        vote, place = Expected(torch.float32, (None,), least=0.0, most=1.0), Expected(torch.int32, (None,), self.images)
        asked = {
            "votes": {"votes": Letter({"place": place, "vote": vote}, self.images, ("questions",))},
            "coverage": {"histogram": Letter({"have": counts}, 1, ("labels",))},
        }
        images = Letter({"images": "rows", "labels": "classes"}, self.images, ("images",), "labels", least=1)
        return {**asked.get(self.choose, {}), "images": images}

    def init(self, world: World) -> dict[str, Tensor]:
        """For every neighbour: which images have `gone` to it and, where it votes, what the last ones were (`z`, when
        they left and how many), the linear model, the chance of a random image, and one's own votes, due next time."""
        lanes, near, most = len(world.lanes), slots(world).most, self.images
        found = {"gone": torch.zeros(lanes, near, *world.train.rows.shape[1:], dtype=torch.bool)}
        if self.choose != "votes":
            return found
        size = world.model.read + len(world.bank.classes) + 2
        return found | {
            "z": torch.zeros(lanes, near, most, size),
            "left": torch.full((lanes, near, 3), -1),
            "gram": torch.zeros(lanes, near, size, size),
            "moment": torch.zeros(lanes, near, size),
            "chance": torch.ones(lanes, near),
            "votes": torch.zeros(lanes, near, most),
            "due": torch.full((lanes, near, 3), -1),
        }

    def ask(self, agent: Present) -> Draft | Mapping[int, Draft]:
        """Votes on the last delivery, or how many images of every class there are."""
        if self.choose == "coverage":
            return {"have": histogram(agent)}
        kept, votes = agent.kept, dict[int, Draft]()
        for other in agent.neighbours:
            slot = agent.slot(other)
            task, epoch, count = kept["due"][slot].tolist()
            if count > 0:
                vote = {"place": np.arange(count), "vote": kept["votes"][slot, :count].clone()}
                votes[other] = vote | {REPLIES: ("images", task, epoch)}
        return votes

    def answer(self, agent: Present, question: Received | None, to: int) -> Draft:
        """What a neighbour is expected to want most, of all that has not gone to it."""
        seen = agent.once("seen", lambda: seen_by(agent))
        chosen = self.chosen(agent, to, seen)
        own = seen.own
        letter = {"images": own.rows[chosen], "labels": own.labels[chosen]}
        return letter | {"task": own.task[chosen], "place": seen.place[chosen], "z": seen.z[chosen]}

    def chosen(self, agent: Present, to: int, seen: "Seen") -> np.ndarray:
        """Which of its own images an agent sends to a neighbour."""
        told, gone = agent.told.get(to), self.gone(agent, to, seen)
        free = np.flatnonzero(~gone)
        most = min(agent.fits("images", to), len(free))
        if self.choose == "votes":
            gram, moment, chance = self.fitted(agent, told, to)
            eye = torch.eye(len(moment), dtype=torch.float64)
            weights = torch.linalg.solve(gram.double() + self.ridge * eye, moment.double())
            # Before any vote: what was hard for oneself.
            scores = (seen.z.double() @ weights if bool(moment.any()) else seen.z[:, -2]).numpy()
            return greedy(scores, free, most, chance, agent.rng(to))
        if self.choose == "spread":
            return np.array(spread(seen.features, seen.features[gone], torch.from_numpy(~gone), most), np.int64)
        have = np.zeros(agent.every_class, np.int64) if told is None else told["have"].numpy()
        return class_by_class(seen.features, seen.own.labels, free, most, have if self.choose == "coverage" else None)

    def gone(self, agent: Present, to: int, seen: "Seen") -> np.ndarray:
        """Which images do not go to a neighbour: what has gone, what is of a class that may not go, and the second of
        two that are the same, for an image may be of two tasks. It is sent as one of them."""
        own, again = seen.own, np.ones(len(seen.place), bool)
        again[np.unique(own.rows, return_index=True)[1]] = False
        before = own.rows[agent.kept["gone"][agent.slot(to)].numpy()[own.task, seen.place]]
        known = np.unique(own.labels)
        may = known[agent.permitted("images", to, known)]
        return np.isin(own.rows, before) | again | ~np.isin(own.labels, may)

    def fitted(self, agent: Present, votes: Received | None, to: int) -> tuple[Tensor, Tensor, float]:
        """The sums of z z' and z v, and the chance of a random image, after the votes that have come; those on anything
        but what was last sent say nothing."""
        kept, slot = agent.kept, agent.slot(to)
        gram, moment, chance = kept["gram"][slot], kept["moment"][slot], float(kept["chance"][slot])
        task, epoch, count = kept["left"][slot].tolist()
        if votes is None or not votes.replies_to("images", task, epoch):
            return gram, moment, chance
        place = votes["place"].long()
        if not len(place) or int(place.max()) >= count:
            return gram, moment, chance
        z = kept["z"][slot, place]
        new = gram * self.forget + z.T @ z, moment * self.forget + z.T @ votes["vote"]
        return *new, max(self.least, chance * self.decay)

    def judge(self, agent: Present, letter: Received) -> str:
        """Images may have to help."""
        if self.accept == "all" or letter.kind != "images":
            return ""
        return "" if agent.helped_by(sorted_in(agent, [letter])) else NO_HELP

    def absorb(self, agent: Present, letters: Sequence[Received]) -> None:
        """Remember what has gone, keep every image in the buffers of all tasks so far that have its class, and vote."""
        kept, votes = self.remembered(agent), self.choose == "votes"
        before = marks(agent) if votes else set()
        surprises = [surprise(agent, letter) for letter in letters if votes]
        if letters:
            agent.receive(sorted_in(agent, letters), self.buffer, once=True)
        after = marks(agent) if votes else set()
        for letter, surprised in zip(letters, surprises, strict=False):
            names, slot = digests(letter["images"]), agent.slot(letter.sender)
            new, held = (torch.tensor([name in some for name in names]) for some in (before, after))
            kept["votes"][slot, : len(names)] = ~new * (held.float() if self.vote == "kept" else surprised)
            kept["due"][slot] = torch.tensor([*letter.clock, len(names)])
        agent.keep(**kept)

    def remembered(self, agent: Present) -> dict[str, Tensor]:
        """What is kept when it is noted what has left, and to whom."""
        kept = {name: tensor.clone() for name, tensor in agent.kept.items()}
        for other in agent.sent("votes"):
            kept["due"][agent.slot(other)] = -1
        for other, letter in agent.sent("images").items():
            slot, draft = agent.slot(other), letter.draft
            kept["gone"][slot, draft["task"], draft["place"]] = True
            if self.choose == "votes":
                kept["z"][slot, : letter.items] = draft["z"]
                kept["left"][slot] = torch.tensor([*agent.clock, letter.items])
        for other, votes in agent.told.items() if self.choose == "votes" else ():
            if other in agent.neighbours:
                slot, learned = agent.slot(other), self.fitted(agent, votes, other)
                kept["gram"][slot], kept["moment"][slot], kept["chance"][slot] = learned
        return kept


class Seen(NamedTuple):
    """A sender's own images as it describes them to itself."""

    own: Held
    place: np.ndarray  # [n]: where in the training set of its task each is
    features: Tensor  # [n, F], of length one
    z: Tensor  # [n, D]: features, class, loss and one


def seen_by(agent: Present) -> Seen:
    """An agent's own images, which are in the order of tasks, with all that its model of others reads of them."""
    own, place, features, losses = agent.held, [np.zeros(0, np.int64)], list[Tensor](), list[Tensor]()
    for at in np.unique(own.task).tolist():
        here, task = np.flatnonzero(own.task == at), agent.tasks[at]
        order = np.argsort(task.train, kind="stable")
        place.append(order[np.searchsorted(task.train[order], own.rows[here])])
        labels = torch.tensor([task.outputs.index(one) for one in own.labels[here].tolist()])
        features.append(F.normalize(agent.net.features(own.x[here], at)).cpu())
        losses.append(F.cross_entropy(agent.net.read(own.x[here], at).cpu(), labels, reduction="none"))
    classes = F.one_hot(torch.from_numpy(own.labels).long(), agent.every_class)
    read, loss = torch.cat(features), torch.cat(losses)
    z = torch.cat([read, classes, loss.clamp(max=HIGHEST)[:, None], torch.ones(len(loss), 1)], 1)
    return Seen(own, np.concatenate(place), read, z)


@torch.inference_mode()
def surprise(agent: Present, letter: Received) -> Tensor:
    """A receiver's votes [n] on images: how far its loss lies above those of its validation images, squeezed to 0..1;
    the most over tasks so far that have the class, 0 where none has."""
    labels = letter["labels"].numpy()
    votes = torch.zeros(len(labels))
    for at, task in enumerate(agent.tasks):
        here = np.flatnonzero(np.isin(labels, task.classes))
        if not len(here) or not len(task.validation):
            continue
        usual = F.cross_entropy(*agent.validated([at])[at], reduction="none")
        local = torch.tensor([task.outputs.index(one) for one in labels[here].tolist()], device=usual.device)
        logits = agent.net.read(agent.read(letter["images"][torch.from_numpy(here)]), at)
        far = (F.cross_entropy(logits, local, reduction="none") - usual.mean()) / usual.std(correction=0).clamp(
            min=1e-6
        )
        votes[here] = torch.maximum(votes[here], far.sigmoid().cpu())
    return votes


def counts(world: World) -> Expected:
    """What the numbers of images of all classes look like in a letter."""
    return Expected(torch.int32, (len(world.bank.classes),), MANY)
