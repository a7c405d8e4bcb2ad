"""Settings: what a run is. Frozen and strict."""

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

from pydantic import (
    BeforeValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    SerializeAsAny,
)

from shoal.settings.conditions import DELAYS, INTERVALS, LOSSES, Delay, Intervals, Loss, Presence
from shoal.settings.part import Budget, Duration, Part, Rate
from shoal.settings.policies import Policies, Policy
from shoal.settings.safety import Fault, Faults

if TYPE_CHECKING:
    from shoal.learners.contract import Learner
    from shoal.sharing.contract import Sharing
else:  # learners and modes are settings that come with verbs; what they do is known above, and here they are held
    Learner = Sharing = Part

RESOLVER = "shoal.configure.completing"  # what makes settings whole: it knows all tables, and stands above them
UNSAID: Any = Part()  # in the place of a learner, until settings are made whole
MODEL: Final = "modular-mlp"  # where nobody says one
FAIR: Final = "fair"  # the protocol where nobody says one
REST = "rest"  # the kind of agents that are of none


class Tasks(Part):
    """What every agent meets: how many tasks, of how many classes, with how many images. Scenarios have settings of
    their own beside these (`shoal list scenarios NAME`)."""

    scenario: str = Field("drawn", description="how streams come about: see `shoal list scenarios`")
    heads: Literal["task", "one", "grow"] = Field(
        "task",
        description="a head for each task (task-incremental), one for all classes of the data from the start "
        "(domain-incremental; where a scenario says so, as `permuted` and `parity` do, for the places of a task), or "
        "one that grows with the classes (class-incremental)",
    )
    draw: str = Field(
        "agent",
        description="who splits the training rows: every agent for itself (agent), or the fleet once for all (fleet: "
        "nobody validates on what another trains on); see `shoal list draws`",
    )
    repeat: PositiveInt | None = Field(
        None,
        description="seeds so many apart draw the same splits and classes, and differ in weights, batches and dropout "
        "alone; None: every seed draws its own",
    )
    outputs: Literal["seen", "all"] = Field(
        "seen",
        description="which outputs of a head that grows count: those of classes met by then, or all from the start",
    )
    held_out: float = Field(0.2, gt=0, lt=1, description="the share of the training rows that is kept for validation")
    count: PositiveInt = Field(10, description="tasks per agent")
    classes: PositiveInt = Field(2, description="classes per task, at most; 1: numbers are to be predicted")
    train: PositiveInt | Literal["all"] = Field(
        64, description='training rows per class (nominal: the draw is not stratified), or "all"'
    )
    validation: PositiveInt | Literal["all"] = Field(50, description='validation rows per class, or "all"')
    replacement: bool = Field(True, description="may a class come back in a later task of the same agent?")
    initial: PositiveInt = Field(4, description="tasks learned jointly at the start")
    strangers: PositiveInt = Field(
        256,
        description="tasks of others that an agent is tested on at the end without having met them; of more, so many "
        "at random",
    )
    common: bool = Field(True, description="do all agents of a seed share the initial tasks and what is learned there?")
    labelled: float = Field(
        1.0,
        gt=0,
        le=1,
        description="the share of training rows that have a label, one of every class at least; the others are there "
        "for what looks at no label: backbones, anchors, drift",
    )
    blur: float = Field(
        0.0,
        ge=0,
        le=1,
        description="the share of training rows that are dealt anew among an agent's tasks (heads one or grow)",
    )


class Net(Part):
    """The network of every agent. Models have settings of their own beside these (`shoal list models NAME`)."""

    shaped: ClassVar[tuple[str, ...]] = ("width", "depth")  # which of them make the shape of what agents share

    width: PositiveInt = Field(64, description="units (mlp) or channels (cnn) of a layer or module")
    depth: PositiveInt = Field(4, description="layers")
    dropout: float = Field(0.5, ge=0, lt=1, description="dropout after every layer or module")
    head: Literal["random", "zero"] = Field(
        "random", description="first weights of the heads of later tasks: uniform within 1/sqrt(inputs), or zero"
    )

    @property
    def shape(self) -> dict[str, Any]:
        """What two nets of a model have in common if what they share is of one shape."""
        return {name: getattr(self, name) for name in self.shaped}


