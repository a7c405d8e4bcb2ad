"""The laws of bad days: loss, delay and absence, and clocks that differ with every agent."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from shoal.agents.worlds import worlds
from shoal.contracts.fleets import TASKS, Run, bank_of, difference, ran, saved, settings_of, shared_only
from shoal.contracts.law import law
from shoal.contracts.mode_case import FIRST, KINDS, LANES, LONELY, PAIRS, Case, edges, rows
from shoal.fleet.run import simulate, train
from shoal.letters.mail import ABSENT, ACCEPTED, DOWN, EXPIRED, LOST, OVERTAKEN, UNDER_WAY, Mail
from shoal.sharing.contract import Sharing

# Of each bad day: what the network and the agents are like, and verdicts of which one must be seen.
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
    honest = type(mode).absorbs_of

    class Noting(type(mode)):  # type: ignore[misc]
        def absorbs_of(self, post: Any, questions: Sequence[Mail], answers: Sequence[Mail]) -> None:
            absorbed.update(mail.id for mail in answers)
            honest(self, post, questions, answers)

    found: Sharing = Noting.model_construct(_fields_set=mode.model_fields_set, **dict(mode))
    return found


def on_a_bad_day_stopped_and_resumed_it_ends_the_same(case: Case) -> None:
    for name in DAYS:
        run = a_bad_day(case, name)
        flying = [state for state in run.states if state.inbox] or run.states
        state = flying[len(flying) // 2]
        (stack,) = saved([run.world], [state])
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
        (stack,) = saved([run.world], [state])
        sentence = f"stopped with {len(state.inbox)} mails under way, saved and resumed it ends where it would have"
        case.same(simulate(run.world, stack), run.stack, sentence)
