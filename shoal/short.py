"""Short forms: a sharing mode, or a learner that adds to the loss, of plain functions. What they make is a class like
any other: it has a name and settings, is priced, listed, swept and resumed, and keeps the same laws."""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Literal, get_type_hints

import torch
from pydantic import Field, PositiveInt, create_model
from torch import Tensor

from shoal.agents.stack import Stack, start
from shoal.agents.world import World
from shoal.errors import SettingsError
from shoal.learners.additions import Addition, once_kept, penalised, trains_body
from shoal.learners.contract import Learner
from shoal.learners.step import Frame, Part
from shoal.learners.usual import usual_epoch
from shoal.letters.letter import Letter
from shoal.letters.mail import Expected
from shoal.models.contract import body_shapes
from shoal.models.table import REPLAY
from shoal.own_code import for_whom, running
from shoal.settings.groups import Settings
from shoal.settings.policies import contents
from shoal.sharing.agent import ON
from shoal.sharing.agent import Agent as Agent
from shoal.sharing.body import net_of
from shoal.sharing.contract import Sharing
from shoal.sharing.mode import Draft, Mode, Present, Received
from shoal.weakly import weakly

WEIGHTS = "weights"  # what agents of the same model have in common
LETTER = "letter"
PLAIN = (bool, int, float, str)  # settings whose type their default tells


# Modes


class Short(Mode):
    """What every mode in the short form has in common: everybody sends a letter of tensors to all its neighbours."""

    between: ClassVar[str] = "agents of the same model, net.width, net.depth and net.basis"
    asking: ClassVar[tuple[str, ...]] = ()
    example: ClassVar[Mapping[str, Any]] = {"every": 2}
    functions: ClassVar[Mapping[str, Callable[..., Any]]] = {}  # sends, uses, penalty
    holds: ClassVar[tuple[str, ...]] = ()  # what a letter holds, where it is not weights; nothing: nobody says

    @property
    def letters(self) -> Mapping[str, Letter]:
        what = self.holds if "sends" in self.functions else ("models",)
        return {LETTER: Letter(lambda world: layout(world, self), 1, what, alike=True)}

    def fits(self, sender: Settings, receiver: Settings) -> bool:
        return super().fits(sender, receiver) and net_of(sender) == net_of(receiver)

    def letter(self, agent: Agent) -> dict[str, Tensor]:
        """What an agent sends."""
        if "sends" not in self.functions:
            return agent.weights
        found = called(self, "sends", agent)
        if not isinstance(found, dict) or not found or not all(isinstance(one, Tensor) for one in found.values()):
            raise SettingsError(f"what `{self.mode}` sends must be a dictionary of tensors by name, got {found!r}")
        return {name: tensor.detach() for name, tensor in found.items()}

    def answer(self, agent: Present, question: Received | None, to: int) -> Draft:
        with agent.running("sends"):
            return {name: tensor.cpu() for name, tensor in self.letter(agent).items()}

    def absorb(self, agent: Present, letters: Sequence[Received]) -> None:
        """Use what has come, all letters on a first axis in the order of agents."""
        if not letters:
            return
        come = sorted(letters, key=lambda letter: letter.sender)
        theirs = {name: torch.stack([one[name] for one in come]).to(agent.device) for name in come[0].tensors}
        if "penalty" in self.functions:
            agent.keep(**{ON: torch.ones((), device=agent.device)})
        with agent.running(self.functions["uses"].__name__):
            agent.become(weights_of(self, agent, called(self, "uses", agent, theirs)))


class Penalising(Short):
    """A mode in the short form that also adds to the loss of agents to which something has come."""

    def additions(self) -> tuple[Addition, ...]:
        return (penalised(self.owner, self.acts, self.penalty),)

    def acts(self, world: World, stack: Stack, parts: Mapping[str, Part]) -> bool:
        return ON in stack.of(self.owner) and trains_body(world, parts)

    def penalty(self, frame: Frame) -> Tensor:
        on = frame.state[ON]
        return torch.where(on > 0, called(self, "penalty", frame), 0.0)


def weights_of(mode: Short, agent: Agent, found: Any) -> dict[str, Tensor]:
    """The weights that an agent takes on, by what `uses` returns: some of them, or none."""
    if found is None:
        return {}
    if not mode.writes_weights:
        raise SettingsError(f"`{mode.mode}` says `writes_weights=False` and returns weights; leave one of them out")
    if not isinstance(found, Mapping) or not all(isinstance(one, Tensor) for one in found.values()):
        raise TypeError(f"it returns {found!r:.200}, and weights by name or nothing are needed")
    for name, tensor in found.items():
        have = {one: tuple(value.shape) for one, value in agent.weights.items()}
        if have.get(name) != tuple(tensor.shape):
            raise SettingsError(
                f"`{mode.mode}` returns `{name}` of shape {list(tensor.shape)}, and an agent's weights are "
                f"{', '.join(f'{one} {list(shape)}' for one, shape in have.items())}; return some of these"
            )
    return {name: tensor.detach().float() for name, tensor in found.items()}


