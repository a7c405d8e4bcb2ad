"""What `shoal check` says of a fleet before it learns. Heavy imports happen inside the functions."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from shoal.cli.terminal import named, spans
from shoal.console import console, plainly
from shoal.units import listed, plural, shown

if TYPE_CHECKING:
    from shoal.agents.world import World
    from shoal.settings.groups import Settings
    from shoal.sharing.plan import Line


SITES = 24  # rows of the table of sites and tasks
FEW = 1_000  # agents of all seeds that are looked at before it is known whether there is room for a run of them


def show_fleet(settings: "Settings", data: Path | None) -> None:
    """Who learns and is connected and, of data of one's own, what it means, who has how much of it and what looks
    wrong: all that is known before anything heavy is loaded."""
    from shoal.data.sources import is_source
    from shoal.data.tasks import lanes_of
    from shoal.network.edges import edges

    lanes = lanes_of(settings)
    seeds = dict.fromkeys(lane.seed for lane in lanes)
    pairs = [(seed, edge) for seed in seeds for edge in edges(settings.network, settings.agents, seed)]
    alone = len(lanes) - len({(seed, end) for seed, edge in pairs for end in (edge.sender, edge.receiver)})
    connected = f"{plural(alone, 'agent')} without any" if alone else "every agent is connected"
    plainly(
        f"{plural(settings.agents, 'agent')}, {plural(settings.seeds, 'seed')}, graph {settings.network.graph}: "
        f"{plural(len(pairs), 'link')} over all seeds; {connected}"
    )
    if not is_source(settings.dataset):
        return
    from shoal.backbones import bank_of
    from shoal.data.scenarios import seen, streams
    from shoal.data.sources.meaning import overview, said

    bank = seen(bank_of(settings, data), settings)
    drawn = streams(bank, settings, lanes)
    plainly(*said(bank, settings.agents, lanes, drawn))
    found = overview(bank, lanes, drawn)
    table = Table(*found.columns, box=None)
    for row in found.head(SITES).rows():
        table.add_row(*map(str, row))
    console.print(table)
    if len(found) > SITES:
        plainly(f"and {len(found) - SITES} more tasks, as `Fleet.check().data` has them")


def show_plan(fleet: Sequence["World"], timed: bool = False) -> None:
    """What a run needs and what sharing will cost, a table of limits and mail."""
    from shoal.fleet.size import size
    from shoal.sharing import sites
    from shoal.sharing.plan import expected, fit, plan, total
    from shoal.units import limit

    settings, lines = fleet[0].fleet, plan(fleet)
    for world in fleet:
        plainly(world.about)
        learner = world.settings.learner
        plainly(*filter(None, (learner.doubt, learner.unused(settings.sharing))))
    needs = size(settings, fleet[0].bank)
    if timed:
        from shoal.fleet.pace import pace

        plainly(needs.timed(pace(fleet)))
    else:
        plainly(f"about {needs.memory}; --time tells how long it takes")
    if settings.clock.counts:
        plainly(str(expected(fleet, lines)))
    plainly(*said(fleet[0]), *sites.said(fleet))
    if settings.kinds:
        show_kinds(fleet[0])
    if settings.machine.members != "here":
        show_deals(fleet)
    if not settings.sharing:
        console.print("nothing is shared; say sharing=MODE, see `shoal list sharing`")
        return
    for group in dict.fromkeys(one.edges for one in lines):
        words = "no limit" if group.budget is None else str(limit(group.budget))
        rhythm = "" if group.every == 1 else f", at least {group.every} epochs between exchanges"
        name = namer(fleet[0])
        pairs = ", ".join(f"{name(sender)} → {name(receiver)}" for sender, receiver in group.pairs[:8])
        more = f" and {len(group.pairs) - 8} other pairs of agents" * (len(group.pairs) > 8)
        plainly(f"\n{group.number:,} links: {words}{rhythm}")
        plainly(f"{pairs}{more}")
        here = [one for one in lines if one.edges == group]
        table = Table("on each of them", *(f"{one.mode}, {spoken(fleet[0], one.kind)}" for one in here), box=None)
        for title, cells in facts_of(fleet[0], here).items():
            table.add_row(title, *cells)
        console.print(table)
    console.print()
    plainly(
        f"Costs are upper bounds per link, in one direction: a neighbour may have less to send, and modes that act at "
        f"the same moment share the link's budget. In all at most {shown(total(lines))}."
    )
    for mode in settings.sharing:
        if mode.doubt:
            plainly(mode.doubt)
        tries = fit(fleet, mode).values()
        few = sum(one is not None and not one.fits for one in tries)
        if not any(one.mode == mode.mode for one in lines):
            plainly(f"{mode.mode} never sends anything: no link carries it")
        elif few:
            plainly(
                f"{mode.mode} fits {len(tries) - few} of {len(tries)} links; on the others even its smallest mail is "
                "over budget"
            )


def show_deals(fleet: Sequence["World"]) -> None:
    """Which lanes each worker gets, what goes from one to another, and the memory that each needs."""
    from shoal.fleet.placement import crossings, deal
    from shoal.fleet.size import share
    from shoal.fleet.workers import headcount

    settings, lanes = fleet[0].fleet, fleet[0].peers
    deals = deal(fleet, headcount(settings))
    leaves, arrives = crossings(fleet, deals)
    table = Table(
        "worker", "agents x seeds", "seeds", "agents", "sends to others", "gets from others", "memory", box=None
    )
    for at, mine in enumerate(deals):
        seeds, agents = (sorted({getattr(lane, name) for lane in mine}) for name in ("seed", "agent"))
        memory = shown(share(settings, fleet[0].bank, len(mine) / len(lanes)))
        cells = [f"{len(mine)}", ranges(seeds), ranges(agents), shown(leaves[at]), shown(arrives[at]), memory]
        table.add_row(str(at), *cells)
    plainly(f"\ndealt to {len(deals)} workers ({settings.machine.members}), at most:")
    console.print(table)


def ranges(numbers: Sequence[int]) -> str:
    """Numbers in few words; of many ranges, the first."""
    return listed(spans(numbers).split(", "), 6)


def said(world: "World") -> list[str]:
    """The conditions of links and agents, in sentences; none, where there are none."""
    from collections import Counter

    from shoal.data.sites import called
    from shoal.network.edges import conditions, moves
    from shoal.settings.conditions import NEVER

    network, presence = world.fleet.network, world.fleet.presence
    found = []
    for words, number in Counter(map(conditions, world.edges.values())).items():
        if words:
            found.append(f"{number:,} edge{'s' * (number > 1)}: {', '.join(words)}; what is lost is paid for")
    for agent, gaps in sorted(world.gaps.items()):
        spans = (f"{first} to {last - 1}" if last < NEVER else f"{first} on" for first, last in gaps)
        who = called(world.bank.sources, world.fleet.agents, agent)
        found.append(f"{who} is absent in epochs {', '.join(spans)} since the first task")
    if world.gaps:
        found.append(f"mail for agents that are absent {'is lost' if presence.mail == 'lost' else 'waits for them'}")
    if network.changes:
        later = ", ".join(f"{one.graph} from epoch {one.epoch} on" for one in network.changes)
        found.append(f"the graph changes: {later}; costs are those of the first")
    if moves(network):
        found.append("the graph is another at every exchange; costs are those of the first epoch")
    return found


def show_kinds(world: "World") -> None:
    """The kinds of agents, and which modes go from whom to whom."""
    from shoal.data.sites import names
    from shoal.sharing.plan import table

    fleet, modes = world.fleet, table(world)
    groups, sites = fleet.members(), names(world.bank.sources, fleet.agents)
    about = Table("kind", "agents", "model", "width", "depth", "basis", box=None)
    for name, agents in groups.items():
        one = fleet.of(name)
        basis = str(getattr(one.net, "basis", ""))
        about.add_row(name, named(agents, sites), one.model, str(one.net.width), str(one.net.depth), basis)
    console.print(about)
    if not fleet.sharing:
        return
    console.print("\nwhat goes from whom (left) to whom (top):")
    reach = Table("", *groups, box=None)
    for sender in groups:
        cells = (modes.get((sender, receiver), set()) for receiver in groups)
        ordered = [", ".join(mode.mode for mode in fleet.sharing if mode.mode in cell) or "-" for cell in cells]
        reach.add_row(sender, *ordered)
    console.print(reach)


def namer(world: "World") -> Callable[[int], str]:
    """What says how an agent is called in a table: by its site, or by its number alone."""
    from shoal.data.sites import names

    sites = names(world.bank.sources, world.fleet.agents)
    return lambda agent: sites[agent] if sites else str(agent)


def spoken(world: "World", kind: str) -> str:
    """What mail of a kind holds: the images of a table are rows."""
    return "rows" if kind == "images" and len(world.bank.images.shape) == 2 else kind


def facts_of(world: "World", lines: list["Line"]) -> dict[str, list[str]]:
    """What `shoal check` says about each kind of mail, by title."""
    from shoal.runs.counts import COUNTS

    things = spoken(world, "images")
    return {
        f"largest: {things}, classes or modules": [
            f"{one.items}" + f" of {one.wanted}" * (one.items < one.wanted) for one in lines
        ],
        "bytes": [f"{one.bytes:,}" for one in lines],
        "floats": [f"{one.floats:,}" for one in lines],
        **{count.title: [f"{count.quote(world, one):,}" for one in lines] for count in COUNTS.values()},
        "exchanges in a task": [f"{one.exchanges}" for one in lines],
        "per link and task": [shown(one.total_bytes / one.tasks) for one in lines],
        "floats in a task": [f"{one.total / one.tasks:,.0f}" for one in lines],
        "messages in the run": [f"{one.posted:,}" for one in lines],
        "bytes in the run": [shown(one.total_bytes) for one in lines],
        "floats in the run": [f"{one.total:,}" for one in lines],
        "refused: link at rest": [f"{one.resting:,}" for one in lines],
        "refused: over budget": [f"{one.over:,}" for one in lines],
        **({"refused: by a policy": [f"{one.forbidden:,}" for one in lines]} if world.fleet.policy else {}),
    }
