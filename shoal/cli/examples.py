"""What the help of every command ends with, and the heading under which `shoal --help` lists it. A test reads every
example as a user's words; the site's page of commands shows them too."""

from typer.models import CommandInfo, TyperInfo

START, RUN, STUDY, SHOW, KEEP, LIVE, CHOOSE = ("Begin here", "Train", "What should agents share?", "Look at runs",
    "Keep what was learned", "On hosts of their own",
                                   "What there is to choose from")  # fmt: skip
EXAMPLES: dict[str, tuple[str, tuple[str, ...]]] = {
    "demo": (START, ("shoal demo",)),
    "check": (RUN, ("shoal check digits sharing=recv network=ring", "shoal check links --time")),
    "run": (
        RUN,
        (
            "shoal run digits",
            "shoal run digits sharing=recv network=ring --seeds 4",
            'shoal run digits sharing=modmod network.budget="20 kB/task" learner.epochs=50',
        ),
    ),
    "resume": (RUN, ("shoal resume runs/DIR",)),
    "compare": (STUDY, ("shoal compare runs/A runs/B", "shoal compare alone.toml shares.toml --seeds 4")),
    "sweep": (STUDY, ("shoal sweep digits sharing=none,recv,recv+modmod network=ring,complete --seeds 2",)),
    "advise": (STUDY, ('shoal advise digits network=ring --budget "20 kB/task"',)),
    "report": (SHOW, ("shoal report runs/*", "shoal report runs/DIR --watch")),
    "export": (KEEP, ("shoal export runs/DIR --agent 0", 'shoal export runs/DIR --agent "subject 10" --out ten.onnx')),
    "predict": (KEEP, ("shoal predict agent-0.safetensors rows.csv",)),
    "network": (CHOOSE, ("shoal network ring --agents 6", "shoal network server --agents 6 --out server.svg")),
    "list": (CHOOSE, ("shoal list settings", "shoal list sharing", "shoal list sharing recv")),
    "live": (LIVE, ()),
    "live init": (LIVE, ("shoal live init fleet.toml --out fleet",)),
    "live run": (LIVE, ("shoal live run fleet/agent-3",)),
    "live status": (LIVE, ("shoal live status fleet --watch", "shoal live status fleet/agent-3")),
    "live predict": (LIVE, ("shoal live predict fleet/agent-3 rows.csv",)),
    "live replay": (LIVE, ("shoal live replay fleet/agent-3",)),
    "live demo": (LIVE, ("shoal live demo",)),
    "live prune": (LIVE, ("shoal live prune fleet/agent-3",)),
    "live renew": (LIVE, ("shoal live renew fleet 3 --days 30",)),
    "live drop": (LIVE, ("shoal live drop fleet 3",)),
    "live add": (LIVE, ("shoal live add fleet 3 --address 10.0.0.7:7503",)),
    "data": (CHOOSE, ()),
    "data list": (CHOOSE, ("shoal data list",)),
    "data get": (CHOOSE, ("shoal data get mnist",)),
}


def name_of(command: CommandInfo | TyperInfo) -> str:
    """What a command is called by."""
    return str(command.name or getattr(command.callback, "__name__", ""))


def teach(commands: list[CommandInfo] | list[TyperInfo], before: str = "") -> None:
    """Give commands their headings and examples, in the order of the table."""
    names = {id(one): f"{before}{name_of(one)}" for one in commands}
    order = {name: at for at, name in enumerate(EXAMPLES)}
    commands.sort(key=lambda one: order.get(names[id(one)], len(order)))
    for one in commands:
        heading, lines = EXAMPLES.get(names[id(one)], ("", ()))
        if heading:
            one.rich_help_panel = heading
        if lines:
            one.epilog = "\n\n".join(["For example:", *(f"`{line}`" for line in lines)])
