"""FedAvg without a server: everybody averages with its neighbours."""

from collections.abc import Sequence
from typing import Literal

from shoal.letters.mail import Mail
from shoal.mail.post import Post
from shoal.sharing.arrived import combined
from shoal.sharing.body import write_all
from shoal.sharing.federated import Federated


class FedAvg(Federated):
    """Averaging with neighbours (McMahan et al. 2017, without the server)."""

    mode: Literal["fedavg"] = "fedavg"

    def absorb(self, post: Post, questions: Sequence[Mail], answers: Sequence[Mail]) -> None:
        """The mean over oneself and what has arrived."""
        rows, mean = combined(post, questions, answers)
        write_all(post.stack, rows, mean)
