"""PowerGossip (Vogels et al. 2020): two neighbours find out in which direction their weights differ most, and close the
gap along it.

Both keep the same direction for each matrix. In turn they send X Q and X' P: the differences of the two products are a
step of the power method on X_j - X_i, which neither has seen. A pair that loses a mail goes on with it later: what is
sent for a step is sent again, as it was, until the other is seen to have it, so that both always go by the same.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from shoal.agents.slots import slots
from shoal.agents.world import World
from shoal.learners.step import Tensors
from shoal.models.contract import Model, body_shapes, body_units
from shoal.rng import key
from shoal.sharing.compress import Compressing, suited
from shoal.sharing.mixing import Gap, told
from shoal.sharing.mode import Present, Received

KEPT = ("step", "lags", "left", "now", "before", "way.")  # what directions are kept under
LEAST = 1e-12  # a direction that is shorter is none


def lengths(mode: Compressing, model: Model) -> tuple[int, int]:
    """How many numbers a mail of an even and of an odd step has."""
    units, matrix = body_units(model), suited(model, mode)
    vectors = sum(shape[0] if shape else 1 for name, shape in body_shapes(model).items() if name not in matrix)
    return (
        units * (vectors + sum(rows * mode.rank for rows, _ in matrix.values())),
        units * (vectors + sum(columns * mode.rank for _, columns in matrix.values())),
    )


def orthonormal(matrix: Tensor) -> Tensor:
    """Columns of unit length at right angles, [..., n, r], by Gram-Schmidt in double precision."""
    columns: list[Tensor] = []
    for column in matrix.double().unbind(-1):
        for other in columns:
            column = column - (other * column).sum(-1, keepdim=True) * other
        columns.append(column / column.square().sum(-1, keepdim=True).sqrt().clamp(min=LEAST))
    return torch.stack(columns, -1).float()


class Pair:
    """An agent and one of its neighbours, and what it keeps for it."""

    def __init__(self, mode: Compressing, agent: Present, kept: Mapping[str, Tensor], other: int) -> None:
        self.mode, self.agent, self.other, self.model = mode, agent, other, agent.model
        self.kept = {name: tensor[agent.slot(other)] for name, tensor in kept.items() if name.startswith(KEPT)}
        self.matrix = suited(agent.model, mode)

    @property
    def step(self) -> int:
        """The step that comes next."""
        return int(self.kept["step"])

    def fresh(self, name: str, step: int) -> Tensor:
        """A random direction, the same at both ends."""
        ends = sorted((self.agent.number, self.other))
        units, side = body_units(self.model), self.matrix[name][1 - step % 2]
        rng = key(self.agent.seed, *ends, self.mode.mode, "direction", step, name)
        return orthonormal(torch.from_numpy(rng.standard_normal((units, side, self.mode.rank))))

    def direction(self, name: str) -> Tensor:
        """[U, columns or rows, rank]: the direction of the step that comes next."""
        if not self.step:
            return self.fresh(name, 0)
        return self.kept[f"way.{name}"][:, : self.matrix[name][1 - self.step % 2]].clone()

    def product(self, weights: Tensors) -> Tensor:
        """What is sent for the step that comes next."""
        parts = []
        for name, own in weights.items():
            # A copy, because how a product is summed depends on where its numbers begin.
            own = own.cpu().clone()
            if name in self.matrix:
                own = own.flatten(2)
                own = (own if self.step % 2 == 0 else own.mT.contiguous()) @ self.direction(name)
            parts.append(own.flatten())
        return torch.cat(parts)

    def letter(self, weights: Tensors) -> dict[str, Tensor]:
        """What is sent now: what the other lacks of the step before, or what the next one needs."""
        step = self.step
        if self.kept["lags"]:
            low, which = self.kept["before"], step - 1
        else:
            low, which = (self.kept["now"] if self.kept["left"] else self.product(weights)), step
        size = lengths(self.mode, self.model)[which % 2]
        return {"low": low[:size].clone(), "step": torch.tensor([which, step], dtype=torch.int32)}

    def gone(self, payload: Mapping[str, Tensor]) -> bool:
        """What is sent for a step stays as it is. Was it for the step that comes next?"""
        now = int(payload["step"][0]) == self.step
        if now:
            self.kept["now"][: len(payload["low"])] = payload["low"]
            self.kept["left"].fill_(True)
        self.kept["lags"].fill_(False)
        return now

    def came(self, payload: Mapping[str, Tensor], new: bool) -> Tensors | None:
        """The gap to the other along the direction of a step that is complete now; None: it is not. One that is still
        at the step before, although what was sent now is `new` to it, lacks something."""
        which, theirs = payload["step"].tolist()
        self.kept["lags"].fill_(new and theirs < self.step)
        if which != self.step or not self.kept["left"]:
            return None
        model, low, mine = self.model, payload["low"], self.kept["now"]
        if len(low) != lengths(self.mode, model)[which % 2]:
            return None
        sign = 1 if self.agent.number < self.other else -1
        found, ways, first = {}, {}, 0
        for name, units in model.body.items():
            shape = body_shapes(model)[name]
            if name not in self.matrix:
                size = units * (shape[0] if shape else 1)
                gap = low[first : first + size].double() - mine[first : first + size].double()
                found[name] = gap.view(units, *shape)
                first += size
                continue
            side = self.matrix[name][which % 2]
            size = units * side * self.mode.rank
            gap = sign * (low[first : first + size].double() - mine[first : first + size].double())
            gap, way = gap.view(units, side, self.mode.rank), self.direction(name).double()
            found[name] = sign * (gap @ way.mT if which % 2 == 0 else way @ gap.mT).view(units, *shape)
            ways[name] = gap
            first += size
        self.advance(ways)
        return found

    def advance(self, ways: Tensors) -> None:
        """Go on to the next step; where the two do not differ, in a new direction."""
        step = self.step + 1
        for name, gap in ways.items():
            way = orthonormal(gap)
            none = gap.square().sum((1, 2)) <= LEAST
            way[none] = self.fresh(name, step)[none]
            self.kept[f"way.{name}"][:, : way.shape[1]] = way
        self.kept["before"].copy_(self.kept["now"])
        self.kept["left"].fill_(False)
        self.kept["step"].fill_(step)


def directions(mode: Compressing, world: World) -> dict[str, Tensor]:
    """What lanes keep for each neighbour, [L, slots, ...]: the `step` that comes next, whether the neighbour `lags`
    behind, what was sent for this step (`now`; has it `left`?) and the one `before`, and directions."""
    lanes, most, most_numbers = len(world.lanes), slots(world).most, max(lengths(mode, world.model))
    found = {
        "step": torch.zeros(lanes, most, dtype=torch.int64),
        "lags": torch.zeros(lanes, most, dtype=torch.bool),
        "left": torch.zeros(lanes, most, dtype=torch.bool),
        "now": torch.zeros(lanes, most, most_numbers),
        "before": torch.zeros(lanes, most, most_numbers),
    }
    for name, shape in suited(world.model, mode).items():
        found[f"way.{name}"] = torch.zeros(lanes, most, body_units(world.model), max(shape), mode.rank)
    return found


def low_gaps(mode: Compressing, agent: Present, letters: Sequence[Received]) -> list[Gap]:
    """Write down what has left and come, and give the gaps of steps that are complete."""
    kept, count = agent.kept, body_units(agent.model)
    gone = {other: Pair(mode, agent, kept, other).gone(sent.tensors) for other, sent in agent.sent("model").items()}
    found = []
    for letter in sorted(letters, key=lambda one: (one.sender, one.clock)):
        values = Pair(mode, agent, kept, letter.sender).came(letter.tensors, gone.get(letter.sender, False))
        if values is not None:
            found.append(Gap(letter.sender, torch.arange(count), values, told(letter.tensors)))
    return found
