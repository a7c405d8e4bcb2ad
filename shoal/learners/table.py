"""The table of learners."""

from shoal.doors import Table, is_a
from shoal.learners.contract import Learner
from shoal.learners.modular import Growth
from shoal.learners.none import Nothing
from shoal.learners.replay import Replay
from shoal.models.table import MODELS

BUILT_IN: dict[str, type[Learner] | str] = {
    "replay": Replay,
    "modular": Growth,
    "none": Nothing,
    "ewc": "shoal.learners.ewc:EWC",
    "lwf": "shoal.learners.lwf:LwF",
    "agem": "shoal.learners.agem:AGEM",
    "si": "shoal.learners.si:SI",
    "er": "shoal.learners.er:ER",
    "er-ace": "shoal.learners.erace:ERACE",
    "der": "shoal.learners.der:DER",
    "derpp": "shoal.learners.der:DERpp",
    "gdumb": "shoal.learners.gdumb:GDumb",
    "packnet": "shoal.learners.packnet:PackNet",
    "joint": "shoal.learners.joint:Joint",
    "frozen": "shoal.learners.frozen:Frozen",
    "decomposed": "shoal.learners.decomposed:Decomposed",
    "ella": "shoal.learners.ella:Ella",
    "analytic": "shoal.learners.analytic:Analytic",
}
LEARNERS: Table[type[Learner]] = Table("learner", BUILT_IN, "shoal.learners", is_a(Learner))


def usual(model: str) -> str:
    """The learner of a model where nobody says which."""
    return MODELS.find(model).learner