def as_tuple(value: Any) -> Any:
    """TOML and JSON have lists only."""
    return tuple(map(as_tuple, value)) if isinstance(value, list | tuple) else value


class Link(Part):
    """A link that the user names: of the whole graph, or with limits of its own in a named one."""

    sender: NonNegativeInt = Field(description="the agent that sends")
    receiver: NonNegativeInt = Field(description="the agent that receives")
    budget: Budget | None = Field(None, description="what this edge carries, said like network.budget (else that)")
    every: PositiveInt | None = Field(None, description="epochs between exchanges on this edge (else network.every)")
    loss: Loss | None = Field(None, description="said like network.loss (else that)")
    delay: Delay | None = Field(None, description="said like network.delay (else that)")
    down: Intervals | None = Field(None, description="said like network.down (else that)")
    bandwidth: Rate | None = Field(None, description="what this edge carries in a second (else network.bandwidth)")
    latency: Duration | None = Field(
        None, description="how long a message is under way on this edge (else network.latency)"
    )


class Change(Part):
    """Another graph from a time on."""

    task: NonNegativeInt | None = Field(None, description="from this task on, counted from 0")
    epoch: NonNegativeInt | None = Field(None, description="or from this epoch since the first task on")
    graph: str = Field(description="said like network.graph")
    p: float | None = Field(None, ge=0, le=1, description="said like network.p (else that)")
    edges: Annotated[tuple[Link, ...], BeforeValidator(as_tuple)] = Field((), description="said like network.edges")


class Network(Part):
    """Who can send to whom, how much and how often. Graphs have settings of their own beside these (`shoal list graphs
    NAME`)."""

    graph: str = Field(
        "complete",
        description="complete, ring, server, tree, random, connected, disconnected, geometric, edges, or a graph file",
    )
    budget: Budget = Field(
        "unlimited",
        description="what a link carries in one direction: floats per exchange (5000), or an amount per exchange or "
        "task, shared by all modes (20 kB, 20 kB/task, 500 floats/task)",
    )
    every: PositiveInt = Field(1, description="epochs between two exchanges on a link, at least")
    loss: Loss = Field(0.0, description=f"how much of what leaves over a link is lost, and paid for: {LOSSES}")
    delay: Delay = Field(0, description=f"how late mail comes, in epochs: {DELAYS}")
    down: Intervals = Field((), description=f"when nothing can leave: {INTERVALS}")
    edges: Annotated[tuple[Link, ...], BeforeValidator(as_tuple)] = Field(
        (), description="the graph's edges, or limits of single edges of a named graph"
    )
    changes: Annotated[tuple[Change, ...], BeforeValidator(as_tuple)] = Field(
        (),
        description='other graphs from a time on, such as [{task = 5, graph = "ring"}, {epoch = 620, graph = "tree"}]',
    )
    bandwidth: Rate | None = Field(
        None,
        description="what an edge carries in a second, in one direction: 1 Mbit/s, 50 kB/s, or a number of bytes; "
        "nothing said: as much as one likes (needs clock.speed)",
    )
    latency: Duration = Field(
        0.0, description="how long a message is under way beside that: seconds, or 20 ms (needs clock.speed)"
    )


PerAgent = Annotated[PositiveFloat | tuple[PositiveFloat, ...], BeforeValidator(as_tuple)]
Energy = Annotated[NonNegativeFloat | tuple[NonNegativeFloat, ...], BeforeValidator(as_tuple)]
Times = tuple[NonNegativeFloat, ...]


