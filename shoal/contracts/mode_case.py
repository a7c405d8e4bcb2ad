"""Modes under test: small fleets that share, and the runs that several laws ask for."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.contracts.fleets import Run, difference, fleet, ran, settings_of, shared_only
from shoal.contracts.law import law
from shoal.data.tasks import Lane
from shoal.errors import SettingsError
from shoal.letters.ledger import COLUMNS
from shoal.letters.mail import ACCEPTED, TOO_MUCH
from shoal.models.table import MODELS
from shoal.sharing.contract import Sharing
from shoal.sharing.modes import MODES

# Two components, and agent 4 alone; of the second seed the first component.
PAIRS = ((0, 1), (1, 0), (2, 3), (3, 2))
FIRST, SECOND, LONELY = (Lane(0, 0), Lane(0, 1)), (Lane(1, 0), Lane(1, 1)), Lane(0, 4)
LANES = (*FIRST, Lane(0, 2), Lane(0, 3), LONELY, *SECOND)
# Three stacks whose agents differ in nothing; every edge goes from one stack to another.
KINDS = ({"name": "odd", "agents": [3, 1]}, {"name": "zero", "agents": [0]})


def made_of(mode: str | type[Sharing] | Sharing) -> Sharing:
    """A mode as it acts in a small fleet: as given, or by its own example."""
    if isinstance(mode, Sharing):
        return mode
    kind = MODES.find(mode) if isinstance(mode, str) else mode
    return kind.model_validate(dict(kind.example))


def model_of(modes: Sequence[Sharing]) -> str:
    """The first model that all modes suit."""
    models = suited(modes)
    if not models:
        settings_of(next(iter(MODELS)), sharing=modes)  # says why not
    return models[0]


def suited(modes: Sequence[Sharing]) -> list[str]:
    """The models that all modes suit."""
    return [model for model in MODELS if serves(model, modes)]


def serves(model: str, modes: Sequence[Sharing]) -> bool:
    try:
        settings_of(model, sharing=tuple(modes))
    except SettingsError:
        return False
    return True


@dataclass
class Case:
    """Modes under test, in fleets of one model, and the runs that several laws ask for."""

    what: str
    modes: tuple[Sharing, ...]
    model: str
    runs: dict[str, Run] = field(default_factory=dict)

    @property
    def owners(self) -> tuple[str, ...]:
        return tuple(one.owner for one in self.modes)

    def small(self, lanes: Sequence[Lane], shared: bool = True, **changes: Any) -> World:
        """A fleet that exchanges several times after its first task."""
        return fleet(self.model, lanes, **self.raw(shared, **changes))

    def raw(self, shared: bool = True, **changes: Any) -> dict[str, Any]:
        sharing = self.modes if shared else ()
        return {"agents": 5, "seeds": 2, "network": edges(PAIRS), "sharing": sharing, **changes}

    @cached_property
    def all(self) -> Run:
        """All lanes, sharing."""
        return ran(self.small(LANES))

    @cached_property
    def alone(self) -> Run:
        """All lanes, each alone."""
        return ran(self.small(LANES, shared=False))

    @cached_property
    def first(self) -> Run:
        """Two agents, sharing, and nobody else."""
        return ran(self.small(FIRST))

    def limited(self, budget: int | str) -> Run:
        """The same with such a budget on every edge."""
        return ran(self.small(FIRST, network=edges(PAIRS, budget=budget)))

    def flowed(self, stack: Stack, where: str) -> None:
        """Mail of every mode has been accepted: a law about mail says nothing where there is none."""
        accepted = stack.ledger.among("verdict", [ACCEPTED])
        for one in self.modes:
            mine = stack.ledger.among("mode", [one.mode])
            verdicts = sorted(set(stack.ledger.column("verdict")[mine].tolist()))
            law(
                TOO_MUCH not in verdicts,
                f"`{one.mode}`: a quote is an upper bound, but mail was refused {where} as more than `quote` names; "
                "let it name every kind of mail, and the most items and floats that one can have",
            )
            law(
                bool((accepted & mine).any()),
                f"`{one.mode}`: no mail was accepted {where}{refused(verdicts)}, so there is nothing to test; give it "
                "an `example` with which it acts within four epochs and two tasks",
            )

    def same(self, one: Stack, other: Stack, sentence: str, ledger: bool = True) -> None:
        name = difference(one, other)
        law(not name, f"{self.what}: {sentence}, but `{name}` differs")
        if ledger:
            law(rows(one) == rows(other), f"{self.what}: {sentence}, but the ledger differs")

    def as_alone(self, stack: Stack, lanes: Sequence[Lane], sentence: str) -> None:
        mine = stack.take([stack.lanes.index(lane) for lane in lanes], lanes)
        name = difference(mine, self.alone.rows(lanes), shared_only(self.owners))
        law(not name, f"{self.what}: {sentence}, but `{name}` differs")


def refused(verdicts: Sequence[str]) -> str:
    """What became of mail, if there was any."""
    return f" (all was refused: {', '.join(verdicts)})" if verdicts else ""


def edges(pairs: Sequence[tuple[int, int]], **limits: Any) -> dict[str, Any]:
    return {"graph": "edges", "edges": [{"sender": a, "receiver": b, **limits} for a, b in pairs]}


def rows(stack: Stack, lanes: Sequence[Lane] | None = None) -> list[tuple[Any, ...]]:
    """The ledger, or what some lanes have sent, with words."""
    columns = {name: stack.ledger.column(name).tolist() for name in COLUMNS}
    senders = list(zip(columns["seed"], columns["sender"], strict=True))
    found = list(zip(*columns.values(), strict=True))
    return [row for row, sender in zip(found, senders, strict=True) if lanes is None or sender in lanes]