@weakly
def layout(world: World, mode: "Short") -> dict[str, Expected]:
    """The types and shapes of a letter: those of weights, or of what an agent would send before anything is learned."""
    model = world.model
    if "sends" not in mode.functions:
        shapes = body_shapes(model)
        return {name: Expected(torch.float32, (units, *shapes[name])) for name, units in model.body.items()}
    one = world.piece([0])
    letter = mode.letter(Agent(one, start(one), 0, mode.owner))
    return {name: Expected(tensor.dtype, tuple(tensor.shape)) for name, tensor in letter.items()}


def mode(
    sends: str | Callable[..., Mapping[str, Tensor]] = WEIGHTS,
    every: int = 5,
    when: Literal["before", "after"] = "before",
    penalty: Callable[..., Tensor] | None = None,
    name: str = "",
    holds: Sequence[str] = (),
    writes_weights: bool = True,
) -> Callable[[Callable[..., Any]], type[Sharing]]:
    """Make a sharing mode of a plain function: what an agent does with what has come to it.

    Every so many epochs, before or after them, all agents send a letter to their neighbours: their `weights`, or what a
    function `sends(agent)` returns, tensors by name, in the same shapes at every exchange. The decorated function is
    called with the agent and with all letters that have come to it, each tensor with a first axis over senders. It
    returns the weights to go on with, or nothing, and may `agent.keep(...)` tensors, which `agent.kept` and a function
    `penalty(frame)`, added to the loss from then on, can read (`Agent` here, `Frame` in shoal/learners/step.py). What
    is not weights `holds` some of what policies speak of (docs/guides/privacy.md); who does not say which is taken to
    hold anything. A mode that never returns weights says `writes_weights=False`: then it goes with learners that keep
    weights as they are.

    Arguments with a default are settings of the mode: write 1.0, and not 1, for one that can be any number. A line
    `rate: how far` in the docstring describes one.

    >>> import shoal
    >>> @shoal.mode(every=5)
    ... def nearer(agent, theirs, rate=0.5):
    ...     "Go a part of the way to the mean of all neighbours."
    ...     return {name: own.lerp(theirs[name].mean(0), rate) for name, own in agent.weights.items()}
    >>> nearer(rate=0.1).rate
    0.1
    """
    if not callable(sends) and sends != WEIGHTS:
        raise SettingsError(f'`sends` is "{WEIGHTS}" or a function of an agent, got {sends!r}')

    held = known_contents(holds)

    def make(uses: Callable[..., Any]) -> type[Sharing]:
        given = {"sends": sends if callable(sends) else None, "uses": uses, "penalty": penalty}
        functions = {word: one for word, one in given.items() if one is not None}
        called_ = name or uses.__name__
        fixed: dict[str, Any] = {
            "mode": (Literal[called_], called_),
            "every": (PositiveInt, Field(every, description="epochs between exchanges")),
            "when": (
                Literal["before", "after"],
                Field(when, description="exchange before or after every so many epochs"),
            ),
        }
        found: type[Short] = made(Penalising if penalty else Short, uses, functions, {"uses": 2}, fixed)
        found.holds, found.writes_weights = held, writes_weights
        return found

    return make


def known_contents(words: Sequence[str]) -> tuple[str, ...]:
    """Words for what mail can hold, all of which policies know."""
    try:
        return tuple(contents(list(words)))
    except ValueError as error:
        raise SettingsError(f"`holds` {error}") from None


# Learners


