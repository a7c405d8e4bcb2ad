"""Statistics: agents pass on sums of what they have seen, each under the name of whose rows they are, until all have
all."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, NonNegativeInt, PositiveInt
from torch import Tensor

from shoal.agents.world import World
from shoal.errors import SettingsError
from shoal.learners.analytic import OWNER, columns, refit, solving
from shoal.learners.gram import cut, length
from shoal.letters.letter import Letter
from shoal.letters.mail import ACCEPTED, OUT_OF_RANGE, TOO_LARGE, Expected
from shoal.models.families import family
from shoal.models.table import ANALYTIC
from shoal.settings.groups import Settings
from shoal.sharing.body import LARGEST
from shoal.sharing.contract import Late
from shoal.sharing.mode import Draft, Mode, Present, Received

ROWS = 10**12  # nobody has seen more
LARGE = 1e30  # no number that is sent is larger


class Statistics(Mode):
    """Exact pooling of ridge regression over any graph: sums per agent, the newest of each, passed on by all.

    For learner `analytic`.

    *Source:* analytic federated learning (AFCL; arXiv 2505.12245), which has a server; on a graph a sum of sums would
    count twice, so sums go under the name of whose rows they are, with how many.

    *Formula:* everybody asks by how many rows of each agent it knows, and is sent (agent, rows, G, Q) of those of whom
    it knows fewer; more rows take the place of fewer; W follows from the sum over agents, in their order.

    *Law:* on a connected graph, once sums have reached everybody, all agents have the same bits, and the weights of all
    rows together up to rounding, whatever order, partition, graph, loss and stops (`tests/sharing/test_statistics.py`).

    *Price:* for D numbers and C columns (D + 1)(D + 2) / 2 + (D + 1) C of 8 bytes for each agent that is new to a
    neighbour.

    *Dials:* `precision = "single"`; `eigenvectors = r` sends the r leading eigenvectors, the diagonal of the rest and
    the mean; fewer `net.projections`; `every`, `start`.

    *Beware:* what an agent says of another is believed if it is not far larger than the receiver's own: nobody signs.
    """

    between: ClassVar[str] = "agents of model ridge with the same net.projections, whose links lead both ways"
    both_ways: ClassVar[bool] = True
    late: ClassVar[Mapping[str, Late]] = {"statistics": "all"}
    mode: Literal["statistics"] = "statistics"
    every: PositiveInt = Field(1, description="epochs between rounds")
    when: Literal["after"] = Field("after", description="exchange after every so many epochs")
    eigenvectors: NonNegativeInt = Field(
        0,
        description="send so many leading eigenvectors and the diagonal of the rest instead of a whole Gram matrix; 0: "
        "all of it",
    )
    precision: Literal["double", "single"] = Field(
        "double", description="numbers of 8 bytes, with which all come to what one would come to alone, or of 4"
    )

    def suits(self, settings: Settings) -> None:
        if family(settings) != ANALYTIC:
            raise SettingsError(
                f"mode `statistics` sends sums from which heads are solved for, and `{settings.model}` has none; use "
                'model = "ridge", or share by another mode'
            )

    def fits(self, sender: Settings, receiver: Settings) -> bool:
        """Only what reads rows alike adds up."""
        return super().fits(sender, receiver) and sender.net.shape == receiver.net.shape

    @property
    def dtype(self) -> torch.dtype:
        return torch.float64 if self.precision == "double" else torch.float32

    def shapes(self, size: int, columns: int) -> dict[str, tuple[int, ...]]:
        """What is sent of one agent."""
        wide = size - 1
        rank = min(self.eigenvectors, wide)
        whole: dict[str, tuple[int, ...]] = {"gram": (length(size),)}
        narrow: dict[str, tuple[int, ...]] = {"vectors": (rank, wide), "values": (rank,), "rest": (wide,)}
        return {"cross": (size, columns)} | (narrow | {"mean": (wide,)} if rank else whole)

    def numbers_of(self, size: int, columns: int) -> int:
        """How many numbers that are."""
        return sum(torch.Size(shape).numel() for shape in self.shapes(size, columns).values())

    def init(self, world: World) -> dict[str, Tensor]:
        """What was heard of every agent of the fleet last, as it was sent, and of how many of its rows."""
        place = len(world.lanes), world.fleet.agents
        shapes = self.shapes(solving(world).read + 1, columns(world))
        kept = {
            name: torch.zeros(*place, *shape, dtype=self.dtype, device=world.device) for name, shape in shapes.items()
        }
        return {"version": torch.zeros(place, dtype=torch.int64), **kept}

    @property
    def letters(self) -> Mapping[str, Letter]:
        """A question, which is small, leaves all other room to the answer."""
        versions: dict[str, Any] = {
            "version": lambda world: Expected(torch.int64, (world.fleet.agents,), below=ROWS),
        }
        told: dict[str, Any] = {
            "agent": lambda world: Expected(torch.int32, (None,), below=world.fleet.agents),
            "version": Expected(torch.int64, (None,), below=ROWS),
        }
        for name in self.shapes(2, 1):
            told[name] = self.expected(name)
        return {
            "question": Letter(versions, 1, ("questions",), alike=True),
            "statistics": Letter(told, others, ("prototypes",), least=1),
        }

    def expected(self, name: str) -> "Callable[[World], Expected]":
        """What sums under a name look like to a receiver."""
        least = 0.0 if name in ("values", "rest") else -LARGE

        def look(world: World) -> Expected:
            shape = self.shapes(solving(world).read + 1, columns(world))[name]
            return Expected(self.dtype, (None, *shape), least=least, most=LARGE)

        return look

    def ask(self, agent: Present) -> Draft:
        """Of how many rows of each agent it knows."""
        return {"version": self.known(agent)}

    def known(self, agent: Present) -> Tensor:
        found = agent.kept["version"].clone()
        found[agent.number] = agent.state_of(OWNER)["seen"][0]
        return found

    def answer(self, agent: Present, question: Received | None, to: int) -> Draft | None:
        """The sums of those of whom it knows more rows, those with most news first."""
        assert question is not None
        known = self.known(agent)
        news = known - question["version"]
        news[to] = 0
        order = [one for one in news.argsort(descending=True, stable=True).tolist() if news[one] > 0]
        if not order:
            return None
        kept = agent.kept
        own = self.own(agent) if agent.number in order else {}
        told = {
            name: torch.stack([own[name] if one == agent.number else kept[name][one] for one in order])
            for name in kept
            if name != "version"
        }
        return {"agent": torch.tensor(order), "version": known[order], **told}

    def own(self, agent: Present) -> dict[str, Tensor]:
        """The sums over its own rows, as they are sent."""

        def find() -> dict[str, Tensor]:
            state = agent.state_of(OWNER)
            gram, cross = state["gram"][0], state["cross"][0]
            size = len(cross)
            rank = min(self.eigenvectors, size - 1)
            told = {"cross": cross, **(cut(gram, size, rank) if rank else {"gram": gram})}
            return {name: one.to(self.dtype) for name, one in told.items()}

        return agent.once("own sums", find)

    def judge(self, agent: Present, letter: Received) -> str:
        """Nobody is told of twice, nobody has seen no rows, squares are not below zero, and rows are not far larger
        than the receiver's own."""
        if letter.kind == "question":
            return ACCEPTED
        names, counts = letter["agent"], letter["version"]
        if len(names) != len(names.unique()) or bool((counts < 1).any()):
            return OUT_OF_RANGE
        size = agent.state_of(OWNER)["cross"].shape[1]
        squares = self.squares(letter, size)
        if bool((squares < 0).any()):
            return OUT_OF_RANGE
        own, seen = agent.state_of(OWNER)["gram"].sum(0), int(agent.state_of(OWNER)["seen"].sum())
        if not seen:
            return ACCEPTED
        usual = float(own[diagonal(size)].sum() / seen)
        return TOO_LARGE if bool((squares.sum(1) / counts > LARGEST**2 * usual).any()) else ACCEPTED

    def squares(self, letter: Received, size: int) -> Tensor:
        """The sums of squares of columns, [n, D], in double precision."""
        if "gram" in letter:
            return letter["gram"][:, diagonal(size)].double()
        told = (letter[name].double() for name in ("vectors", "values", "rest", "mean"))
        vectors, values, rest, mean = told
        return (values[:, :, None] * vectors.square()).sum(1) + rest + letter["version"][:, None] * mean.square()

    def absorb(self, agent: Present, letters: Sequence[Received]) -> None:
        """Put newer sums in the place of older ones, and solve anew."""
        kept = agent.kept
        now, news = {name: one.clone() for name, one in kept.items()}, False
        for letter in sorted(letters, key=lambda one: one.sender):
            for at, one in enumerate(letter["agent"].tolist()):
                if one != agent.number and letter["version"][at] > now["version"][one]:
                    for name in now:
                        now[name][one] = letter[name][at]
                    news = True
        if news:
            agent.keep(**now)
            refit(agent._world, agent._stack, agent._row)


def others(world: World) -> int:
    """How many agents one can be told of at most."""
    return max(1, world.fleet.agents - 1)


def diagonal(size: int) -> Tensor:
    """Where the diagonal of a square matrix lies in its triangle."""
    rows = torch.arange(size)
    return rows * size - rows * (rows - 1) // 2
