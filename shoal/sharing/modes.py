"""The table of sharing modes, each imported when it is asked for: `shoal list sharing` does not wait for torch."""

from shoal.doors import Table, is_a
from shoal.sharing.contract import Sharing

BUILT_IN: dict[str, type[Sharing] | str] = {
    "recv": "shoal.sharing.recv:Recv",
    "simp": "shoal.sharing.simp:Simp",
    "uniform": "shoal.sharing.uniform:Uniform",
    "fedavg": "shoal.sharing.fedavg:FedAvg",
    "fedprox": "shoal.sharing.fedprox:FedProx",
    "fedcurv": "shoal.sharing.fedcurv:FedCurv",
    "fedfish": "shoal.sharing.fedfish:FedFish",
    "fedrep": "shoal.sharing.personal:FedRep",
    "ditto": "shoal.sharing.personal:Ditto",
    "tracking": "shoal.sharing.tracking:Tracking",
    "modmod": "shoal.sharing.modmod:ModMod",
    "push": "shoal.sharing.push:Push",
    "prototypes": "shoal.sharing.prototypes:Prototypes",
    "labels": "shoal.sharing.labels:Labels",
    "fedagem": "shoal.sharing.fedagem:FedAGEM",
    "masks": "shoal.sharing.masks:Masks",
    "heads": "shoal.sharing.heads:Heads",
    "fedweit": "shoal.sharing.fedweit:FedWeIT",
    "colla": "shoal.sharing.colla:CoLLA",
    "statistics": "shoal.sharing.statistics:Statistics",
}
MODES: Table[type[Sharing]] = Table("sharing mode", BUILT_IN, "shoal.modes", is_a(Sharing), also=("none",))