class Held(Learner):
    """What every learner in the short form has in common: the new task alone, or with replay, and a penalty."""

    teaches: ClassVar[str] = REPLAY
    functions: ClassVar[Mapping[str, Callable[..., Any]]] = {}  # keeps, penalty
    replays: ClassVar[bool] = False

    def epoch(self, world: World, stack: Stack, epoch: int) -> None:
        usual_epoch(world, stack, epoch, past=self.replays)

    def end(self, world: World, stack: Stack) -> None:
        """Keep what the penalty will read."""
        state, lanes = stack.of(self.owner), len(stack.lanes)
        new: dict[str, Tensor] = {}
        for row, end in enumerate(world.ends.tolist()):
            if end <= stack.task:  # its stream has ended
                continue
            agent = Agent(world, stack, row, self.owner)
            who = for_whom([(agent.seed, agent.number)], stack.task, stack.epoch)
            with running(self, f"`keeps` of the learner `{self.method}`", who.__str__):
                found = called(self, "keeps", agent) if "keeps" in self.functions else agent.weights
                for name, tensor in found.items():
                    if name not in new:
                        new[name] = state[name].clone() if name in state else tensor.new_zeros(lanes, *tensor.shape)
                    new[name][row] = tensor.detach()
        state.update(new)

    def additions(self) -> tuple[Addition, ...]:
        return (penalised(self.owner, once_kept(self.owner), self.penalty),)

    def penalty(self, frame: Frame) -> Tensor:
        found: Tensor = called(self, "penalty", frame)
        return found


def penalty(
    function: Callable[..., Tensor] | None = None,
    *,
    keeps: Callable[..., Mapping[str, Tensor]] | None = None,
    replay: bool = False,
    name: str = "",
) -> Any:
    """Make a learner of a plain function: what is added to one agent's loss, from the end of its first task on.

    At the end of a task the weights are kept, or what a function `keeps(agent)` returns, tensors by name, always in the
    same shapes. The decorated function is called with a `Frame` (shoal/learners/step.py): `frame.free` are the weights
    that learn, `frame.state` what was kept. With `replay` the memories of earlier tasks are learned beside a new task.

    Arguments with a default are settings of the learner: write 1.0, and not 1, for one that can be any number.

    >>> import shoal
    >>> @shoal.penalty
    ... def hold(frame, strength=1.0):
    ...     "Weights stay near where the last task has left them."
    ...     return strength * sum((frame.free[name] - old).square().sum() for name, old in frame.state.items())
    >>> hold(strength=0.1).strength
    0.1
    """

    def make(function: Callable[..., Tensor]) -> type[Learner]:
        functions = {"penalty": function} | ({"keeps": keeps} if keeps else {})
        called_ = name or function.__name__
        found: type[Held] = made(Held, function, functions, {}, {"method": (Literal[called_], called_)})
        found.replays = replay
        return found

    return make if function is None else make(function)


# Both


def called(part: Any, word: str, *given: Any) -> Any:
    """What one of the functions returns, with the settings that it asks for."""
    function = part.functions[word]
    return function(*given, **{name: getattr(part, name) for name in settings_of(function, len(given))})


@lru_cache(maxsize=256)
def settings_of(function: Callable[..., Any], given: int) -> tuple[str, ...]:
    """The arguments of a function that are settings: all behind those that it is given."""
    return tuple(inspect.signature(function).parameters)[given:]


def made(
    base: Any,
    main: Callable[..., Any],
    functions: Mapping[str, Callable[..., Any]],
    given: Mapping[str, int],
    fixed: Mapping[str, Any],
) -> Any:
    """The class that some functions make, with the name, place and docstring of the `main` one."""
    fields: dict[str, Any] = dict(fixed)
    for word, function in functions.items():
        for name in settings_of(function, given.get(word, 1)):
            field = field_of(function, name, main)
            if name in base.model_fields or (name in fields and fields[name][1].default != field[1].default):
                whose = (
                    "every such class has"
                    if name in base.model_fields
                    else "another function has, with another default"
                )
                raise SettingsError(f"`{name}` of `{function.__name__}` is a setting that {whose}; rename it")
            fields[name] = field
    create: Callable[..., Any] = create_model
    found = create(main.__name__, __base__=base, __module__=main.__module__, **fields)
    found.__doc__, found.__qualname__ = inspect.getdoc(main) or "", main.__qualname__
    found.functions = functions
    return found


def field_of(function: Callable[..., Any], name: str, main: Callable[..., Any]) -> tuple[Any, Any]:
    """A setting by an argument: its type, or else that of its default, and what a docstring says of it."""
    default = inspect.signature(function).parameters[name].default
    kind = get_type_hints(function, include_extras=True).get(name, type(default))
    if default is inspect.Parameter.empty or (kind is type(default) and kind not in PLAIN):
        raise SettingsError(
            f"`{name}` of `{function.__name__}` is a setting, so it needs a default that is a number, a word, true or "
            f"false, or a type, got {default!r}"
        )
    docs = "\n".join(inspect.getdoc(one) or "" for one in (function, main))
    told = re.search(rf"^\s*{name}: (.+)$", docs, re.MULTILINE)
    return kind, Field(default, description=told[1] if told else f"a setting of {function.__name__}")
