"""A graph with a setting."""

import networkx as nx


def near(n, generator, reach=1):
    """Everybody is connected with all that are at most so many places away."""
    return nx.circulant_graph(n, range(1, reach + 1))