class Clock(Part):
    """When tasks come, how fast agents are, and who waits for whom.

    Times are in epochs of the fleet, or in seconds where everybody goes on by its own clock (asynchronous).
    """

    pace: Literal["wait", "asynchronous"] = Field(
        "wait", description="all go in lock-step and wait for the slowest, or nobody waits and mail comes when it comes"
    )
    starts: Annotated[NonNegativeFloat | Times, BeforeValidator(as_tuple)] = Field(
        0.0,
        description="when each agent begins: a list with a time for each, or a number by which each begins later than "
        "the one before it",
    )
    arrivals: Annotated[Literal["at once", "poisson"] | Times | tuple[Times, ...], BeforeValidator(as_tuple)] = Field(
        "at once",
        description="when tasks come, counted from an agent's start: each as soon as the one before it is learned; at "
        "random (poisson); or a list with a time for each task, or one such list for each agent",
    )
    gap: PositiveFloat = Field(100.0, description="the mean time between two tasks (arrivals = poisson)")
    speed: PerAgent | None = Field(
        None,
        description="steps per second of all agents, or a list with one for each; nothing said: seconds are not "
        "counted",
    )
    patience: NonNegativeFloat | Literal["unlimited"] = Field(
        "unlimited",
        description="seconds for which who has asked waits for answers; later ones are late mail (asynchronous)",
    )
    step_joules: Energy = Field(0.0, description="energy of a step of all agents, or a list with one for each")
    byte_joules: Energy = Field(
        0.0, description="energy of a byte that an agent sends, for all or a list with one for each"
    )

    @property
    def own(self) -> bool:
        """Has every agent a clock of its own, so that agents can be at different tasks at the same moment?"""
        return self.pace == "asynchronous" or self.arrivals != "at once" or self.starts not in (0.0, ())

    @property
    def counts(self) -> bool:
        """Are seconds counted?"""
        return self.speed is not None

    def of(self, name: str, agent: int) -> float:
        """What a setting that may be a list says of an agent."""
        said = getattr(self, name)
        found: float = said[agent] if isinstance(said, tuple) else said
        return found


class Machine(Part):
    """Where it runs. Threads change nothing; engines and devices agree up to rounding."""

    device: str = Field("cpu", pattern=r"^(cpu|cuda(:\d+)?)$", description="cpu, cuda or cuda:N")
    engine: Literal["auto", "loop", "vmap"] = Field(
        "auto", description="auto: what suits the model; `shoal check` says why"
    )
    kernel: Literal["auto", "compiled", "torch"] = Field(
        "auto",
        description="what takes the steps of MLPs and reads trained ones: a program in C, built when shoal was "
        "installed, or torch; auto: the first where it is there",
    )
    threads: NonNegativeInt = Field(0, description="threads that share the agents; 0: one for each core")
    members: Literal["here", "processes", "ray"] = Field(
        "here", description="where agents learn: here, or dealt to processes or Ray actors; --workers sets it"
    )
    workers: NonNegativeInt = Field(0, description="how many processes or actors; 0: one for each core")
    address: str = Field("", description="the Ray cluster to join, HOST:PORT; empty: a Ray of the run's own")
    cpus: PositiveFloat = Field(1.0, description="CPUs of a Ray actor")
    gpus: NonNegativeFloat = Field(0.0, description="GPUs of a Ray actor, or a fraction; above 0, it learns there")
    patience: PositiveFloat = Field(120.0, description="seconds to wait until the cluster has room for an actor")
    ledger: Literal["messages", "totals"] = Field(
        "messages",
        description="what is written of mail: a row for every message, or (totals) one for all messages of a link in a "
        "task that are alike, for large fleets",
    )
    companions: bool = Field(
        True,
        description="use verbs for all agents at once where modes have them; else only the definitions, which are slow",
    )
    data: str = Field("", description="folder to look for data first; --data sets it")
    checkpoint: PositiveFloat = Field(30.0, description="seconds between checkpoints inside a task")


class Recording(Part):
    """What is kept of a run beside its usual records. It changes no result."""

    predictions: bool = Field(
        False,
        description="keep what agents say of every test row at the end of each task, as Parquet, for metrics such as "
        "f1 and confusion_matrix",
    )


class Kind(Part):
    """Agents that differ from the rest of the fleet in what is said here. Resolved, it says all of it."""

    name: str = Field(pattern=r"^[A-Za-z][\w-]*$", description="a unique name without spaces; `rest` is reserved")
    agents: Annotated[tuple[NonNegativeInt, ...], BeforeValidator(as_tuple)] = Field(
        min_length=1, description="a list of agents, counted from 0"
    )
    model: str = Field(MODEL, description="else the fleet's model")
    net: SerializeAsAny[Net] = Net()
    learner: SerializeAsAny[Learner] = UNSAID


