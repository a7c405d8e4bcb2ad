"""The laws of sharing modes."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shoal.contracts.fleets import (
    TASKS,
    Run,
    bank_of,
    difference,
    engines_agree,
    fleet,
    ran,
    saved,
    settings_of,
    shared_only,
)
from shoal.contracts.law import Law, finishes, keep, law, laws_of
from shoal.data.tasks import Lane
from shoal.errors import SettingsError
from shoal.fleet.members import Crew, Here, Posted
from shoal.fleet.run import simulate, train
from shoal.fleet.stack import PARAMS, Stack
from shoal.fleet.world import World, worlds
from shoal.learners import received
from shoal.mail.ledger import COLUMNS
from shoal.mail.mail import (
    ABSENT,
    ACCEPTED,
    DOWN,
    EXPIRED,
    FORBIDDEN,
    LOST,
    OVER_BUDGET,
    OVERTAKEN,
    SILENT,
    TOO_MUCH,
    UNDECLARED,
    UNDER_WAY,
    UNSENT,
    Expected,
    Mail,
    pack,
)
from shoal.mail.quote import Room
from shoal.models.table import MODELS
from shoal.settings.policies import CONTENTS
from shoal.sharing.clock import due
from shoal.sharing.contract import Sharing
from shoal.sharing.exchange import meet
from shoal.sharing.modes import MODES
from shoal.sharing.plan import quoted
from shoal.units import UNLIMITED, limit

# Two components, and agent 4 alone; of the second seed the first component.
PAIRS = ((0, 1), (1, 0), (2, 3), (3, 2))
FIRST, SECOND, LONELY = (Lane(0, 0), Lane(0, 1)), (Lane(1, 0), Lane(1, 1)), Lane(0, 4)
LANES = (*FIRST, Lane(0, 2), Lane(0, 3), LONELY, *SECOND)
# Three stacks whose agents differ in nothing; every edge goes from one stack to another.
KINDS = ({"name": "odd", "agents": [3, 1]}, {"name": "zero", "agents": [0]})


def check(modes: Sequence[str | type[Sharing] | Sharing], model: str | None = None) -> None:
    """All laws, for modes that act together."""
    with laws(modes, model) as found:
        keep(found)


@contextmanager
def laws(modes: Sequence[str | type[Sharing] | Sharing], model: str | None = None) -> Iterator[list[Law]]:
    """The laws of modes that act together."""
    made = tuple(made_of(one) for one in modes)
    what = " with ".join(f"`{one.mode}`" for one in made)
    with finishes(what):
        yield laws_of(LAWS, Case(what, made, model or model_of(made)))


def made_of(mode: str | type[Sharing] | Sharing) -> Sharing:
    """A mode as it acts in a small fleet: as given, or by its own example."""
    if isinstance(mode, Sharing):
        return mode
    kind = MODES.find(mode) if isinstance(mode, str) else mode
    return kind.model_validate(dict(kind.example))


def model_of(modes: Sequence[Sharing]) -> str:
    """The first model that all modes suit."""
    models = suited(modes)
    if not models:
        settings_of(next(iter(MODELS)), sharing=modes)  # says why not
    return models[0]


def suited(modes: Sequence[Sharing]) -> list[str]:
    """The models that all modes suit."""
    return [model for model in MODELS if serves(model, modes)]


def serves(model: str, modes: Sequence[Sharing]) -> bool:
    try:
        settings_of(model, sharing=tuple(modes))
    except SettingsError:
        return False
    return True


@dataclass
class Case:
    """Modes under test, in fleets of one model, and the runs that several laws ask for."""

    what: str
    modes: tuple[Sharing, ...]
    model: str
    runs: dict[str, Run] = field(default_factory=dict)

    @property
    def owners(self) -> tuple[str, ...]:
        return tuple(one.owner for one in self.modes)

    def small(self, lanes: Sequence[Lane], shared: bool = True, **changes: Any) -> World:
        """A fleet that exchanges several times after its first task."""
        return fleet(self.model, lanes, **self.raw(shared, **changes))

    def raw(self, shared: bool = True, **changes: Any) -> dict[str, Any]:
        sharing = self.modes if shared else ()
        return {"agents": 5, "seeds": 2, "network": edges(PAIRS), "sharing": sharing, **changes}

    @cached_property
    def all(self) -> Run:
        """All lanes, sharing."""
        return ran(self.small(LANES))

    @cached_property
    def alone(self) -> Run:
        """All lanes, each alone."""
        return ran(self.small(LANES, shared=False))

    @cached_property
    def first(self) -> Run:
        """Two agents, sharing, and nobody else."""
        return ran(self.small(FIRST))

    def limited(self, budget: int | str) -> Run:
        """The same with such a budget on every edge."""
        return ran(self.small(FIRST, network=edges(PAIRS, budget=budget)))

    def flowed(self, stack: Stack, where: str) -> None:
        """Mail of every mode has been accepted: a law about mail says nothing where there is none."""
        accepted, silent = (stack.ledger.among("verdict", [word]) for word in (ACCEPTED, SILENT))
        why = str(stack.ledger.column("kind")[silent][0]) if silent.any() else ""
        law(not why, f"{self.what}: its code fails ({why}), and its agents are silent")
        for one in self.modes:
            mine = stack.ledger.among("mode", [one.mode])
            verdicts = sorted(set(stack.ledger.column("verdict")[mine].tolist()))
            law(
                TOO_MUCH not in verdicts,
                f"`{one.mode}`: a quote is an upper bound, but mail was refused {where} as more than `quote` names; "
                "let it name every kind of mail, and the most items and floats that one can have",
            )
            law(
                bool((accepted & mine).any()),
                f"`{one.mode}`: no mail was accepted {where}{refused(verdicts)}, so there is nothing to test; give it "
                "an `example` with which it acts within four epochs and two tasks",
            )

    def same(self, one: Stack, other: Stack, sentence: str, ledger: bool = True) -> None:
        name = difference(one, other)
        law(not name, f"{self.what}: {sentence}, but `{name}` differs")
        if ledger:
            law(rows(one) == rows(other), f"{self.what}: {sentence}, but the ledger differs")

    def as_alone(self, stack: Stack, lanes: Sequence[Lane], sentence: str) -> None:
        mine = stack.take([stack.lanes.index(lane) for lane in lanes], lanes)
        name = difference(mine, self.alone.rows(lanes), shared_only(self.owners))
        law(not name, f"{self.what}: {sentence}, but `{name}` differs")


def refused(verdicts: Sequence[str]) -> str:
    """What became of mail, if there was any."""
    return f" (all was refused: {', '.join(verdicts)})" if verdicts else ""


def edges(pairs: Sequence[tuple[int, int]], **limits: Any) -> dict[str, Any]:
    return {"graph": "edges", "edges": [{"sender": a, "receiver": b, **limits} for a, b in pairs]}


def rows(stack: Stack, lanes: Sequence[Lane] | None = None) -> list[tuple[Any, ...]]:
    """The ledger, or what some lanes have sent, with words."""
    columns = {name: stack.ledger.column(name).tolist() for name in COLUMNS}
    senders = list(zip(columns["seed"], columns["sender"], strict=True))
    found = list(zip(*columns.values(), strict=True))
    return [row for row, sender in zip(found, senders, strict=True) if lanes is None or sender in lanes]


# The laws


def mail_changes_what_is_learned(case: Case) -> None:
    case.flowed(case.all.stack, "in a small fleet")
    for pair in (FIRST, SECOND):  # one of two may have nothing that the other wants
        name = difference(case.all.rows(pair), case.alone.rows(pair), shared_only(case.owners))
        law(bool(name), f"{case.what}: mail was accepted, but agents learn what they learn alone")


def the_ledger_weighs_what_was_packed(case: Case) -> None:
    ledger, posted = case.all.stack.ledger, case.all.posted
    law(len(ledger) == len(posted) > 0, f"{case.what}: the ledger has a row for every mail")
    law(len({mail.id for mail, _ in posted}) == len(posted), f"{case.what}: two mails have the same id")
    found = zip(*(ledger.column(name).tolist() for name in ("floats", "bytes", "verdict")), strict=True)
    for (mail, verdict), row in zip(posted, found, strict=True):
        numbers = sum(tensor.numel() for tensor in mail.payload.values())
        want = numbers, len(pack(mail)[1]), verdict
        law(row == want, f"{case.what}: the ledger says {row} of a mail that is {want} (floats, bytes, verdict)")
        law(mail.sender.seed == mail.receiver.seed, f"{case.what}: mail went from one seed to another")
        law((mail.sender.agent, mail.receiver.agent) in PAIRS, f"{case.what}: mail went where there is no edge")
    carried = sum(use.total.floats for use in ledger.uses.values())
    paid = int(ledger.column("floats")[ledger.crossed].sum())
    law(carried == paid, f"{case.what}: edges have carried {carried} floats, and {paid} were paid for")


def the_same_seed_is_the_same_run(case: Case) -> None:
    again = simulate(case.small(FIRST))
    case.flowed(again, "between two agents")
    case.same(again, case.first.stack, "the same seed is the same run, bit for bit (draw from `shoal.rng.key` alone)")


def strangers_do_not_leak(case: Case) -> None:
    sentence = "agents that exchange nothing with others learn as if these were not there"
    case.same(case.all.rows(FIRST), case.first.stack, sentence, ledger=False)
    law(rows(case.all.stack, FIRST) == rows(case.first.stack), f"{case.what}: {sentence}, but the ledger differs")


def seeds_are_independent(case: Case) -> None:
    apart, sentence = simulate(case.small(SECOND)), "a seed does not depend on other seeds"
    case.flowed(apart, "in the second seed")
    case.same(case.all.rows(SECOND), apart, sentence, ledger=False)
    law(rows(case.all.stack, SECOND) == rows(apart), f"{case.what}: {sentence}, but the ledger differs")


def an_agent_without_edges_is_alone(case: Case) -> None:
    case.as_alone(case.all.stack, [LONELY], "an agent without edges learns as alone among others that share")
    law(not rows(case.all.stack, [LONELY]), f"{case.what}: an agent without edges has sent mail")


def without_edges_all_are_alone(case: Case) -> None:
    stack = simulate(case.small(FIRST, network={"graph": "disconnected"}))
    case.as_alone(stack, FIRST, "without edges all learn as alone")
    law(len(stack.ledger) == 0, f"{case.what}: without edges the ledger is empty")


def with_a_budget_of_zero_all_are_alone(case: Case) -> None:
    broke = tuple(one.model_copy(update={"budget": 0}) for one in case.modes)
    for change in ({"network": edges(PAIRS, budget=0)}, {"sharing": broke}):
        stack = simulate(case.small(FIRST, **change))
        case.as_alone(stack, FIRST, "with a budget of zero all learn as alone")
        verdicts = set(stack.ledger.column("verdict").tolist())
        law(verdicts == {OVER_BUDGET}, f"{case.what}: with a budget of zero all mail is refused, got {verdicts}")


def under_a_policy_that_forbids_it_all_are_alone(case: Case) -> None:
    forbidding: tuple[dict[str, Any], ...] = ({"allow": []}, {"agents": [0, 1], "forbid": list(CONTENTS)})
    for policy in forbidding:
        stack = simulate(case.small(FIRST, policy=policy))
        case.as_alone(stack, FIRST, "under a policy that forbids all contents all learn as alone")
        verdicts = set(stack.ledger.column("verdict").tolist())
        law(
            bool(verdicts) and verdicts <= {*FORBIDDEN.values(), UNDECLARED},
            f"{case.what}: under a policy that forbids all contents all mail is forbidden, got {verdicts}",
        )


def under_a_policy_that_allows_it_the_run_is_the_same(case: Case) -> None:
    stack = simulate(case.small(FIRST, policy={"allow": list(CONTENTS), "forbid_classes": [9], "to": [4]}))
    case.same(stack, case.first.stack, "a policy that forbids nothing changes nothing, bit for bit")


def what_mail_carries_is_declared(case: Case) -> None:
    """A mode may say nothing of its mail; what it says, it says of all of it, in words that policies know."""
    for mail, _ in case.all.posted:
        mode = next(one for one in case.modes if one.mode == mail.mode)
        carried = mode.carries(mail.kind)
        if carried is None:
            continue
        unknown = [what for what in carried.what if what not in CONTENTS]
        words = ", ".join(CONTENTS)
        law(bool(carried.what), f"`{mode.mode}`: mail of kind `{mail.kind}` carries nothing; say one of {words}")
        law(not unknown, f"`{mode.mode}`: mail of kind `{mail.kind}` carries `{unknown}`; the words are {words}")
        law(
            "images" not in mail.payload or "images" in carried.what,
            f"`{mode.mode}`: mail of kind `{mail.kind}` has images, but does not carry them",
        )


def an_edge_leads_one_way(case: Case) -> None:
    """Whether mail flows depends on the mode: one that asks cannot be answered."""
    stack = simulate(case.small(FIRST, network=edges([(0, 1)])))
    case.as_alone(stack, FIRST[:1], "an agent that receives nothing learns as alone")
    law(all(row[3:5] == (0, 1) for row in rows(stack)), f"{case.what}: mail went against the direction of its edge")


def stopped_and_resumed_it_ends_the_same(case: Case) -> None:
    run = case.first
    case.flowed(run.stack, "between two agents")
    for state in run.states[2::3]:
        (stack,) = saved(run.world.settings, [state])
        sentence = f"stopped at task {state.task}, epoch {state.epoch}, saved and resumed it ends where it would have"
        law(stack.ledger.uses == state.ledger.uses, f"{case.what}: {sentence}, but edges forget what they carried")
        case.same(simulate(run.world, stack), run.stack, sentence)


def cut_into_stacks_it_ends_the_same(case: Case) -> None:
    settings = settings_of(case.model, **case.raw(kinds=[dict(kind) for kind in KINDS]))
    parts = worlds(settings, bank_of(case.model), LANES)
    law(len(parts) == len(KINDS) + 1, f"{case.what}: the fleet is cut into stacks")
    found = train(parts)
    for part, stack in zip(parts, found, strict=True):
        sentence = "a fleet that is cut into several stacks ends as in one (agents learn of others through mail alone)"
        case.same(stack, case.all.rows(part.lanes), sentence, ledger=False)
    one, whole = found[0].ledger, case.all.stack.ledger
    law(
        np.array_equal(one.rows, whole.rows) and one.words == whole.words,
        f"{case.what}: cut into several stacks, the ledger has the same rows in the same order",
    )
    case.flowed(found[0], "from stack to stack")


def quotes_are_upper_bounds(case: Case) -> None:
    world = case.all.world
    half = max(1, max((one.floats for mode in case.modes for one in mode.quote(world, Room())), default=0) // 2)
    within_quotes(case, case.all, UNLIMITED)
    within_quotes(case, case.limited(half), half)


def budgets_in_bytes_and_per_task_hold(case: Case) -> None:
    world, start = case.all.world, case.all.world.lanes[0]
    sizes = [one.bytes for mode in case.modes for one in quoted(mode, world, Room(), world, start)]
    most = max(1, *sizes)
    within_quotes(case, case.limited(f"{max(1, most // 2)} B"), f"{max(1, most // 2)} B")
    run = case.limited(f"{most} B/task")
    within_quotes(case, run, f"{most} B/task")
    for state in [one for one in run.states if one.epoch and len(one.ledger)][1:2]:
        (stack,) = saved(run.world.settings, [state])
        sentence = "stopped within a task and resumed, a budget per task knows what was used of it"
        law(stack.ledger.uses == state.ledger.uses, f"{case.what}: {sentence}, but edges forget what they carried")
        case.same(simulate(run.world, stack), run.stack, sentence)


def within_quotes(case: Case, run: Run, budget: int | str) -> None:
    """No mail that left is more than was quoted, no edge carries more than it may, and what was kept back was more."""
    most, epochs = limit(budget), run.world.settings.learner.epochs
    room = Room() if most is None else Room(**{most.unit: most.amount})
    quotes = {
        (mode.mode, one.kind): one
        for mode in case.modes
        for one in quoted(mode, run.world, room, run.world, run.world.lanes[0])
    }
    spent: Counter[tuple[Any, ...]] = Counter()
    for mail, verdict in run.posted:
        quote = quotes.get((mail.mode, mail.kind))
        law(quote is not None, f"`{mail.mode}`: mail of kind `{mail.kind}` was sent, but not quoted")
        weight = 0 if most is None else getattr(mail, most.unit)
        # The end of a task and the start of the next are one moment.
        now = mail.task if most is None or most.per == "task" else mail.task * epochs + mail.epoch
        period = mail.sender, mail.receiver, now
        if most is not None and verdict == OVER_BUDGET:
            law(
                spent[period] + weight > most.amount,
                f"`{mail.mode}`: mail of kind `{mail.kind}` was refused as over budget, but {most} leave room for it",
            )
        if quote is None or verdict in UNSENT:
            continue
        law(
            mail.items <= quote.items and mail.floats <= quote.floats and mail.bytes <= quote.bytes,
            f"`{mail.mode}`: a quote is an upper bound, but with a budget of {budget} mail of kind `{mail.kind}` had "
            f"{mail.items} items, {mail.floats} floats and {mail.bytes} bytes where {quote.items}, {quote.floats} and "
            f"{quote.bytes} were quoted",
        )
        spent[period] += weight
    law(
        most is None or max(spent.values(), default=0) <= most.amount,
        f"{case.what}: an edge carried more than its budget of {most}",
    )


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
    meet(crew, settings, stack.task, stack.epoch, observe=lambda mail, verdict: posted.append((mail, verdict)))
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

    def under_way(self, mail: Mail, verdict: str) -> Posted:
        changed = self.change(mail) if verdict == ACCEPTED else mail
        return (mail, LOST) if changed is None else (changed, verdict)


# Ways to damage mail: the payload that no honest sender would send, or None where it has nothing of that sort.

Payload = dict[str, Tensor]
Wanted = Mapping[str, Expected]


def missing(payload: Payload, expected: Wanted) -> Payload | None:
    return dict(list(payload.items())[1:]) if payload else None


def unknown(payload: Payload, expected: Wanted) -> Payload | None:
    return {**payload, "a gift": torch.zeros(1)}


def other_type(payload: Payload, expected: Wanted) -> Payload | None:
    for name, tensor in payload.items():
        return {**payload, name: tensor.to(torch.float16)}
    return None


def other_shape(payload: Payload, expected: Wanted) -> Payload | None:
    for name, tensor in payload.items():
        return {**payload, name: tensor[..., None]}
    return None


def shorter(payload: Payload, expected: Wanted) -> Payload | None:
    long = [name for name, want in expected.items() if want.shape[:1] == (None,) and len(payload[name])]
    return {**payload, long[0]: payload[long[0]][:-1]} if len(long) > 1 else None


def no_number(payload: Payload, expected: Wanted) -> Payload | None:
    for name, tensor in payload.items():
        if tensor.is_floating_point() and tensor.numel():
            return {**payload, name: torch.full_like(tensor, torch.nan)}
    return None


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


def sparse(payload: Payload, expected: Wanted) -> Payload | None:
    for name, tensor in payload.items():
        return {**payload, name: tensor.to_sparse()}
    return None


def without_numbers(payload: Payload, expected: Wanted) -> Payload | None:
    for name, tensor in payload.items():
        return {**payload, name: tensor.to("meta")}
    return None


def no_tensor(payload: Payload, expected: Wanted) -> Payload | None:
    for name, tensor in payload.items():
        made: Any = {**payload, name: tensor.tolist()}
        return made  # type: ignore[no-any-return]
    return None


def with_gradient(payload: Payload, expected: Wanted) -> Payload | None:
    for name, tensor in payload.items():
        if tensor.is_floating_point():
            return {**payload, name: tensor.clone().requires_grad_()}
    return None


def flood(payload: Payload, expected: Wanted) -> Payload | None:
    free = {name: want.shape.index(None) for name, want in expected.items() if None in want.shape}
    if not free or any(not payload[name].shape[axis] for name, axis in free.items()):
        return None
    return {name: one.repeat_interleave(MANY, free[name]) if name in free else one for name, one in payload.items()}


FAR = 1e30
MANY = 1000


HARM: dict[str, Callable[[Payload, Wanted], Payload | None]] = {
    "a tensor is missing": missing,
    "a tensor is unknown": unknown,
    "a tensor has another type": other_type,
    "a tensor has another shape": other_shape,
    "a tensor is shorter than the others": shorter,
    "numbers are none": no_number,
    "a number is too large": too_large,
    "a number is negative": negative,
    "a tensor is sparse": sparse,
    "a tensor has no numbers": without_numbers,
    "a tensor is none": no_tensor,
    "a tensor has a gradient": with_gradient,
    "there is a thousand times as much": flood,
}


# The laws of bad days: for each, what the network and the agents are like, and a verdict that must be seen there.

LOSSY: dict[str, Any] = {"loss": 0.4}
BURSTY: dict[str, Any] = {"loss": {"share": 0.4, "length": 2}}
SLOW: dict[str, Any] = {"delay": {"least": 0, "most": 2}}
AWAY: dict[str, Any] = {"absent": [{"agents": [1], "epochs": [[5, 7], [9, 10]]}, {"agents": [3], "tasks": [2]}]}
DAYS: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[str, ...]]] = {
    "loss": (LOSSY, {}, (LOST,)),
    "loss in bursts": (BURSTY, {}, (LOST,)),
    "delay": (SLOW, {}, (UNDER_WAY, EXPIRED, OVERTAKEN, ACCEPTED)),
    "absence": ({}, AWAY, (ABSENT,)),
    "all of it": (
        LOSSY | SLOW | {"down": [[6, 7]]},
        AWAY | {"mail": "waits", "joins": [{"agents": [0], "epoch": 5}], "leaves": [{"agents": [2], "epoch": 11}]},
        (LOST, DOWN),
    ),
}


def a_bad_day(case: Case, name: str) -> Run:
    """A run under conditions, in which mail flowed and met them."""
    network, presence, verdicts = DAYS[name]
    if name not in case.runs:
        case.runs[name] = ran(case.small(LANES, network=edges(PAIRS, **network), presence=presence))
    run = case.runs[name]
    said = run.stack.ledger.column("verdict").tolist()
    law(ACCEPTED in said, f"{case.what}: under {name} no mail was accepted, so there is nothing to test")
    law(any(word in said for word in verdicts), f"{case.what}: under {name} no mail was {' or '.join(verdicts)}")
    return run


def on_a_bad_day_strangers_do_not_leak(case: Case) -> None:
    for name in DAYS:
        run, sentence = a_bad_day(case, name), f"under {name} agents learn as if strangers were not there"
        network, presence, _ = DAYS[name]
        apart = simulate(case.small(FIRST, network=edges(PAIRS, **network), presence=presence))
        case.same(run.rows(FIRST), apart, sentence, ledger=False)
        law(rows(run.stack, FIRST) == rows(apart), f"{case.what}: {sentence}, but the ledger differs")
        if not presence:
            case.as_alone(run.stack, [LONELY], f"under {name} an agent without edges learns as alone")


def lost_mail_is_paid_for_and_never_absorbed(case: Case) -> None:
    """Where everything is lost, all learn as alone, and pay as if nothing were."""
    stack = simulate(case.small(FIRST, network=edges(PAIRS, loss=1.0)))
    case.as_alone(stack, FIRST, "where all mail is lost all learn as alone")
    verdicts = set(stack.ledger.column("verdict").tolist())
    law(verdicts == {LOST}, f"{case.what}: where all mail is lost, the ledger says {verdicts}")
    paid = sum(use.total.bytes for use in stack.ledger.uses.values())
    law(0 < paid == int(stack.ledger.column("bytes").sum()), f"{case.what}: lost mail is paid for")


def without_loss_and_delay_it_is_the_same_run(case: Case) -> None:
    calm = {"loss": 0.0, "delay": 0, "down": [[1000, 1001]]}
    stack = simulate(case.small(FIRST, network=edges(PAIRS, **calm), presence={"mail": "waits"}))
    case.same(stack, case.first.stack, "without loss, delay and absence a run is as without conditions, bit for bit")


def late_mail_is_absorbed_at_most_once(case: Case) -> None:
    """Also by agents that were away, and where mail comes when it comes; and what was lost is never absorbed."""
    apart: dict[str, Any] = {"clock": SPEEDS, "network": edges(PAIRS, **WIRES, loss=0.2)}
    days = {
        "delay": {"network": edges(PAIRS, **SLOW)},
        "delay, loss and absence": {"network": edges(PAIRS, **SLOW, loss=0.2), "presence": AWAY | {"mail": "waits"}},
        "clocks of their own": apart,
    }
    for name, changes in days.items():
        absorbed: Counter[str] = Counter()
        stack = simulate(case.small(LANES, sharing=tuple(noting(one, absorbed) for one in case.modes), **changes))
        ledger = stack.ledger
        used = any(set(mode.late.values()) != {"never"} for mode in case.modes)
        late = ledger.column("late").any() or ledger.among("verdict", [UNDER_WAY]).any()
        law(bool(late) or changes is apart, f"{case.what}: under {name} no mail was late")
        law(bool(absorbed) or not used, f"{case.what}: under {name} nothing was absorbed")
        law(max(absorbed.values(), default=1) == 1, f"{case.what}: under {name} mail was absorbed more than once")
        asking = ledger.among("kind", [kind for one in case.modes for kind in one.asking])
        told = int((ledger.among("verdict", [ACCEPTED]) & ~asking).sum())
        law(told == len(absorbed), f"{case.what}: under {name} what the ledger calls accepted is what was absorbed")
        paid = sum(use.total.bytes for use in ledger.uses.values())
        crossed = int(ledger.column("bytes")[ledger.crossed].sum())
        law(paid == crossed, f"{case.what}: under {name} all that left is paid for, lost or late")


def noting(mode: Sharing, absorbed: "Counter[str]") -> Sharing:
    """The same mode, which counts what it absorbs."""
    honest = type(mode).absorb

    class Noting(type(mode)):  # type: ignore[misc]
        def absorb(self, post: Any, questions: Sequence[Mail], answers: Sequence[Mail]) -> None:
            absorbed.update(mail.id for mail in answers)
            honest(self, post, questions, answers)

    found: Sharing = Noting.model_construct(_fields_set=mode.model_fields_set, **dict(mode))
    return found


def on_a_bad_day_stopped_and_resumed_it_ends_the_same(case: Case) -> None:
    for name in DAYS:
        run = a_bad_day(case, name)
        flying = [state for state in run.states if state.inbox] or run.states
        state = flying[len(flying) // 2]
        (stack,) = saved(run.world.settings, [state])
        sentence = f"under {name}, stopped at task {state.task}, epoch {state.epoch}, it ends where it would have"
        law(stack.ledger.uses == state.ledger.uses, f"{case.what}: {sentence}, but edges forget what they carried")
        case.same(simulate(run.world, stack), run.stack, sentence)


def on_a_bad_day_cut_into_stacks_it_ends_the_same(case: Case) -> None:
    for name in ("loss", "all of it"):
        network, presence, _ = DAYS[name]
        run, kinds = a_bad_day(case, name), [dict(kind) for kind in KINDS]
        raw = case.raw(kinds=kinds, network=edges(PAIRS, **network), presence=presence)
        settings = settings_of(case.model, **raw)
        parts = worlds(settings, bank_of(case.model), LANES)
        found = train(parts)
        sentence = f"under {name} a fleet that is cut into several stacks ends as in one"
        for part, stack in zip(parts, found, strict=True):
            case.same(stack, run.rows(part.lanes), sentence, ledger=False)
        law(rows(found[0]) == rows(run.stack), f"{case.what}: {sentence}, but the ledger differs")


# Steps in a task, so that received images make no epoch longer, and clocks that differ with every agent.
ITERATIONS = {"iterations": 8}
SPEEDS = {"pace": "asynchronous", "speed": [100.0, 61.0, 100.0, 47.0, 83.0]}
WIRES = {"bandwidth": "400 kB/s", "latency": "10 ms"}


def equal_clocks_are_lock_step(case: Case) -> None:
    together = simulate(case.small(FIRST, learner=ITERATIONS))
    case.flowed(together, "between two agents")
    for clock in ({"pace": "asynchronous", "speed": 100.0}, {"arrivals": [0.0] * TASKS["count"]}):
        apart = simulate(case.small(FIRST, learner=ITERATIONS, clock=clock))
        sentence = "with equal speeds and nothing under way, clocks of their own come to lock-step"
        name = difference(together, apart, lambda name: name.startswith("clock/") or name in COUNTED)
        law(not name, f"{case.what}: {sentence}, but `{name}` differs")
        law(rows(together) == rows(apart), f"{case.what}: {sentence}, but the ledger differs")


COUNTED = ("record/steps", "record/spent")


def with_clocks_of_their_own_strangers_do_not_leak(case: Case) -> None:
    timed: dict[str, Any] = {"clock": SPEEDS, "network": edges(PAIRS, **WIRES)}
    every = ran(case.small(LANES, **timed))
    case.flowed(every.stack, "between agents with clocks of their own")
    apart = simulate(case.small(FIRST, **timed))
    sentence = "with clocks of their own, agents learn the same whoever else is there"
    case.same(every.rows(FIRST), apart, sentence, ledger=False)
    law(rows(every.stack, FIRST) == rows(apart), f"{case.what}: {sentence}, but the ledger differs")
    own = ran(case.small([LONELY], shared=False, clock=SPEEDS))
    skip = shared_only(case.owners)
    name = difference(every.rows([LONELY]), own.stack, lambda name: skip(name) or name == "clock/busy")
    law(not name, f"{case.what}: an agent without edges learns as alone by a clock of its own, but `{name}` differs")


def with_clocks_of_their_own_it_resumes(case: Case) -> None:
    run = ran(case.small(FIRST, clock=SPEEDS, network=edges(PAIRS, **WIRES)))
    case.flowed(run.stack, "between agents with clocks of their own")
    late = [state for state in run.states[:-1] if state.inbox]
    for state in [*late[len(late) // 2 :][:1], run.states[len(run.states) // 2]]:
        (stack,) = saved(run.world.settings, [state])
        sentence = f"stopped with {len(state.inbox)} mails under way, saved and resumed it ends where it would have"
        case.same(simulate(run.world, stack), run.stack, sentence)


def loop_and_vmap_agree(case: Case) -> None:
    case.flowed(case.first.stack, "between two agents")
    owners = (PARAMS, received.OWNER, *case.owners)
    engines_agree(case.what, case.first, case.model, owners, **case.raw())


LAWS: tuple[Callable[[Case], None], ...] = (
    mail_changes_what_is_learned,
    the_ledger_weighs_what_was_packed,
    the_same_seed_is_the_same_run,
    strangers_do_not_leak,
    seeds_are_independent,
    an_agent_without_edges_is_alone,
    without_edges_all_are_alone,
    with_a_budget_of_zero_all_are_alone,
    under_a_policy_that_forbids_it_all_are_alone,
    under_a_policy_that_allows_it_the_run_is_the_same,
    what_mail_carries_is_declared,
    an_edge_leads_one_way,
    stopped_and_resumed_it_ends_the_same,
    cut_into_stacks_it_ends_the_same,
    quotes_are_upper_bounds,
    budgets_in_bytes_and_per_task_hold,
    bad_mail_is_as_if_it_had_never_come,
    on_a_bad_day_strangers_do_not_leak,
    lost_mail_is_paid_for_and_never_absorbed,
    without_loss_and_delay_it_is_the_same_run,
    late_mail_is_absorbed_at_most_once,
    on_a_bad_day_stopped_and_resumed_it_ends_the_same,
    on_a_bad_day_cut_into_stacks_it_ends_the_same,
    equal_clocks_are_lock_step,
    with_clocks_of_their_own_strangers_do_not_leak,
    with_clocks_of_their_own_it_resumes,
    loop_and_vmap_agree,
)
