"""EWC (Kirkpatrick et al. 2017, arXiv:1612.00796), and its online form (Schwarz et al. 2018, arXiv:1805.06370)."""

from typing import ClassVar, Literal

import torch
from pydantic import Field, NonNegativeFloat, PositiveInt
from torch import Tensor

from shoal.agents.engine import parted
from shoal.agents.stack import MODEL, Stack
from shoal.agents.world import World
from shoal.learners.additions import Addition, common_units, once_kept, penalised, tangent
from shoal.learners.contract import Learner
from shoal.learners.step import Frame, Tensors
from shoal.models import heads
from shoal.models.table import REPLAY
from shoal.rng import key

TOGETHER = 64  # images whose slopes are held at once


class EWC(Learner):
    """Elastic weight consolidation: weights that mattered to earlier tasks are held where they were.

    *Source:* Kirkpatrick et al. 2017; online: Schwarz et al. 2018.

    Loss + (strength / 2) Σ F (w − w₀)²; F is the mean over images of Σ_c p(c|x) (∂ log p(c|x) / ∂w)², or of the true
    label's term alone (`labels`). Strengths cannot be copied between libraries: some write the penalty without the
    half.

    *Costs:* two numbers for each weight that all tasks use, and a sum over them in every step.
    """

    teaches: ClassVar[str] = REPLAY
    method: Literal["ewc"] = "ewc"
    strength: NonNegativeFloat = Field(100.0, description="how hard weights are held; choose it on validation data")
    online: bool = Field(False, description="one anchor, the weights after the last task, or one for each task")
    decay: float = Field(1.0, ge=0, le=1, description="how much of F is kept from task to task (online)")
    samples: PositiveInt = Field(64, description="training rows of a task that F is measured on")
    labels: Literal["every", "true"] = Field(
        "every", description="the sum over all classes, or the term of the true one alone"
    )

    @property
    def needs(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("classes",) if self.labels == "true" else ()

    def end(self, world: World, stack: Stack) -> None:
        """Note what mattered to the task, or to each of the initial tasks, and where it was."""
        state, initial = stack.of(self.owner), world.settings.tasks.initial
        tasks = range(initial) if stack.task == initial - 1 else [stack.task]
        found = [[self.importance(world, stack, row, task) for task in tasks] for row in range(len(stack.lanes))]
        for name, units in common_units(world).items():
            now = stack.params[name][:, :units]
            new = torch.stack([sum((one[name] for one in lane), torch.zeros_like(now[0])) for lane in found])
            before, moment = (state.get(f"{word}.{name}", torch.zeros_like(now)) for word in ("sum", "moment"))
            state[f"sum.{name}"] = total = (self.decay * before if self.online else before) + new
            state[f"moment.{name}"] = total * now if self.online else moment + new * now

    def importance(self, world: World, stack: Stack, row: int, task: int) -> Tensors:
        """How much the weights of one lane that all tasks use matter to one of its tasks."""
        model, lane = world.model, stack.lanes[row]
        at = key(*lane, "ewc", task).permutation(int(world.train.sizes[row, task]))[: self.samples]
        here = torch.from_numpy(at).to(world.device)
        x, y = world.inputs[world.train.rows[row, task, here]], world.train.labels[row, task, here]
        fixed = {name: tensor[row] for name, tensor in stack.params.items()}
        known, usage = heads.parted(
            parted(world.usage(stack.of(MODEL), task), [1] * len(stack.lanes), single=True)[row]
        )
        numbers = world.bank.targets is not None

        def logs(free: Tensors, image: Tensor) -> Tensor:
            found = heads.closed(model.logits(fixed | free, image[None], task, **usage), known, task)[0]
            return found if numbers else found.log_softmax(0)

        free = {name: fixed[name] for name in common_units(world)}
        total = {name: torch.zeros_like(tensor) for name, tensor in free.items()}
        for part, label in zip(x.split(TOGETHER), y.split(TOGETHER), strict=True):  # none, if its stream has ended
            if not len(part):
                break
            slopes = torch.func.vmap(torch.func.jacrev(logs), in_dims=(None, 0))(free, part)
            said = torch.func.vmap(logs, in_dims=(None, 0))(free, part)  # [n, classes]
            chance = torch.ones_like(said) if numbers else said.exp()
            if self.labels == "true":
                chance = chance * torch.nn.functional.one_hot(label, said.shape[1])
            for name, one in slopes.items():
                total[name] += torch.einsum("nc,nc...->...", chance, one.square()) / len(x)
        return total

    def additions(self) -> tuple[Addition, ...]:
        return (penalised(self.owner, once_kept(self.owner), self.penalty, self.pull),)

    def penalty(self, frame: Frame) -> Tensor:
        """One agent's strength/2 times the sum of F (w - w_before)^2, as its tangent: a step needs no more."""
        return tangent(frame, self.pull(frame))

    def pull(self, frame: Frame) -> Tensors:
        found = {}
        for name, value in frame.free.items():
            if f"sum.{name}" in frame.state:
                slope = frame.state[f"sum.{name}"] * value - frame.state[f"moment.{name}"]
                found[name] = self.strength * slope
        return found
