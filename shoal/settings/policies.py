"""Settings of policies: what may leave an agent, whatever its sharing modes want."""

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, Field, NonNegativeFloat, NonNegativeInt, PositiveFloat

from shoal.errors import SettingsError, nearly
from shoal.settings.conditions import Numbers
from shoal.settings.part import Part
from shoal.settings.safety import tables

# What mail can hold. Every mode says which of these its mail holds (`Sharing.carries`).
CONTENTS: dict[str, str] = {
    "images": "images, or rows of other data, with their labels, whether in an answer or in a question",
    "labels": "labels that an agent gives to images of others, and how many images of each class it has",
    "prototypes": "means of features of a class or of a task",
    "models": "weights that all agents of a model have",
    "gradients": "gradients of one's own loss, and squares of them, which say which weights matter",
    "modules": "modules or parts of weights that were grown for a task, with their heads and structures",
    "heads": "heads and biases of a task on a frozen backbone, with the features that they are for",
    "masks": "masks of a frozen backbone for a task, with their heads",
    "questions": "questions and receipts without data: names of classes, what they are worth, scores, votes",
}
CLASSED = ("images", "labels", "prototypes", "modules", "heads", "masks")  # every item of these is of a class, or some


def contents(value: Any) -> Any:
    """Words for what mail can hold; TOML and JSON have lists only, and one word is as good as a list of one."""
    several = [value] if isinstance(value, str) else value
    if several is None or not isinstance(several, (list, tuple)):
        return value
    for word in several:
        if word not in CONTENTS:
            mean = nearly(str(word), CONTENTS, '"')
            raise ValueError(f"cannot have {word!r}; {mean}allowed: {', '.join(CONTENTS)}")
    return tuple(dict.fromkeys(several))


def named(value: Any) -> Any:
    """Classes by number or name; one is as good as a list of one."""
    return tuple(value) if isinstance(value, list) else (value,) if isinstance(value, (int, str)) else value


Contents = Annotated[tuple[str, ...], BeforeValidator(contents)]


class Policy(Part):
    """What may leave some agents, over some links. Where several apply to a link, mail must keep all of them."""

    agents: Numbers = Field((), description="whose mail; nothing said: everybody's")
    to: Numbers = Field((), description="mail to whom; nothing said: to everybody")
    allow: Contents | None = Field(
        None, description=f"what may leave, and nothing else: {', '.join(CONTENTS)}; nothing said: all of it"
    )
    forbid: Contents = Field((), description="what may not leave: the same words")
    forbid_classes: Annotated[tuple[NonNegativeInt | str, ...], BeforeValidator(named)] = Field(
        (), description="classes of which nothing may leave, by number or name; weights of models are of no class"
    )
    per_class: NonNegativeInt | None = Field(
        None, description="images, labels, prototypes, modules, heads or masks of a class over a link in the whole run"
    )
    clip: PositiveFloat | None = Field(
        None, description="how far a model that is sent may be from the one sent before, in all weights together"
    )
    noise: NonNegativeFloat = Field(
        0.0, description="Gaussian noise on every weight that is sent, as a multiple of `clip` (needs shoal[privacy])"
    )
    epsilon: PositiveFloat | None = Field(
        None, description="the privacy that an agent may spend; when it is spent, no model leaves any more"
    )
    delta: float = Field(1e-5, gt=0, lt=1, description="the delta at which epsilon is counted")

    @property
    def private(self) -> bool:
        """Does it change what leaves?"""
        return self.clip is not None


Policies = Annotated[tuple[Policy, ...], BeforeValidator(tables)]


def check(policies: Sequence[Policy], agents: int) -> None:
    """Raise for policies of agents that are none, or that contradict themselves."""
    clipped: list[int] = []
    for at, one in enumerate(policies):
        where = f"`policy[{at}]`"
        if (last := max((*one.agents, *one.to), default=0)) >= agents:
            raise SettingsError(
                f"{where} names agent {last}, but with agents = {agents} the last agent is {agents - 1}; take it out"
            )
        if one.noise and one.clip is None:
            raise SettingsError(f"{where} has noise = {one.noise:g}, a multiple of `clip`, but no `clip`; say one")
        if one.epsilon is not None and not one.noise:
            raise SettingsError(
                f"{where} has epsilon = {one.epsilon:g}, but without `noise` all of it is spent at once; say `noise`"
            )
        if one.private and one.to:
            raise SettingsError(
                f"{where} has a `clip` for some links, but what an agent has sent to anybody counts for its privacy; "
                "leave out `to`"
            )
        clipped += list(one.agents or range(agents)) if one.private else []
    for agent in clipped:
        if clipped.count(agent) > 1:
            raise SettingsError(f"agent {agent} has {clipped.count(agent)} policies with a `clip`; give it one")


class Carries(NamedTuple):
    """What a mail holds, for the policies of its sender's site."""

    what: tuple[str, ...]  # of CONTENTS
    # The tensor that says of which class each item is, or of which ones, as the data counts them; where it is not
    # there, a policy about classes takes the items to be of any.
    classes: str = ""
