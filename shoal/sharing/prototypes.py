"""Prototypes: agents share the mean features of their classes, and learn features near them (FedProto; Tan et al. 2022,
without the server)."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field, NonNegativeFloat, PositiveInt
from torch import Tensor

from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.learners.additions import Addition, penalised
from shoal.learners.step import Frame, Part
from shoal.letters.letter import Letter
from shoal.letters.mail import ACCEPTED, OUT_OF_RANGE, TOO_LARGE, Expected
from shoal.models.families import block_of
from shoal.settings.groups import Settings
from shoal.sharing.body import LARGEST, size
from shoal.sharing.images import classes_only
from shoal.sharing.mode import Draft, Mode, Present, Received


class Prototypes(Mode):
    """Sharing of mean features, one for each class and exchange: cheap if exchanges are rare; also between other nets.

    *Source:* FedProto (Tan et al. 2022).

    *Formula:* everybody sends the mean p_c of what its head reads over its own images of class c; loss + `strength` ·
    mean over images of |f(x) − p(y)|²/F, p the mean over itself and all that told of the class; classes that nobody
    else told of do not pull.

    *Price:* F + 1 for each class and exchange.

    *Between:* nets of the same blocks, width and depth, modular or not; without a common start the pull only
    regularises.
    """

    between: ClassVar[str] = "agents of the same blocks, net.width and net.depth, modular or not"
    writes_weights: ClassVar[bool] = False
    parallel: ClassVar[bool] = True
    example: ClassVar[Mapping[str, Any]] = {"every": 2}
    mode: Literal["prototypes"] = "prototypes"
    every: PositiveInt = Field(5, description="epochs between exchanges")
    when: Literal["before", "after"] = Field("before", description="exchange before or after every so many epochs")
    strength: NonNegativeFloat = Field(1.0, description="how much the distance from prototypes counts")

    def suits(self, settings: Settings) -> None:
        classes_only(self, settings, "prototypes")

    def fits(self, sender: Settings, receiver: Settings) -> bool:
        """Only features that are as many can be compared."""
        return super().fits(sender, receiver) and read_by(sender) == read_by(receiver)

    def init(self, world: World) -> dict[str, Tensor]:
        """The prototypes of classes, whether each has one from others, and which class every output stands for."""
        lanes, classes = len(world.lanes), len(world.bank.classes)
        tasks, outputs = world.open.shape[1:]
        stands = torch.zeros(lanes, tasks, outputs, dtype=torch.int64)
        for row, stream in enumerate(world.streams):
            for at, task in enumerate(stream):
                stands[row, at, : len(task.outputs)] = torch.tensor(task.outputs, dtype=torch.int64)
        return {
            "mean": torch.zeros(lanes, classes, world.model.read, device=world.device),
            "on": torch.zeros(lanes, classes, device=world.device),
            "stands": stands.to(world.device),
        }

    @property
    def letters(self) -> Mapping[str, Letter]:
        fields: dict[str, Any] = {
            "classes": "classes",
            "mean": lambda world: Expected(torch.float32, (None, world.model.read)),
        }
        return {"prototypes": Letter(fields, classes_in, ("prototypes",), "classes", least=1)}

    def answer(self, agent: Present, question: Received | None, to: int) -> Draft:
        """The prototypes of all its classes, those of its current task first."""
        classes, means = own_prototypes(agent)
        return {"classes": classes, "mean": means}

    def judge(self, agent: Present, letter: Received) -> str:
        """Nobody sends a class twice, or features far larger than the receiver's own."""
        if not 0 < len(letter["classes"]) == len(letter["classes"].unique()):
            return OUT_OF_RANGE
        most = LARGEST * max(1.0, float(size({"": own_prototypes(agent)[1][None]})))
        return TOO_LARGE if float(size({"": letter["mean"][None]})) > most else ACCEPTED

    def absorb(self, agent: Present, letters: Sequence[Received]) -> None:
        """For every class that somebody has told of, the mean over itself and all that have."""
        if not letters:
            return
        total = torch.zeros(agent.kept["mean"].shape, dtype=torch.float64)
        heard = torch.zeros(len(total))
        for letter in sorted(letters, key=lambda one: one.sender):
            at = letter["classes"].long()
            total[at] += letter["mean"]
            heard[at] += 1
        theirs = heard > 0
        mine, means = own_prototypes(agent)
        total[mine] += means
        heard[mine] += 1
        agent.keep(mean=(total / heard.clamp(min=1)[:, None]).float(), on=theirs.float())

    def additions(self) -> tuple[Addition, ...]:
        return (penalised(self.owner, self.acts, self.penalty),)

    def acts(self, world: World, stack: Stack, parts: Mapping[str, Part]) -> bool:
        return bool(stack.of(self.owner)["on"].any())

    def penalty(self, frame: Frame) -> Tensor:
        """One agent's mean over images of the squared distance of features from the prototype of the class."""
        batch, state = frame.batch, frame.state
        features = frame.model.features(frame.params, batch.x, batch.task, training=True, **frame.usage)
        known = state["stands"][batch.task, batch.y]
        far = (features - state["mean"][known]).square().mean(1)
        counts = batch.weight * state["on"][known]
        found: Tensor = self.strength * (far * counts).sum() / batch.weight.sum().clamp(min=1)
        return found


def classes_in(world: World) -> int:
    """How many classes an agent can know at most."""
    tasks = world.settings.tasks
    return min(tasks.classes * tasks.count, len(world.bank.classes))


def read_by(settings: Settings) -> tuple[str, int, int]:
    """What two agents whose heads read features of one shape have in common."""
    return block_of(settings), settings.net.width, settings.net.depth


def own_prototypes(agent: Present) -> tuple[np.ndarray, Tensor]:
    """The classes of an agent, those of its current task first, and the mean features of its own images of each,
    [n, F]."""

    @torch.inference_mode()
    def find() -> tuple[np.ndarray, Tensor]:
        own = agent.held
        features = torch.zeros(len(own.rows), agent.kept["mean"].shape[1])
        for task in np.unique(own.task).tolist():
            here = np.flatnonzero(own.task == task)
            features[here] = agent.net.features(own.x[here], task).cpu()
        now = set(own.labels[own.task == agent.task].tolist())
        classes = sorted(set(own.labels.tolist()), key=lambda one: (one not in now, one))
        means = [features[own.labels == one].mean(0) for one in classes]
        return np.array(classes, np.int64), torch.stack(means) if means else features[:0]

    return agent.once("prototypes", find)
