"""GossiPy: push gossip on a ring. In a round every node sends its model to one neighbour, which merges it with its own
and then trains for five epochs."""

import contextlib
import io

import numpy as np
import torch

from bench.peers import work

work.declare_missing()

from gossipy.core import (  # type: ignore[import-not-found] # noqa: E402
    AntiEntropyProtocol,
    ConstantDelay,
    CreateModelMode,
    StaticP2PNetwork,
)
from gossipy.data import DataDispatcher  # type: ignore[import-not-found] # noqa: E402
from gossipy.data.handler import ClassificationDataHandler  # type: ignore[import-not-found] # noqa: E402
from gossipy.model import TorchModel  # type: ignore[import-not-found] # noqa: E402
from gossipy.model.handler import TorchModelHandler  # type: ignore[import-not-found] # noqa: E402
from gossipy.node import GossipNode  # type: ignore[import-not-found] # noqa: E402
from gossipy.simul import GossipSimulator  # type: ignore[import-not-found] # noqa: E402


class Net(TorchModel):  # type: ignore[misc]
    """The net of one agent."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = work.layers()

    def init_weights(self) -> None:
        """They are drawn when it is made."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.layers(x)
        return found


def ring(agents: int) -> np.ndarray:
    """Who is whose neighbour."""
    found = np.zeros((agents, agents), int)
    for agent in range(agents):
        found[agent, (agent + 1) % agents] = found[(agent + 1) % agents, agent] = 1
    return found


def prepare(agents: int) -> work.Round:
    x, y = (torch.cat(parts) for parts in zip(*(work.data(seed=one) for one in range(agents)), strict=True))
    handler = ClassificationDataHandler(x, y, test_size=0)
    dispatcher = DataDispatcher(handler, n=agents, eval_on_user=False, auto_assign=False)
    own = torch.arange(len(x)).split(work.IMAGES)
    dispatcher.set_assignments([one.tolist() for one in own], None)
    proto = TorchModelHandler(
        net=Net(),
        optimizer=torch.optim.Adam,
        optimizer_params={"lr": work.RATE},
        criterion=torch.nn.functional.cross_entropy,
        local_epochs=work.EPOCHS,
        batch_size=work.BATCH,
        create_model_mode=CreateModelMode.MERGE_UPDATE,
    )
    nodes = GossipNode.generate(
        data_dispatcher=dispatcher,
        p2p_net=StaticP2PNetwork(agents, ring(agents)),
        model_proto=proto,
        round_len=10,
        sync=True,
    )
    simulator = GossipSimulator(
        nodes=nodes,
        data_dispatcher=dispatcher,
        delta=10,
        protocol=AntiEntropyProtocol.PUSH,
        delay=ConstantDelay(0),
    )

    def quietly(call: object, *arguments: int) -> None:
        """It draws a progress bar."""
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            call(*arguments)  # type: ignore[operator]

    quietly(simulator.init_nodes)

    def one() -> int:
        before = updates(nodes)
        quietly(simulator.start, 1)
        return (updates(nodes) - before) * work.STEPS

    return one


def updates(nodes: dict[int, GossipNode]) -> int:
    """How often nodes have received a model, each of which they have trained on."""
    return sum(node.received for node in nodes.values())


def counted() -> None:
    """Let nodes count what they receive."""
    receive = GossipNode.receive
    GossipNode.received = 0

    def counting(self: GossipNode, *arguments: object) -> object:
        self.received += 1
        return receive(self, *arguments)

    GossipNode.receive = counting


if __name__ == "__main__":
    counted()
    work.serve(prepare)
