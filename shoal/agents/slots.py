"""Slots: where in a tensor lies what a lane keeps for each of its neighbours."""

from functools import lru_cache

from shoal.agents.world import World
from shoal.data.tasks import Lane
from shoal.network.edges import edges, moves
from shoal.settings.groups import Network


class Slots:
    """A slot for every neighbour of a lane, in the order of agents. How many there are depends on the settings alone,
    not on who is there: what lanes keep has the same shape however a fleet is cut."""

    def __init__(self, network: Network, agents: int, seeds: range) -> None:
        self.places: dict[tuple[int, int], dict[int, int]] = {}
        for seed in seeds:
            near: dict[int, set[int]] = {}
            for edge in ever(network, agents, seed):
                near.setdefault(edge[0], set()).add(edge[1])
                near.setdefault(edge[1], set()).add(edge[0])
            for agent, others in near.items():
                self.places[seed, agent] = {other: at for at, other in enumerate(sorted(others))}
        self.most = max((len(one) for one in self.places.values()), default=0)

    def of(self, lane: Lane, other: Lane) -> int:
        return self.places[lane.seed, lane.agent][other.agent]


def ever(network: Network, agents: int, seed: int) -> set[tuple[int, int]]:
    """The edges that there are at any time; where the graph moves, anybody may meet anybody."""
    if moves(network):
        return {(one, other) for one in range(agents) for other in range(agents) if one != other}
    starts = {0, *((one.epoch or 0) for one in network.changes)}
    return {edge[:2] for start in starts for edge in edges(network, agents, seed, start)}


@lru_cache(maxsize=8)
def known(network: Network, agents: int, first: int, count: int) -> Slots:
    return Slots(network, agents, range(first, first + count))


def slots(world: World) -> Slots:
    """The slots of all lanes of a fleet."""
    fleet = world.fleet
    return known(fleet.network, fleet.agents, fleet.seed, fleet.seeds)
