"""What all know of models that have left clipped and noised (shoal/mail/privacy.py): state of their senders."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from shoal.agents.world import World

OWNER = "privacy"


def begun(world: "World", params: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What lanes with these parameters remember before they send anything: what all know of them, and how many releases
    there have been."""
    if not world.fleet.privacy:
        return {}
    body = {f"known.{name}": params[name][:, :units].cpu().clone() for name, units in world.model.body.items()}
    return {"releases": torch.zeros(len(next(iter(params.values()))), dtype=torch.int64), **body}
