"""The law of bad mail: each kind is damaged in every way there is, and each must be refused."""

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from shoal.agents.events import due
from shoal.agents.stack import Stack
from shoal.contracts.fleets import difference
from shoal.contracts.law import law
from shoal.contracts.mode_case import FIRST, Case
from shoal.fleet.exchange import meet_all
from shoal.fleet.here import Here
from shoal.fleet.members import Crew
from shoal.letters.mail import ACCEPTED, LOST, Expected, Mail
from shoal.sharing.contract import Sharing


def bad_mail_is_as_if_it_had_never_come(case: Case) -> None:
    """Each kind of mail from agent 1 to agent 0 is damaged in turn, and nobody else's."""
    for mode in case.modes:
        tested = 0
        for state in case.first.states:
            kinds = sent_kinds(case, mode, state)
            for kind in kinds:
                tested += harmed(case, mode, state, kind)
            if "answer" in kinds.values():
                break
        law(tested > 0, f"`{mode.mode}`: no mail came from agent 1 to agent 0, so there is nothing to test")


def sent_kinds(case: Case, mode: Sharing, state: Stack) -> dict[str, str]:
    """The kinds of mail from agent 1 to agent 0 at the exchange that comes after a moment, and who sends them."""
    _, posted = met(case, mode, state)
    kinds = {mail.kind for mail, verdict in posted if ours(mail, mode) and verdict == ACCEPTED}
    return {kind: "ask" if kind in mode.asking else "answer" for kind in sorted(kinds)}


def harmed(case: Case, mode: Sharing, state: Stack, kind: str) -> int:
    """How many ways to damage mail of a kind there are; each of them must be refused, and nothing else."""
    lost, _ = met(case, mode, state, kind, lambda mail: None)
    ways = 0
    for how in HARM:
        done: list[Mail] = []

        def spoil(mail: Mail, how: str = how, done: list[Mail] = done) -> Mail:
            expected = mode.expects(case.first.world, mail.kind, mail.sender)
            payload = HARM[how](dict(mail.payload), expected)
            done += [] if payload is None else [mail]
            return mail if payload is None else replace(mail, payload=payload)

        end, posted = met(case, mode, state, kind, spoil)
        if not done:
            continue
        verdicts = {verdict for mail, verdict in posted if ours(mail, mode) and mail.kind == kind}
        law(ACCEPTED not in verdicts, f"`{mode.mode}`: mail of kind `{kind}` is accepted where {how}")
        name = difference(end, lost)
        law(
            not name,
            f"`{mode.mode}`: bad mail is as if it had never come, but `{name}` differs after mail of kind `{kind}` "
            f"where {how}",
        )
        ways += 1
    return ways


def ours(mail: Mail, mode: Sharing) -> bool:
    return (mail.mode, mail.sender, mail.receiver) == (mode.mode, FIRST[1], FIRST[0])


def met(
    case: Case,
    mode: Sharing,
    state: Stack,
    kind: str = "",
    change: Callable[[Mail], Mail | None] = lambda mail: mail,
) -> tuple[Stack, list[tuple[Mail, str]]]:
    """A copy of a stack after the exchange that is due, and what was posted, with some of it changed on the way."""
    world, stack, posted = case.first.world, deepcopy(state), []
    settings = world.settings
    if stack.task >= settings.tasks.count or mode not in due(settings, stack.task, stack.epoch):
        return stack, []
    here = Here([world], [stack])

    def changed(mail: Mail) -> Mail | None:
        return change(mail) if ours(mail, mode) and mail.kind == kind else mail

    crew = Crew((world,), [Intercepted(here, changed)], here.ledger, joint=False)
    meet_all(crew, observe=lambda mail, verdict: posted.append((mail, verdict)))
    return stack, posted


class Intercepted:
    """A member whose mail is changed, or lost, after it has left."""

    def __init__(self, here: Here, change: Callable[[Mail], Mail | None]) -> None:
        self.here, self.lanes, self.change = here, here.lanes, change

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        def act(*arguments: Any) -> Any:
            value = getattr(self.here, verb)(*arguments)
            return [self.under_way(*one) for one in value] if verb in ("ask", "answer") else value

        return act

    def under_way(self, mail: Mail, verdict: str) -> tuple[Mail, str]:
        changed = self.change(mail) if verdict == ACCEPTED else mail
        return (mail, LOST) if changed is None else (changed, verdict)


# Ways to damage mail: the payload that no honest sender would send, or None where it has nothing of that sort.

Payload = dict[str, Tensor]
Wanted = Mapping[str, Expected]


def first(
    change: Callable[[Tensor], Any], fits: Callable[[Tensor], bool] = lambda tensor: True
) -> Callable[[Payload, Wanted], Payload | None]:
    """The first tensor that is of a sort is changed."""

    def harm(payload: Payload, expected: Wanted) -> Payload | None:
        name = next((name for name, tensor in payload.items() if fits(tensor)), None)
        return None if name is None else {**payload, name: change(payload[name])}

    return harm


def shorter(payload: Payload, expected: Wanted) -> Payload | None:
    long = [name for name, want in expected.items() if want.shape[:1] == (None,) and len(payload[name])]
    return {**payload, long[0]: payload[long[0]][:-1]} if len(long) > 1 else None


def too_large(payload: Payload, expected: Wanted) -> Payload | None:
    for name, want in bounded(payload, expected):
        if want.below is not None or want.most < FAR:
            return {**payload, name: torch.full_like(payload[name], FAR if want.below is None else want.below)}
    return None


def negative(payload: Payload, expected: Wanted) -> Payload | None:
    for name, want in bounded(payload, expected):
        if want.dtype.is_signed and (want.below is not None or want.least > -FAR):
            return {**payload, name: torch.full_like(payload[name], -1 if want.below is not None else -FAR)}
    return None


def bounded(payload: Payload, expected: Wanted) -> Iterator[tuple[str, Expected]]:
    """The numbers that have bounds."""
    for name, want in expected.items():
        if want.bounded and payload[name].numel():
            yield name, want


def flood(payload: Payload, expected: Wanted) -> Payload | None:
    free = {name: want.shape.index(None) for name, want in expected.items() if None in want.shape}
    if not free or any(not payload[name].shape[axis] for name, axis in free.items()):
        return None
    return {name: one.repeat_interleave(MANY, free[name]) if name in free else one for name, one in payload.items()}


FAR = 1e30
MANY = 1000


HARM: dict[str, Callable[[Payload, Wanted], Payload | None]] = {
    "a tensor is missing": lambda payload, _: dict(list(payload.items())[1:]) if payload else None,
    "a tensor is unknown": lambda payload, _: {**payload, "a gift": torch.zeros(1)},
    "a tensor has another type": first(lambda tensor: tensor.to(torch.float16)),
    "a tensor has another shape": first(lambda tensor: tensor[..., None]),
    "a tensor is shorter than the others": shorter,
    "numbers are none": first(
        lambda tensor: torch.full_like(tensor, torch.nan), lambda one: one.is_floating_point() and one.numel() > 0
    ),
    "a number is too large": too_large,
    "a number is negative": negative,
    "a tensor is sparse": first(Tensor.to_sparse),
    "a tensor has no numbers": first(lambda tensor: tensor.to("meta")),
    "a tensor is none": first(Tensor.tolist),
    "a tensor has a gradient": first(lambda tensor: tensor.clone().requires_grad_(), Tensor.is_floating_point),
    "there is a thousand times as much": flood,
}
