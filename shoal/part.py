"""What groups of settings are made of."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, NonNegativeInt


class Part(BaseModel):
    """A frozen group of settings that accepts no key it does not know."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


Budget = NonNegativeInt | Literal["unlimited"]
