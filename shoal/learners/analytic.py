"""Analytic learning: ridge regression from sums of all that was seen, so that nothing is forgotten, in one pass (as in
analytic class-incremental learning; Zhuang et al. 2022)."""

from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor

from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.agents.worlds import judged, units
from shoal.data.tasks import JOINT
from shoal.errors import SettingsError
from shoal.learners.contract import Learner
from shoal.learners.gram import length, packed, rebuilt, solved, squared, summed, total
from shoal.models import heads
from shoal.models.contract import Model
from shoal.models.ridge import Ridge
from shoal.models.table import ANALYTIC
from shoal.settings.groups import Settings

OWNER = "analytic"
HEARD = "statistics"  # the mode by which agents send each other such sums
DOUBLE = 8  # bytes


class Analytic(Learner):
    """Every row adds to a Gram matrix and to a sum for its class; weights are solved for from the sums of all tasks so
    far. There are no steps: an epoch is a round in which sums can spread (sharing statistics).

    *Source:* Zhuang et al. 2022.

    On model `ridge`: no net and no steps. Every row x, with a one behind it, adds xx' to a Gram matrix G and xy' to Q,
    y a one for its class, or numbers; the weights are those of ridge regression on all rows so far, λ = `ridge` times
    the mean of how much columns vary. The order of tasks does not matter, nothing is forgotten, no row is kept. Rows
    are read as they are, as a backbone makes them, or as relu of `net.projections` random projections that all agents
    of a seed have. Where agents scale rows each for itself, sums are in raw units and every column is held by its own
    variance. In double precision; G has D² / 2 numbers.

    *Costs:* D² / 2 numbers for the Gram matrix and D for each class; there are no steps.
    """

    teaches: ClassVar[str] = ANALYTIC
    earlier: ClassVar[bool] = False  # a task's rows count once
    method: Literal["analytic"] = "analytic"
    epochs: PositiveInt = Field(5, description="rounds per task in which sums can spread (sharing statistics)")
    memory: NonNegativeInt = Field(0, description="replay rows kept per finished task; it uses none")
    ridge: PositiveFloat = Field(
        0.01, description="how much weights are held back, as a share of how much columns vary"
    )

    def suits(self, settings: Settings) -> None:
        super().suits(settings)
        if settings.tasks.classes == 1 and settings.tasks.heads == "task":
            raise SettingsError(
                'the learner `analytic` fits numbers of all tasks together, and tasks.heads = "task" wants a fit for '
                'each; say tasks.heads = "one"'
            )
        for mode in settings.sharing:
            if mode.mode != HEARD and mode.door == mode.mode:  # one of shoal's own
                raise SettingsError(
                    f"the learner `analytic` keeps sums of what it has seen, and has no use for what mode "
                    f'`{mode.mode}` sends; share by "statistics", or use another model'
                )

    def holds(self, settings: Settings, model: Model) -> int:
        """Bytes of the sums of an agent, of those that others can send it, and of a matrix while it is solved."""
        if not isinstance(model, Ridge):
            return 0
        size, columns = model.read + 1, max(model.outputs, model.tasks * model.outputs)
        own = (1 + settings.tasks.common) * (length(size) + size * columns)
        sent = sum(getattr(mode, "numbers_of", lambda *_: 0)(size, columns) for mode in settings.sharing)
        return DOUBLE * (own + settings.agents * sent)

    def init(self, world: World) -> dict[str, Tensor]:
        """Sums over the agent's own rows and, where all begin with the same tasks, over those, as the last part; how
        many rows are in them, and which tasks."""
        model, lanes, parts = solving(world), len(world.lanes), 1 + world.settings.tasks.common
        size = model.read + 1

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(lanes, parts, *shape, dtype=torch.float64, device=world.device)

        return {
            "gram": zeros(length(size)),
            "cross": zeros(size, columns(world)),
            "seen": torch.zeros(lanes, parts, dtype=torch.int64),
            "met": torch.zeros(lanes, world.settings.tasks.count, dtype=torch.bool),
        }

    def epoch(self, world: World, stack: Stack, epoch: int) -> None:
        """In the first epoch of a task its rows are added, and all heads solved for."""
        first = world.settings.tasks.initial
        for row in range(len(stack.lanes)):
            news = False
            for task in range(first) if stack.task < first else [stack.task]:
                if not stack.of(self.owner)["met"][row, task] and task < int(world.ends[row]):
                    self.meet(world, stack, row, task)
                    news = True
            if news:
                refit(world, stack, row)

    def meet(self, world: World, stack: Stack, row: int, task: int) -> None:
        """Add the rows of a task of a lane."""
        state, size = stack.of(self.owner), int(world.train.sizes[row, task])
        part = -1 if stack.lanes[row].agent == JOINT else 0
        rows, labels = world.train.rows[row, task, :size], world.train.labels[row, task, :size]
        x, y = raw(world, row, world.inputs[rows]), aims(world, row, task, labels)
        gram, cross = summed(x, y)
        state["gram"][row, part] += gram
        state["cross"][row, part] += cross
        state["seen"][row, part] += size
        state["met"][row, task] = True


