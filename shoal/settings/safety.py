"""Settings of agents that lie."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveFloat

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
