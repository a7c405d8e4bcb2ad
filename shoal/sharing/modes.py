"""The table of sharing modes."""

from shoal.doors import Table, is_a
from shoal.sharing.colla import CoLLA
from shoal.sharing.contract import Sharing
from shoal.sharing.fedagem import FedAGEM
from shoal.sharing.fedavg import FedAvg
from shoal.sharing.fedcurv import FedCurv
from shoal.sharing.fedfish import FedFish
from shoal.sharing.fedprox import FedProx
from shoal.sharing.fedweit import FedWeIT
from shoal.sharing.heads import Heads
from shoal.sharing.labels import Labels
from shoal.sharing.masks import Masks
from shoal.sharing.modmod import ModMod
from shoal.sharing.personal import Ditto, FedRep
from shoal.sharing.prototypes import Prototypes
from shoal.sharing.push import Push
from shoal.sharing.recv import Recv
from shoal.sharing.simp import Simp
from shoal.sharing.tracking import Tracking
from shoal.sharing.uniform import Uniform

BUILT_IN: dict[str, type[Sharing]] = {
    "recv": Recv,
    "simp": Simp,
    "uniform": Uniform,
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "fedcurv": FedCurv,
    "fedfish": FedFish,
    "fedrep": FedRep,
    "ditto": Ditto,
    "tracking": Tracking,
    "modmod": ModMod,
    "push": Push,
    "prototypes": Prototypes,
    "labels": Labels,
    "fedagem": FedAGEM,
    "masks": Masks,
    "heads": Heads,
    "fedweit": FedWeIT,
    "colla": CoLLA,
}
MODES: Table[type[Sharing]] = Table("sharing mode", BUILT_IN, "shoal.modes", is_a(Sharing), also=("none",))
