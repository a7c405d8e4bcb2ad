"""Conditions: what links and agents are like on a bad day. Links lose mail, deliver it late, or are down; agents are
absent, join late, or leave."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveFloat, ValidationError, model_validator

from shoal.settings.part import Part

LOSSES = (
    "a number from 0 to 1, or bursts: {share = 0.2, length = 5} for links that are bad a fifth of the time, 5 epochs "
    "on average, where `bad` and `good` say how much they lose then and otherwise (1 and 0)"
)
DELAYS = (
    "a whole number of epochs from 0, {least = 1, most = 4} for any of these with equal chance, or {mean = 2.5} for a "
    "geometric draw with that mean"
)
INTERVALS = "a list of intervals in epochs since the first task, each from an epoch to a later one: [[100, 150]]"
Interval = tuple[int, int]  # from an epoch since the first task to another, which is no longer part of it


class Bursts(Part):
    """Loss by a chain of good and bad times (Gilbert 1960, Elliott 1963), one for each direction of a link."""

    share: float = Field(gt=0, lt=1, description="the share of time that is bad")
    length: float = Field(ge=1, description="how many epochs a bad time lasts, on average")
    bad: float = Field(1.0, ge=0, le=1, description="the chance of loss in bad times")
    good: float = Field(0.0, ge=0, le=1, description="the chance of loss in good times")

    @model_validator(mode="after")
    def possible(self) -> "Bursts":
        if self.worsens > 1:
            least = self.share / (1 - self.share)
            raise ValueError(f"with share = {self.share:g}, bad times must last {least:g} epochs or more on average")
        return self

    @property
    def mends(self) -> float:
        """The chance that a bad epoch is followed by a good one."""
        return 1 / self.length

    @property
    def worsens(self) -> float:
        """The chance that a good epoch is followed by a bad one."""
        return self.share / (1 - self.share) / self.length


class Drawn(Part):
    """A delay that is drawn anew for every exchange: any whole number between two, or geometric."""

    least: NonNegativeInt = Field(0, description="epochs, at least")
    most: NonNegativeInt | None = Field(None, description="epochs, at most; all between have the same chance")
    mean: PositiveFloat | None = Field(None, description="epochs beyond `least` on average, drawn geometrically")

    @model_validator(mode="after")
    def possible(self) -> "Drawn":
        if (self.most is None) == (self.mean is None):
            raise ValueError("a drawn delay has either `most` or `mean`")
        if self.most is not None and self.most < self.least:
            raise ValueError(f"`most` = {self.most} is less than `least` = {self.least}")
        return self


def told(kind: type[Part], value: Any, allowed: str) -> Part:
    """A table of settings, or one sentence about why it cannot be."""
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        why = first["ctx"]["error"] if first["type"] == "value_error" else f"allowed: {allowed}"
        raise ValueError(f"cannot be {value!r}; {why}") from None


def loss(value: Any) -> Any:
    """A loss as it is kept, or why it cannot be one."""
    if value is None or isinstance(value, Bursts):
        return value
    if isinstance(value, dict):
        return told(Bursts, value, LOSSES)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise ValueError(f"cannot be {value!r}; allowed: {LOSSES}")
    return float(value)


def delay(value: Any) -> Any:
    """A delay as it is kept, or why it cannot be one."""
    if value is None or isinstance(value, Drawn):
        return value
    if isinstance(value, dict):
        return told(Drawn, value, DELAYS)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"cannot be {value!r}; allowed: {DELAYS}")
    return value


def intervals(value: Any) -> Any:
    """Intervals as they are kept, sorted, or why they cannot be."""
    if value is None:
        return None
    found = []
    for one in value if isinstance(value, (list, tuple)) else [value]:
        ends = tuple(one) if isinstance(one, (list, tuple)) else ()
        if len(ends) != 2 or not all(type(end) is int and end >= 0 for end in ends):
            raise ValueError(f"cannot be {value!r}; allowed: {INTERVALS}")
        if ends[1] <= ends[0]:
            raise ValueError(
                f"cannot have the interval {list(ends)}, which ends before it begins or at once; allowed: {INTERVALS}"
            )
        found.append(ends)
    return tuple(sorted(found))


def numbers(value: Any) -> Any:
    """Numbers of agents or tasks; TOML and JSON have lists only, and one is as good as a list of one."""
    return tuple(value) if isinstance(value, list) else (value,) if isinstance(value, int) else value


Loss = Annotated[float | Bursts, BeforeValidator(loss)]
Delay = Annotated[int | Drawn, BeforeValidator(delay)]
Intervals = Annotated[tuple[Interval, ...], BeforeValidator(intervals)]
Numbers = Annotated[tuple[NonNegativeInt, ...], BeforeValidator(numbers)]


class Absence(Part):
    """Agents that are absent for whole tasks, or for some epochs."""

    agents: Numbers = Field(min_length=1, description="a list of agents, counted from 0")
    tasks: Numbers = Field((), description="a list of tasks that they miss, counted from 0")
    epochs: Intervals = Field((), description=INTERVALS)

    @model_validator(mode="after")
    def possible(self) -> "Absence":
        if not self.tasks and not self.epochs:
            raise ValueError("an absence has `tasks` or `epochs`")
        return self


class Turn(Part):
    """Agents that join or leave at a time."""

    agents: Numbers = Field(min_length=1, description="a list of agents, counted from 0")
    task: NonNegativeInt | None = Field(None, description="before this task, counted from 0")
    epoch: NonNegativeInt | None = Field(None, description="or at this epoch since the first task")

    @model_validator(mode="after")
    def possible(self) -> "Turn":
        if (self.task is None) == (self.epoch is None):
            raise ValueError("agents join and leave before a `task` or at an `epoch`: say one of the two")
        return self

    def at(self, epochs: int) -> int:
        """The moment, where a task has so many epochs."""
        return self.task * epochs if self.task is not None else self.epoch or 0


ABSENCES = "a list such as [{agents = [1, 2], tasks = [5]}, {agents = [3], epochs = [[250, 300]]}]"
TURNS = "a list such as [{agents = [7], task = 5}, {agents = [6], epoch = 620}]"


def absences(value: Any) -> Any:
    return listed(Absence, value, ABSENCES)


def turns(value: Any) -> Any:
    return listed(Turn, value, TURNS)


def listed(kind: type[Part], value: Any, allowed: str) -> Any:
    """A list of tables; one alone is as good."""
    several = value if isinstance(value, (list, tuple)) else [value]
    if not all(isinstance(one, (dict, kind)) for one in several):
        raise ValueError(f"cannot be {value!r}; allowed: {allowed}")
    return tuple(one if isinstance(one, kind) else told(kind, one, allowed) for one in several)


class Presence(Part):
    """Which agents are there when. One that is absent neither trains nor sends nor receives, and its stream passes."""

    absent: Annotated[tuple[Absence, ...], BeforeValidator(absences)] = Field(
        (), description=f"agents that miss tasks or epochs: {ABSENCES}"
    )
    joins: Annotated[tuple[Turn, ...], BeforeValidator(turns)] = Field(
        (), description=f"agents that are there from a time on: {TURNS}"
    )
    leaves: Annotated[tuple[Turn, ...], BeforeValidator(turns)] = Field(
        (), description=f"agents that are there until a time: {TURNS}"
    )
    mail: Literal["lost", "waits"] = Field(
        "lost",
        description="mail for an agent that is absent is lost, or waits until it is back; the sender pays in any case",
    )

    @property
    def named(self) -> tuple[tuple[str, Absence | Turn], ...]:
        """Everything that is said of agents, with the setting that says it."""
        groups = ("absent", self.absent), ("joins", self.joins), ("leaves", self.leaves)
        return tuple((f"presence.{name}", one) for name, several in groups for one in several)

    def away(self, epochs: int) -> dict[int, tuple[Interval, ...]]:
        """When each agent is absent, if it ever is, where a task has so many epochs."""
        found: dict[int, list[Interval]] = {}
        for one in self.absent:
            gaps = [(task * epochs, (task + 1) * epochs) for task in one.tasks] + list(one.epochs)
            for agent in one.agents:
                found.setdefault(agent, []).extend(gaps)
        for turn in self.joins:
            for agent in turn.agents:
                found.setdefault(agent, []).append((0, turn.at(epochs)))
        for turn in self.leaves:
            for agent in turn.agents:
                found.setdefault(agent, []).append((turn.at(epochs), NEVER))
        return {agent: joined(gaps) for agent, gaps in found.items() if joined(gaps)}


NEVER = 2**40  # an epoch that never comes


def joined(gaps: list[Interval]) -> tuple[Interval, ...]:
    """The same intervals, sorted and without overlap."""
    found: list[Interval] = []
    for first, last in sorted(gap for gap in gaps if gap[0] < gap[1]):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(last, found[-1][1])
        else:
            found.append((first, last))
    return tuple(found)
