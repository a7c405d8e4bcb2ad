"""The contract of sharing modes: settings that come with verbs."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, SerializerFunctionWrapHandler, model_serializer

from shoal.errors import SettingsError
from shoal.settings.part import Budget, Part, named
from shoal.settings.policies import Carries

if TYPE_CHECKING:
    from torch import Tensor

    from shoal.agents.stack import Stack
    from shoal.agents.world import World
    from shoal.data.tasks import Lane
    from shoal.learners.additions import Addition
    from shoal.letters.letter import Letter, Quote, Room
    from shoal.letters.mail import Expected, Mail
    from shoal.letters.table import Table
    from shoal.mail.post import Post
    from shoal.settings.groups import Settings


# Of mail of one kind and sender that comes later than it was sent: all is of use, the newest alone, or none.
Late = Literal["all", "newest", "never"]


class Sharing(Part):
    """What every sharing mode is to all others: these settings and its own, and what an exchange calls. It is written
    for one agent, as a `Mode` (shoal/sharing/mode.py). `shoal.sharing.modes.MODES` lists the modes."""

    between: ClassVar[str] = "any two agents"  # whom it connects, in words
    writes: ClassVar[tuple[str, ...]] = ()  # other owners of state that it writes, through their functions
    writes_weights: ClassVar[bool] = True  # may it change weights of nets? Who does not say is taken to
    offers: ClassVar[bool] = False  # does it offer modules, each noted in its state `offers`?
    solves: ClassVar[bool] = False  # can what was sent solve tasks that only others have met? Who has `knows` says so
    asking: ClassVar[tuple[str, ...]] = ("question",)  # the kinds of mail that `ask` sends
    bounds_weights: ClassVar[bool] = False  # do receivers refuse weights far larger than their own (body.py)?
    both_ways: ClassVar[bool] = False  # does it need the edge back, because questions are answered?
    late: ClassVar[Mapping[str, Late]] = {}  # which mail that comes later is still of use, by its kind; else the newest
    example: ClassVar[Mapping[str, Any]] = {}  # settings with which it acts soon in a tiny fleet, for tests
    mode: str = Field(description="the name of the mode")
    every: PositiveInt | Literal["task"] = Field(description="epochs between exchanges; task: once, before a task")
    when: Literal["before", "after"] = Field(description="exchange before or after every so many epochs")
    start: NonNegativeInt | Literal["initial", "grown"] = Field(
        "initial", description="the first task with exchanges; initial: the first after the initial tasks"
    )
    neighbours: Literal["all", "same source"] = Field(
        "all",
        description="whom to share with; same source: only neighbours with the same dataset (uses knowledge that "
        "agents would not have)",
    )
    budget: Budget = Field(
        "unlimited", description="what this mode may send over a link, said like network.budget; that also counts"
    )

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        named(cls, Sharing)
        cls.solves = cls.knows is not Sharing.knows

    @property
    def door(self) -> str:
        """What finds this mode again: its name in the table, or `package.module:Name`."""
        from shoal.sharing.modes import MODES

        return MODES.door(self.mode, type(self))

    @model_serializer(mode="wrap")
    def written(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Its settings, with a name by which they can be read back."""
        return {**handler(self), "mode": self.door}

    @property
    def owner(self) -> str:
        """Whose state it keeps."""
        return self.mode

    @property
    def letters(self) -> Mapping[str, "Letter"]:
        """What its mail looks like, by kind, if it declares that."""
        return {}

    def init(self, world: "World") -> dict[str, "Tensor"]:
        """What it keeps, named tensors with the lane axis first."""
        return {}

    def begins(self, world: "World", stack: "Stack") -> dict[str, "Tensor"]:
        """What it keeps beside that, when agents begin as copies of one that has learned for all."""
        return {}

    def additions(self) -> tuple["Addition", ...]:
        """What it adds to every step (shoal/learners/additions.py): a term in the loss, say."""
        return ()

    @property
    def room(self) -> int:
        """Received images that it keeps per task, in the lanes' buffers, which belong to one mode alone."""
        return 0

    @property
    def spare(self) -> int:
        """Slots for modules that it needs beyond one per task."""
        return 0

    def first(self, initial: int) -> int:
        """The first task with exchanges, when so many tasks are learned together at the start."""
        if isinstance(self.start, int):
            return self.start
        return initial + (self.start == "grown")

    def period(self, settings: "Settings") -> int:
        """The epochs between two exchanges, after which a question is asked anew and an old one has expired."""
        return settings.learner.epochs if self.every == "task" else self.every

    @property
    def doubt(self) -> str:
        """Why what its settings say may not work, in a sentence that `shoal check` shows; empty: nothing is known."""
        return ""

    def suits(self, settings: "Settings") -> None:
        """Raise if this mode cannot serve such a fleet."""

    def fits(self, sender: "Settings", receiver: "Settings") -> bool:
        """Can an agent of some kind send to one of another?"""
        return serves(self, sender) and serves(self, receiver)

    def uses(self, world: "World", sender: "Lane", receiver: "Lane") -> bool:
        """May this edge carry this mode? It must lead to a neighbour whose net fits, and back if there are answers."""
        sources = len(world.bank.sources)
        near = self.neighbours == "all" or sender.agent % sources == receiver.agent % sources
        there = not self.both_ways or (receiver, sender) in world.edges
        return near and there and self.fits(world.of(sender), world.of(receiver))

    def carries(self, kind: str) -> Carries | None:
        """What mail of some kind holds. A mode that does not say may hold anything: where a site forbids anything, none
        of its mail leaves."""
        return None

    @abstractmethod
    def objection(self, post: "Post", table: "Table", at: int) -> str:
        """Why a receiver does not accept a letter in a table that looks as expected, in a word or two; empty: it does.
        It is asked for each receiver."""

    @abstractmethod
    def welcomes(self, post: "Post", table: "Table") -> bool:
        """Do all receivers take letters that look as expected? If not, or if it takes too long to say, there may be an
        objection to each."""

    def knows(self, world: "World", stack: "Stack", row: int, classes: Sequence[int], x: "Tensor") -> "Tensor | None":
        """What a lane says of inputs x[n, ...] of a task that only others have met, logits [n, len(classes)], if what
        it was sent is enough to answer; else its own tasks are asked."""
        return None

    # What an exchange calls: the verbs of all lanes of a stack. Only the last one writes.

    @abstractmethod
    def asks_of(self, post: "Post") -> Sequence["Mail"]:
        """The questions of all lanes; none, if everybody just sends."""

    @abstractmethod
    def answers_of(self, post: "Post", questions: Sequence["Mail"]) -> Sequence["Mail"]:
        """What everybody sends, given the questions that have arrived."""

    @abstractmethod
    def absorbs_of(self, post: "Post", questions: Sequence["Mail"], answers: Sequence["Mail"]) -> None:
        """Make use of the answers that have arrived; `questions` are those that were answered."""

    @abstractmethod
    def expects(self, world: "World", kind: str, sender: "Lane") -> Mapping[str, "Expected"]:
        """What a message of some kind from `sender` must look like to a receiver of this world."""

    @abstractmethod
    def quote(self, world: "World", room: "Room", other: "World | None" = None) -> list["Quote"]:
        """The largest mail of each kind that one directed edge with at most so much room carries at one exchange, from
        a lane that is in `world` to one that is in the `other` (the same, if not given). Without any room, it is the
        smallest mail that the mode would try to send."""


def serves(mode: Sharing, settings: "Settings") -> bool:
    """Can a mode serve agents of such a kind?"""
    try:
        mode.suits(settings)
    except SettingsError:
        return False
    return True
