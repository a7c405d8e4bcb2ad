"""The command that shows who can send to whom."""

from pathlib import Path
from typing import Annotated

import typer

from shoal.cli.arguments import Trust
from shoal.cli.terminal import show_network
from shoal.console import plainly, say
from shoal.errors import UserError
from shoal.files import save
from shoal.trust import give


def network(
    graph: Annotated[
        str,
        typer.Argument(
            help="complete, ring, server, tree, random, connected, disconnected, a graph file or a .toml.",
            metavar="GRAPH",
        ),
    ],
    agents: Annotated[
        int | None,
        typer.Option(min=1, help="Agents (default: 8, or as many as a graph file names).", show_default=False),
    ] = None,
    p: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, help="Chance of a connection, of random and connected (default: 0.5).", show_default=False
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="The seed of a random graph (default: 0).", show_default=False)
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help='What a link carries: floats per exchange, "20 kB" or "20 kB/task" (default: unlimited).',
            show_default=False,
        ),
    ] = None,
    every: Annotated[
        int | None, typer.Option(min=1, help="Epochs between exchanges (default: 1).", show_default=False)
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Also draw it here, as SVG.", show_default=False)] = None,
    trust: Trust = False,
) -> None:
    """Show who can send to whom: facts about a graph before a fleet learns on it; with --out, also a picture.

    **complete**: everyone to everyone. **ring**: each to two neighbours. **server**: all to agent 0 and back. **tree**:
    a random tree. **random**: each pair with chance p, maybe in several components. **connected**: a random tree, and
    each other pair with chance p. **disconnected**: no one. Random graphs differ from seed to seed.

    A graph file is GraphML (.graphml or .xml; edges may have attributes *budget* and *every*) or an edge list, with a
    line `0 1` for an edge from agent 0 to agent 1, `0 1 5000 10` for one of 5000 floats every 10 epochs, or
    `0 1 20kB/task` for one of 20,000 bytes in a task.

    Of a settings file (.toml) or an experiment, its agents and [network] are shown; there, the graph is
    network.graph = "GRAPH".
    """
    from shoal.configure.reading import experiments, override, read, resolve
    from shoal.network.edges import edges, settle
    from shoal.network.facts import facts
    from shoal.network.graphs import DRAWN, asked_of, is_named
    from shoal.network.picture import NETWORK, picture
    from shoal.settings.groups import Network

    give(trust)
    if out and out.suffix != ".svg":
        raise UserError(f"the picture cannot be {out}; give --out a name that ends in .svg")
    said = {"agents": agents, "network.p": p, "seed": seed, "network.budget": budget, "network.every": every}
    toml = Path(graph).suffix == ".toml" or (graph in experiments() and not is_named(graph))
    if not toml and agents is None and not is_named(graph):
        said["agents"] = 1 + max(max(link.sender, link.receiver) for link in settle(Network(graph=graph)).edges)
    words = [f"{name}={value}" for name, value in said.items() if value is not None]
    settings = read(Path(graph), words) if toml else resolve(override({"network": {"graph": graph}}, words))
    net, count = settings.network, settings.agents
    if count > 1000:
        raise UserError(f"cannot show {graph} with {count} agents, only up to 1000; agents are numbered from 0 on")
    asked = "".join(f"{name} {value}, " for name, value in asked_of(net).items()) if net.graph in DRAWN else ""
    drawn = f"{asked}seed {settings.seed}, " * (net.graph in DRAWN)
    title = f"{net.graph if toml else Path(graph).stem}, {drawn}{count} agent{'s' * (count > 1)}"
    sends = edges(net, count, settings.seed)
    if out and not out.absolute().parent.is_dir():
        raise UserError(f"cannot write {out}: there is no folder {out.parent}; give --out another place")
    if out:
        save(out, picture(sends, count, title), "give --out another place", NETWORK)
    plainly(title)
    show_network(facts(sends, count), [edge[:2] for edge in sends])
    if out:
        say(f"written to {out}")
