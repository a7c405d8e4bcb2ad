"""Settings of agents that lie."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveFloat

from shoal.errors import SettingsError
from shoal.settings.part import Part


def tables(value: Any) -> Any:
    """One table, or a list of them."""
    if isinstance(value, (dict, Part)):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


def as_tuple(value: Any) -> Any:
    """TOML and JSON have lists only."""
    return tuple(value) if isinstance(value, list) else value


Agents = Annotated[tuple[NonNegativeInt, ...], BeforeValidator(as_tuple)]


class Fault(Part):
    """Agents that lie in what they send. What they learn themselves stays honest."""

    agents: Agents = Field(min_length=1, description="a list of agents, counted from 0")
    does: str = Field(description="how they lie: see `shoal list lies`")
    strength: PositiveFloat | None = Field(None, description="how strongly; `shoal list lies` says what it multiplies")


Faults = Annotated[tuple[Fault, ...], BeforeValidator(tables)]


def check(faulty: Sequence[Fault], agents: int) -> None:
    """Raise if liars are none of the agents, or lie in several ways."""
    from shoal.mail.lies import LIES

    for at, fault in enumerate(faulty):
        for agent in fault.agents:
            if agent >= agents:
                raise SettingsError(
                    f"`faulty[{at}]` names agent {agent}, but there are {agents}, counted from 0; name others"
                )
        LIES.find(fault.does)
    liars = [agent for one in faulty for agent in one.agents]
    for agent in liars:
        if liars.count(agent) > 1:
            raise SettingsError(f"agent {agent} is in `faulty` {liars.count(agent)} times; an agent lies in one way")
