"""ELLA: tasks are fitted one by one in closed form, and every fit makes the dictionary better (Ruvolo & Eaton 2013)."""

from typing import ClassVar, Literal

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor

from shoal.agents.stack import Stack, grid
from shoal.agents.world import World
from shoal.data.tasks import JOINT
from shoal.errors import SettingsError
from shoal.learners.closed import linear, logistic, posed, sparse
from shoal.learners.contract import Learner
from shoal.models.contract import Model
from shoal.models.factor import CODES, DICTIONARY, Factor
from shoal.models.table import CLOSED
from shoal.rng import key
from shoal.settings.groups import Settings

OWNER = "ella"
DEAD = 1e-10  # an atom of a squared length below is drawn again
ALIKE = 0.01  # atoms are, if some direction of theirs is so much shorter than the longest
DOUBLE = 8  # bytes


class Ella(Learner):
    """A task is fitted by itself, its predictor written as a few atoms of the agent's dictionary, and the dictionary
    solved again for all tasks so far. There are no steps: an epoch is a round in which agents can agree.

    *Source:* Ruvolo & Eaton 2013.

    On model `factor`: no net and no steps. A task is fitted by itself, θ by ridge logistic regression (more than two
    classes: one against the rest) or ridge regression, with Γ half the Hessian over n; its code s = argmin (θ − Ls)'Γ(θ
    − Ls) + `sparse` |s|₁; then A += ss' ⊗ Γ, b += s ⊗ Γθ, vec(L) = (A/T + `decay` I)⁻¹ b/T, in double precision. It
    predicts with Ls, with new codes whenever L has changed (`again`). L has `net.basis` atoms, and `net.private` more
    that are never shared.

    *Changed:* atoms begin as the fits of the first tasks only with a common start, else as random ones in which fits
    are coded for as long as some atoms are nearly sums of others; Newton's steps are halved where they go too far; a
    task with one class is not fitted. A is (D · atoms)² numbers: for rows of up to some hundred.

    *Costs:* (D · atoms)² numbers, and D² for every fit; there are no steps.
    """

    teaches: ClassVar[str] = CLOSED
    serves: ClassVar[tuple[str, ...]] = ("task",)
    earlier: ClassVar[bool] = False  # what a task has learned stays as it is
    method: Literal["ella"] = "ella"
    epochs: PositiveInt = Field(20, description="rounds of agreement on the dictionary per task (sharing colla)")
    ridge: PositiveFloat = Field(0.1, description="how much the fit of a single task is held back")
    sparse: NonNegativeFloat = Field(4.54e-5, description="what an atom costs in a code: few are used if it is dear")
    decay: PositiveFloat = Field(4.54e-5, description="how much the dictionary is held back")
    again: bool = Field(True, description="do tasks get new codes when the dictionary has changed?")

    def suits(self, settings: Settings) -> None:
        super().suits(settings)
        for mode in settings.sharing:
            if mode.mode != "colla" and mode.door == mode.mode:  # one of shoal's own
                raise SettingsError(
                    f"the learner `ella` fits a task once, in closed form, and has no use for what mode `{mode.mode}` "
                    'sends; share by "colla", or use another model'
                )

    def holds(self, settings: Settings, model: Model) -> int:
        """Bytes of what it and who agrees on it keep for an agent: two matrices over the dictionary, and a weight for
        each fit."""
        if not isinstance(model, Factor):
            return 0
        atoms = (model.inputs * model.read) ** 2 * (1 + len(settings.sharing))
        return DOUBLE * (atoms + model.tasks * model.coded * model.inputs**2)

    def init(self, world: World) -> dict[str, Tensor]:
        """The fits `theta` of all tasks, what deviations from them cost (`weight`), and which there are; over all of
        them, the normal equations of the dictionary; and how many atoms began as fits."""
        model = factored(world)
        lanes, fits = len(world.lanes), (model.tasks, model.coded)
        size = model.inputs * model.read

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(lanes, *shape, dtype=torch.float64, device=world.device)

        return {
            "theta": zeros(*fits, model.inputs),
            "weight": zeros(*fits, model.inputs, model.inputs),
            "fitted": torch.zeros(lanes, *fits, dtype=torch.bool, device=world.device),
            "met": torch.zeros(lanes, model.tasks, dtype=torch.bool),
            "gram": zeros(size, size),
            "target": zeros(size),
            "count": torch.zeros(lanes, dtype=torch.int64),
            "begun": torch.zeros(lanes, dtype=torch.int64),
        }

    def epoch(self, world: World, stack: Stack, epoch: int) -> None:
        """In the first epoch of a task, the fit; new codes where accuracy will be measured."""
        first = world.settings.tasks.initial
        for row in range(len(stack.lanes)):
            for task in range(first) if stack.task < first else [stack.task]:
                if not stack.of(self.owner)["met"][row, task] and task < int(world.ends[row]):
                    self.meet(world, stack, row, task)
        if epoch + 1 in grid(self.epochs):
            self.code(world, stack)

    def end(self, world: World, stack: Stack) -> None:
        self.code(world, stack)

    def meet(self, world: World, stack: Stack, row: int, task: int) -> None:
        """Fit a task of a lane, write the fits in the dictionary as it is, and solve that anew."""
        model, state, lane = factored(world), stack.of(self.owner), stack.lanes[row]
        atoms, codes = stack.params[DICTIONARY][row], stack.params[CODES][row, task]
        start = self.drawn(model, lane.seed, 0).to(atoms)  # all agents of a seed begin with the same atoms
        if not state["met"][row].any():
            atoms[:] = start
        state["met"][row, task] = True
        size = int(world.train.sizes[row, task])
        rows, labels = world.train.rows[row, task, :size], world.train.labels[row, task, :size]
        x = model.rows(world.inputs[rows])
        for output in range(model.coded):
            y = labels[:, output] if model.numeric else labels == (1 if model.coded < model.outputs else output)
            if not model.numeric and bool((y == y[0]).all()):
                continue  # there is nothing to tell apart
            theta, weight = (linear if model.numeric else logistic)(x, y.double(), self.ridge)
            state["theta"][row, task, output], state["weight"][row, task, output] = theta, weight
            state["fitted"][row, task, output] = True
            begun = int(state["begun"][row])
            if lane.agent == JOINT and begun < model.shared:  # what all have in common from then on
                atoms[begun] = theta
                codes[output] = torch.nn.functional.one_hot(torch.tensor(begun), model.read)
                state["begun"][row] += 1
            else:
                # Fewer fits than atoms, of the agent and of those it has agreed with, leave some atoms alike, and codes
                # in such atoms are huge.
                gram, target = posed(start if not begun and alike(atoms) else atoms, theta[None], weight[None])
                codes[output] = sparse(gram, target, self.sparse)[0]
            code = codes[output]
            state["gram"][row] += torch.kron(torch.outer(code, code), weight)
            state["target"][row] += torch.kron(code, weight @ theta)
            state["count"][row] += 1
        if state["count"][row]:
            found = self.solved(state["gram"][row], state["target"][row], int(state["count"][row]))
            atoms[:] = found.view_as(atoms)
            dead = atoms.square().sum(1) < DEAD
            atoms[dead] = self.drawn(model, lane.seed, task + 1).to(atoms)[dead]

    def drawn(self, model: Factor, seed: int, task: int) -> Tensor:
        """Random atoms [k, D], the same for all agents of a seed."""
        return torch.from_numpy(key(seed, "atoms", task).normal(size=(model.read, model.inputs)))

    def solved(self, gram: Tensor, target: Tensor, count: int) -> Tensor:
        """The atoms that fit all codes so far best, one after the other."""
        matrix = gram / count
        matrix.diagonal().add_(self.decay)
        return torch.cholesky_solve((target / count)[:, None], torch.linalg.cholesky(matrix))[:, 0]

    def code(self, world: World, stack: Stack) -> None:
        """New codes for all fits of all lanes, by the dictionary as it is."""
        state, codes = stack.of(self.owner), stack.params[CODES]
        if not self.again or not state["fitted"].any():
            return
        stack.moved[:] = True
        grams, targets = [], []
        for row in range(len(stack.lanes)):
            told = state["theta"][row].flatten(0, 1), state["weight"][row].flatten(0, 1)
            gram, target = posed(stack.params[DICTIONARY][row], *told)
            grams.append(gram)
            targets.append(target)
        there = state["fitted"].flatten()
        codes[state["fitted"]] = sparse(torch.cat(grams)[there], torch.cat(targets)[there], self.sparse)


def alike(atoms: Tensor) -> bool:
    """Are some atoms of a dictionary [k, D] nearly sums of others?"""
    lengths = torch.linalg.svdvals(atoms)
    return bool(lengths[-1] < ALIKE * lengths[0])


def factored(world: World) -> Factor:
    """The model of lanes that learn by it."""
    assert isinstance(world.model, Factor), f"`{world.settings.model}` has no dictionary"
    return world.model
