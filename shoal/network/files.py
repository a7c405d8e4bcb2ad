"""Graph files: an edge list or GraphML, read and checked."""

import io
import re
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from xml.etree.ElementTree import ParseError, fromstring

import networkx as nx  # type: ignore[import-untyped]

from shoal.errors import SettingsError
from shoal.network.graphs import GRAPHS
from shoal.settings.groups import Link
from shoal.settings.part import Budget
from shoal.units import NAMES
from shoal.units import plain as kept

LARGEST = 64 * 2**20  # bytes of a graph file
WHOLE = re.compile("[0-9]{1,18}")
LINE = "a line is SENDER RECEIVER [BUDGET|unlimited [EVERY]], e.g. `0 1`, `0 1 5000 10` or `0 1 20kB/task`"


def read(file: Path) -> tuple[Link, ...]:
    """The edges of a graph file: GraphML if it ends in .graphml or .xml, else an edge list."""
    try:
        if file.exists() and not file.is_file() and not file.is_dir():  # a device or a pipe may never end
            raise SettingsError(f"cannot read {file}: it is no plain file; give an edge list or a GraphML file")
        if file.is_file() and (size := file.stat().st_size) > LARGEST:
            raise SettingsError(
                f"cannot read {file}: it has {size:,} bytes, and a graph file has {LARGEST:,} at most; give a smaller "
                "one"
            )
        content = file.read_bytes()
    except FileNotFoundError:
        raise SettingsError(f"no graph file {file.absolute()}; graphs by name: {', '.join(GRAPHS)}") from None
    except SettingsError:
        raise
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise SettingsError(f"cannot read {file}: {why}; give an edge list or a GraphML file") from None
    links = graphml(content, file) if file.suffix.lower() in (".graphml", ".xml") else edge_list(content, file)
    if not links:
        raise SettingsError(f'{file} has no edges; for agents without any, set graph = "disconnected"')
    distinct(links, str(file))
    return links


def edge_list(content: bytes, file: Path) -> tuple[Link, ...]:
    """The edges of a text with one on each line, `SENDER RECEIVER [BUDGET|unlimited [EVERY]]`; # starts a comment."""
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise SettingsError(f"cannot read {file} as an edge list: byte {error.start} is not UTF-8; {LINE}") from None
    links = []
    for at, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if len(words) > 3 and words[3].partition("/")[0].lower() in NAMES:  # `20 kB` is one budget
            words[2:4] = [" ".join(words[2:4])]
        if not words:
            continue
        where = f"cannot use line {at} of {file}, `{line.strip()}`"
        if not 2 <= len(words) <= 4:
            raise SettingsError(f"{where}: it has {len(words)} word{'s' * (len(words) > 1)}; {LINE}")
        for word in words[:2]:
            if not WHOLE.fullmatch(word):
                raise SettingsError(f"{where}: an agent is a whole number from 0, got `{word}`; {LINE}")
        links.append(limited(int(words[0]), int(words[1]), words[2:3], words[3:], where))
    return tuple(links)


def graphml(content: bytes, file: Path) -> tuple[Link, ...]:
    """The edges of a GraphML text; an undirected one has each in both directions."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # ports, which networkx leaves out, do not change who is connected
            graph = nx.read_graphml(io.BytesIO(content))
        there = sum(element.tag.rpartition("}")[2] == "edge" for element in fromstring(content).iter())
    # Besides its own errors, networkx lets through what its parser and conversions raise.
    except (nx.NetworkXException, ParseError, ValueError, LookupError, TypeError, AttributeError) as error:
        why = " ".join(str(error).split())
        raise SettingsError(
            f"cannot read {file} as GraphML: {why}; mend it, or write an edge list, where {LINE}"
        ) from None
    # networkx reads the first graph of a file, not what is nested in it, and joins edges of one id.
    if graph.number_of_edges() < there:
        raise SettingsError(
            f"cannot use {file}: {there - graph.number_of_edges()} of {there} edges are in another or an inner graph, "
            "or have the id of another edge; give one flat graph with different ids"
        )
    agents: dict[str, int] = {}
    nodes: dict[int, str] = {}
    for node in graph.nodes:
        if not WHOLE.fullmatch(node.removeprefix("n")):
            raise SettingsError(
                f"cannot use {file}: a node's id must be an agent's number such as `3` or `n3`, got `{node}`; "
                "rename the node"
            )
        agents[node] = int(node.removeprefix("n"))
        if (other := nodes.setdefault(agents[node], node)) != node:
            raise SettingsError(
                f"cannot use {file}: nodes `{other}` and `{node}` are both agent {agents[node]}; rename one"
            )
    defaults = graph.graph.get("edge_default", {})  # networkx does not give them to the edges
    links = []
    for source, target, said in graph.edges(data=True):
        attributes = {**defaults, **said}
        where = f"cannot use edge {source} -> {target} of {file}"
        words = [[plain(attributes[name])] if name in attributes else [] for name in ("budget", "every")]
        ways = [(source, target)] if graph.is_directed() else [(source, target), (target, source)]
        links += [limited(agents[one], agents[two], words[0], words[1], where) for one, two in ways]
    return tuple(links)


def plain(value: object) -> str:
    """A GraphML value as a word; many tools write every number as a double, `5.0`."""
    return str(int(value) if isinstance(value, float) and value.is_integer() else value).strip()


def limited(sender: int, receiver: int, budgets: Sequence[str], everys: Sequence[str], where: str) -> Link:
    """A link with the limits that a file says, none or one word each."""
    budget: Budget | None = None
    for word in budgets:
        try:
            budget = kept(int(word) if WHOLE.fullmatch(word) else word)
        except SettingsError as error:
            raise SettingsError(f"{where}: {error}") from None
    for word in everys:
        if not WHOLE.fullmatch(word) or not int(word):
            raise SettingsError(f"{where}: the epochs between exchanges are a whole number from 1, got `{word}`")
    return Link(sender=sender, receiver=receiver, budget=budget, every=int(everys[0]) if everys else None)


def distinct(links: Iterable[Link], where: str) -> None:
    """Raise for an edge from an agent to itself, and for one that is there twice."""
    seen = set()
    for link in links:
        name = f"{where} has the edge {link.sender} -> {link.receiver}"
        if link.sender == link.receiver:
            raise SettingsError(f"{name}, but an agent sends nothing to itself; take the edge out")
        if (link.sender, link.receiver) in seen:
            raise SettingsError(f"{name} twice; keep one of the two")
        seen.add((link.sender, link.receiver))
