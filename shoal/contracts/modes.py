"""The laws of sharing modes."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from shoal.agents import received
from shoal.agents.stack import PARAMS
from shoal.agents.worlds import worlds
from shoal.contracts.bad_days import (
    equal_clocks_are_lock_step,
    late_mail_is_absorbed_at_most_once,
    lost_mail_is_paid_for_and_never_absorbed,
    on_a_bad_day_cut_into_stacks_it_ends_the_same,
    on_a_bad_day_stopped_and_resumed_it_ends_the_same,
    on_a_bad_day_strangers_do_not_leak,
    with_clocks_of_their_own_it_resumes,
    with_clocks_of_their_own_strangers_do_not_leak,
    without_loss_and_delay_it_is_the_same_run,
)
from shoal.contracts.bad_mail import bad_mail_is_as_if_it_had_never_come
from shoal.contracts.fleets import Run, bank_of, difference, engines_agree, saved, settings_of, shared_only
from shoal.contracts.law import Law, finishes, law, laws_of
from shoal.contracts.mode_case import FIRST, KINDS, LANES, LONELY, PAIRS, SECOND, Case, edges, made_of, model_of, rows
from shoal.fleet.run import simulate, train
from shoal.letters.letter import Room
from shoal.letters.mail import FORBIDDEN, OVER_BUDGET, UNDECLARED, UNSENT, pack
from shoal.settings.policies import CONTENTS
from shoal.sharing.contract import Sharing
from shoal.sharing.plan import quoted
from shoal.units import UNLIMITED, limit


@contextmanager
def laws(modes: Sequence[str | type[Sharing] | Sharing], model: str | None = None) -> Iterator[list[Law]]:
    """The laws of modes that act together."""
    made = tuple(made_of(one) for one in modes)
    what = " with ".join(f"`{one.mode}`" for one in made)
    with finishes(what):
        yield laws_of(LAWS, Case(what, made, model or model_of(made)))


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
        (stack,) = saved([run.world], [state])
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
        (stack,) = saved([run.world], [state])
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
