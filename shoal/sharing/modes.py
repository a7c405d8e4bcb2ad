"""The table of sharing modes."""

from shoal.doors import Table, is_a
from shoal.sharing.contract import Sharing
from shoal.sharing.federated import FedAvg, FedCurv, FedFish, FedProx
from shoal.sharing.modmod import ModMod
from shoal.sharing.recv import Recv
from shoal.sharing.simp import Simp
from shoal.sharing.uniform import Uniform

BUILT_IN: dict[str, type[Sharing]] = {
    "recv": Recv,
    "simp": Simp,
    "uniform": Uniform,
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "fedcurv": FedCurv,
    "fedfish": FedFish,
    "modmod": ModMod,
}
MODES: Table[type[Sharing]] = Table("sharing mode", BUILT_IN, "shoal.modes", is_a(Sharing), also=("none",))
