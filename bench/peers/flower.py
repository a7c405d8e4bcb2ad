"""Flower: its strategy FedAvg in a plain loop over clients, in one process.

Its simulation engine, Ray, only adds to that: starting and feeding actors is not timed here. All clients send to the
server and start from what it returns, which is what averaging on a complete graph comes to.
"""

from typing import Any

import torch
from flwr.common import (  # type: ignore[import-not-found]
    Code,
    FitRes,
    Status,
    ndarrays_to_parameters,
    parameters_to_ndarrays,
)
from flwr.server.strategy import FedAvg  # type: ignore[import-not-found]
from torch.nn import functional as F

from bench.peers import work


class Client:
    """One agent."""

    def __init__(self, number: int) -> None:
        self.x, self.y = work.data(seed=number)
        self.net = work.layers()
        self.adam = torch.optim.Adam(self.net.parameters(), lr=work.RATE)

    def fit(self, parameters: Any) -> Any:
        """Five epochs from the server's weights."""
        with torch.no_grad():
            for own, given in zip(self.net.parameters(), parameters_to_ndarrays(parameters), strict=True):
                own.copy_(torch.from_numpy(given))
        self.net.train()
        for _ in range(work.EPOCHS):
            for rows in torch.randperm(len(self.x)).split(work.BATCH):
                self.adam.zero_grad()
                F.cross_entropy(self.net(self.x[rows]), self.y[rows]).backward()
                self.adam.step()
        return FitRes(Status(Code.OK, ""), self.weights(), len(self.x), {})

    def weights(self) -> Any:
        return ndarrays_to_parameters([one.detach().numpy() for one in self.net.parameters()])


def prepare(agents: int) -> work.Round:
    clients = [Client(number) for number in range(agents)]
    strategy, now, count = FedAvg(), clients[0].weights(), 0

    def one() -> int:
        nonlocal now, count
        count += 1
        results = [(None, client.fit(now)) for client in clients]
        now, _ = strategy.aggregate_fit(count, results, [])
        return work.STEPS * agents

    return one


if __name__ == "__main__":
    work.serve(prepare)
