"""What groups of settings are made of."""

import json
from collections.abc import Callable, Iterator
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict

from shoal.errors import SettingsError
from shoal.units import BUDGETS, duration, plain, rate


class Part(BaseModel):
    """A frozen group of settings that accepts no key it does not know."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


HOOKS = ("penalty", "pull", "bends", "rests")  # what learners and modes name in their `additions`


def named(cls: type, base: type) -> None:
    """Raise if a learner or a mode of one's own has a function that steps once asked for, and names it nowhere: it
    would never be called."""
    said = [name for name in HOOKS if name in vars(cls)]
    if said and cls.additions is base.additions:  # type: ignore[attr-defined]
        raise SettingsError(
            f"`{cls.__name__}` has `{said[0]}`, but no `additions` that name it, so no step would ask for it; add "
            "`additions`, which returns what it adds to every step (shoal/learners/additions.py)"
        )


def spoken(value: Any) -> Any:
    """A group of settings made in Python as what was said when it was made: the rest is still to be filled."""
    if isinstance(value, Part):
        return {name: getattr(value, name) for name in value.model_fields_set}
    return value


def budget(value: Any) -> Any:
    """A budget as it is kept (`shoal.units.plain`), or why it cannot be one."""
    if isinstance(value, bool) or not isinstance(value, int | str | None):
        raise ValueError(f"cannot be {value!r}; allowed: {BUDGETS}")
    try:
        return None if value is None else plain(value)
    except SettingsError as error:
        raise ValueError(str(error).removeprefix("a budget ")) from None


Budget = Annotated[int | str, BeforeValidator(budget)]  # floats per exchange, "20 kB", "20 kB/task" or "unlimited"


def per_second(value: Any) -> Any:
    """What a link carries in a second, in bytes, or why that cannot be."""
    return value if value is None else measured(rate, value)


def lasting(value: Any) -> Any:
    """A time in seconds, or why it cannot be one."""
    return value if value is None else measured(duration, value)


def measured(read: Callable[[float | str], float], value: Any) -> float:
    try:
        return read(value)
    except SettingsError as error:
        raise ValueError(str(error)) from None


Rate = Annotated[float, BeforeValidator(per_second)]  # bytes per second; "1 Mbit/s", "50 kB/s"
Duration = Annotated[float, BeforeValidator(lasting)]  # seconds; "20 ms"


def flatten(content: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Settings as `tasks.count`, `10`; those of a mode as `sharing.recv.every`."""
    if isinstance(content, dict):
        for name, value in content.items():
            yield from flatten(value, f"{path}.{name}" if path else name)
    elif path == "sharing" and isinstance(content, list):
        for mode in content:
            yield from flatten(mode, f"sharing.{mode['mode']}")
    else:
        yield path, content if isinstance(content, str) else json.dumps(content)