class Settings(Part):
    """One run: a fleet of `agents`, repeated for `seeds`.

    >>> import shoal
    >>> settings = shoal.Settings(dataset="digits", agents=4, sharing="recv", network="ring", tasks={"count": 6})
    >>> settings.tasks.count, settings.sharing[0].mode, settings.network.graph
    (6, 'recv', 'ring')
    """

    dataset: str = Field("digits", description="digits, mnist, kmnist, fashionmnist, cifar100 or combined")
    backbone: str = Field(
        "",
        description="a frozen net whose features of rows all agents learn from: a name (`shoal list backbones`), "
        "FILE.onnx, or package.module:make; empty: none",
    )
    model: str = Field(MODEL, description="see `shoal list models`, or a net of your own: package.module:Net")
    protocol: str = Field(FAIR, description="what fills in the rest: see `shoal list protocols`")
    agents: PositiveInt = Field(8, description="agents in the fleet")
    seeds: PositiveInt = Field(1, description="repetitions of the whole fleet")
    seed: int = Field(0, ge=0, lt=2**32, description="the first seed")
    tasks: SerializeAsAny[Tasks] = Tasks()
    net: SerializeAsAny[Net] = Net()
    learner: SerializeAsAny[Learner] = UNSAID
    network: SerializeAsAny[Network] = Network()
    clock: Clock = Field(Clock())
    sharing: tuple[SerializeAsAny[Sharing], ...] = Field(
        (), description="what agents share, in the order of acting: modes with their settings; see `shoal list sharing`"
    )
    presence: Presence = Field(Presence())
    faulty: Faults = Field(
        (), description="agents that lie in what they send: tables with agents, does, strength (docs/guides/liars.md)"
    )
    policy: Policies = Field(
        (),
        description="what may leave agents: tables with agents, to, allow, forbid, forbid_classes, per_class, clip, "
        "noise, epsilon, delta (docs/guides/privacy.md)",
    )
    record: Recording = Field(Recording())
    machine: Machine = Machine()
    kinds: tuple[Kind, ...] = Field(
        (), description="agents with a model, net or learner of their own: name, agents, and only what differs"
    )

    def __init__(self, **raw: Any) -> None:
        """From what the user says, as in TOML, or with objects in it: a protocol fills in the rest, and what cannot be
        is a SettingsError. Modes and learners that were made in Python are used as they are."""
        resolver = import_module(RESOLVER)
        super().__init__(**resolver.complete(raw))
        resolver.check(self)

    @property
    def names(self) -> tuple[str, ...]:
        """The kinds that have agents, `rest` first."""
        rest = (REST,) * (sum(len(kind.agents) for kind in self.kinds) < self.agents)
        return *rest, *(kind.name for kind in self.kinds)

    def members(self) -> dict[str, Sequence[int]]:
        """The agents of each kind; those of none come first, as `rest`."""
        if not self.kinds:
            return {REST: range(self.agents)}
        named: dict[str, Sequence[int]] = {kind.name: kind.agents for kind in self.kinds}
        taken = {agent for agents in named.values() for agent in agents}
        rest = tuple(agent for agent in range(self.agents) if agent not in taken)
        return ({REST: rest} if rest else {}) | named

    def of(self, name: str) -> "Settings":
        """The settings of the agents of one kind, as if all were of it."""
        kinds: dict[str, Kind | Settings] = {REST: self, **{kind.name: kind for kind in self.kinds}}
        own = kinds[name]
        return self.model_copy(update={"model": own.model, "net": own.net, "learner": own.learner, "kinds": ()})

    @property
    def faults(self) -> dict[int, Fault]:
        """How each agent lies that does."""
        return {agent: fault for fault in self.faulty for agent in fault.agents}

    @property
    def privacy(self) -> dict[int, Policy]:
        """The policy by which each agent's models are clipped, if they are."""
        private = [one for one in self.policy if one.private]
        return {agent: one for one in private for agent in one.agents or range(self.agents)}

    def identity(self) -> str:
        """Eight letters that name all that can change a result."""
        name: str = import_module(RESOLVER).identity(self)
        return name
