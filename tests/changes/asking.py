"""A mode that asks."""

from typing import ClassVar, Literal

import numpy as np

from shoal.letters.letter import Letter
from shoal.sharing.by_class import ByClass


class Wanted(ByClass):
    """Rows of the classes that a neighbour asks for."""

    both_ways: ClassVar[bool] = True
    mode: Literal["wanted"] = "wanted"
    images: int = 10

    @property
    def letters(self):
        asked = Letter({"classes": "classes"}, 10, ("questions",), "classes", share=2, leaves="rows", spare=1)
        return {"question": asked, "rows": Letter({"images": "rows", "labels": "classes"}, self.images, ("images",))}

    def ask(self, agent):
        return {"classes": np.array(agent.classes, np.int32)}

    def answer(self, agent, question, to):
        mine = np.flatnonzero(np.isin(agent.held.labels, question["classes"].numpy()))
        at = agent.rng(to).permutation(mine)
        return {"images": agent.held.rows[at], "labels": agent.held.labels[at]}