def solving(world: World) -> Ridge:
    """The model of lanes that learn by it."""
    assert isinstance(world.model, Ridge), f"`{world.settings.model}` is not solved for"
    return world.model


def columns(world: World) -> int:
    """How many sums there are beside the Gram matrix: one for each class, or each place of one head's, or number."""
    if world.bank.targets is not None:
        return int(world.bank.targets.shape[1])
    return solving(world).outputs if placed(world) else len(world.bank.classes)


def placed(world: World) -> bool:
    """Do outputs stand for places in a task, whatever class is there?"""
    return world.settings.tasks.heads == "one" and not world.named


def stands(world: World, row: int, task: int) -> list[int]:
    """The column of each output of a task's head."""
    if world.bank.targets is not None or placed(world):
        return list(range(columns(world)))
    return list(world.streams[row][task].outputs)


def scale_of(world: World, row: int) -> tuple[Tensor, Tensor] | None:
    """By how much a lane moves and stretches each number of a row, if it does."""
    scale = world.scales[row]
    if scale is None or scale.how != "standard":
        return None
    shape = world.bank.images.shape[1:]
    shift, spread = (np.broadcast_to(one, shape).reshape(-1).copy() for one in (scale.shift, scale.spread))
    return torch.from_numpy(shift).to(world.device), torch.from_numpy(spread).to(world.device)


def raw(world: World, row: int, x: Tensor) -> Tensor:
    """Rows as they were before their agent has scaled them: what agents have in common."""
    scale = scale_of(world, row)
    return x if scale is None else x.double() * scale[1] + scale[0]


def aims(world: World, row: int, task: int, labels: Tensor) -> Tensor:
    """What rows should predict, [n, C]: a one for their class, or numbers in units that agents have in common."""
    if world.bank.targets is not None:
        shift, spread = (torch.from_numpy(one).to(labels.device) for one in units_of(world, row))
        return labels.double() * spread + shift
    at = torch.tensor(stands(world, row, task), device=labels.device)[labels]
    return torch.nn.functional.one_hot(at, columns(world)).double()


def units_of(world: World, row: int) -> tuple[np.ndarray, np.ndarray]:
    return units(world.bank, judged(world.settings, world.streams[row]))


def refit(world: World, stack: Stack, row: int) -> None:
    """Solve for the heads of a lane, from its own sums and from those that others have sent."""
    learner = world.settings.learner
    assert isinstance(learner, Analytic)
    weights = solved(*pooled(world, stack, row), learner.ridge, world.bank.scale == "standard")
    scale = scale_of(world, row)
    if scale is not None:
        shift, spread = scale
        weights[-1] += shift @ weights[:-1]
        weights[:-1] *= spread[:, None]
    if world.bank.targets is not None:
        shift, spread = (torch.from_numpy(one).to(weights.device) for one in units_of(world, row))
        weights[-1] -= shift
        weights /= spread
    weight, bias = (stack.params[name][row] for name in heads.NAMES)
    met = stack.of(OWNER)["met"][row]
    for task in range(len(weight)):
        if len(weight) > 1 and not met[task]:
            continue  # which classes will come, nobody knows
        at = stands(world, row, task)
        weight[task, : len(at)] = weights[:-1, at].T.float()
        bias[task, : len(at)] = weights[-1, at].float()
    stack.moved[row] = True


def pooled(world: World, stack: Stack, row: int) -> tuple[Tensor, Tensor]:
    """The Gram matrix and the cross products of all rows that a lane has seen or been told of: those that all began
    with first, then agent by agent, so that all who know the same come to the same bits."""
    state, lane, size = stack.of(OWNER), stack.lanes[row], solving(world).read + 1
    told: dict[str, Any] = {name: one[row] for name, one in stack.of(HEARD).items()} if HEARD in stack.states else {}
    versions = told["version"].tolist() if told else []
    parts = []
    if state["gram"].shape[1] > 1:
        parts.append((state["gram"][row, 1], state["cross"][row, 1]))
    for agent in range(max(len(versions), lane.agent + 1)) if lane.agent != JOINT else ():
        if agent == lane.agent:
            parts.append((state["gram"][row, 0], state["cross"][row, 0]))
        elif versions and versions[agent]:
            one = {name: tensor[agent] for name, tensor in told.items()}
            parts.append((triangle_of(one), one["cross"].double()))
    triangle, cross = total(parts)
    return squared(triangle, size), cross


def triangle_of(part: dict[str, Tensor]) -> Tensor:
    """The triangle of the Gram matrix that an agent has sent, whole or cut."""
    return part["gram"].double() if "gram" in part else packed(rebuilt(part, float(part["version"])))
