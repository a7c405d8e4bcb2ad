"""Uniform: everybody sends random images of its own, unasked: the control for modes that choose."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, PositiveInt

from shoal.letters.letter import Letter
from shoal.sharing.by_class import ByClass
from shoal.sharing.contract import Late
from shoal.sharing.mode import Draft, Present, Received


class Uniform(ByClass):
    """Random images, unasked.

    The control for modes that choose: everybody sends `images` (b = 100) random ones of its own; kept as with `simp`,
    in buffers of 32.

    *Source:* ours.

    *Price:* b(p + 1): 78,500 on MNIST, every 16 epochs.
    """

    late: ClassVar[Mapping[str, Late]] = {"images": "all"}
    example: ClassVar[Mapping[str, Any]] = {"every": 2, "images": 10, "memory": 12}
    mode: Literal["uniform"] = "uniform"
    images: PositiveInt = Field(100, description="rows sent to every neighbour (Recv's 20 queries return 100)")

    @property
    def letters(self) -> Mapping[str, Letter]:
        return {"images": Letter({"images": "rows", "labels": "classes"}, self.images, ("images",), "labels")}

    def answer(self, agent: Present, question: Received | None, to: int) -> Draft:
        """Random images of its own, others for each neighbour."""
        at = agent.rng(to).permutation(len(agent.held.rows))
        return {"images": agent.held.rows[at], "labels": agent.held.labels[at]}
