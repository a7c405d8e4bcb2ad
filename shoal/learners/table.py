"""The table of learners."""

from shoal.doors import Table, is_a
from shoal.learners.contract import Learner
from shoal.learners.modular import Growth
from shoal.learners.replay import Replay

BUILT_IN: dict[str, type[Learner]] = {"replay": Replay, "modular": Growth}
LEARNERS: Table[type[Learner]] = Table("learner", BUILT_IN, "shoal.learners", is_a(Learner))


def usual(model: str) -> str:
    """The learner of a model where nobody says which."""
    return "modular" if model.startswith("modular-") else "replay"
