"""FedAvg without a server: everybody averages with its neighbours."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from shoal.sharing.federated import Federated
from shoal.sharing.mode import Present, Received


class FedAvg(Federated):
    """Averaging with neighbours (McMahan et al. 2017, without the server)."""

    companion: ClassVar[str] = "shoal.sharing.batched.averaging"
    mode: Literal["fedavg"] = "fedavg"

    def absorb(self, agent: Present, letters: Sequence[Received]) -> None:  # type: ignore[override]
        """The mean over oneself and what has arrived."""
        agent.become(self.combined(agent, letters))
