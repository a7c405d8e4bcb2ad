"""FedWeIT: what a net is put together of, what is held, what is sent and what comes of it, against numbers by hand."""

from typing import Any

import pytest
import torch

from shoal.agents.stack import MODEL, Stack, start
from shoal.agents.world import World
from shoal.configure.reading import resolve
from shoal.contracts.fleets import ran, saved
from shoal.errors import SettingsError
from shoal.fleet.run import simulate
from shoal.learners.batches import Batch
from shoal.learners.decomposed import ANCHOR, HOLD, hear
from shoal.learners.decomposed import Decomposed as Learner
from shoal.learners.step import Frame
from shoal.letters.mail import ACCEPTED, OUT_OF_RANGE, Mail
from shoal.mail.post import Post
from shoal.models.decomposed import ATTEND, BASE, BIAS, LAST, OTHERS, PART, SCALE, Decomposed
from shoal.sharing.fedweit import FedWeIT, opened, packed, sparse, unpacked
from shoal.sharing.mode import agent_of
from tests.fleets import exchange, fleet

TASKS: dict[str, Any] = {"count": 3, "classes": 2, "initial": 1, "train": 20, "validation": 10, "common": False}
LEARNER: dict[str, Any] = {"epochs": 10, "batch": 20, "rate": 5e-3}
WIDTH, DEPTH = 10, 2


def small(agents: int = 3, share: float = 0.7, **changes: Any) -> World:
    raw = {
        "agents": agents,
        "tasks": TASKS,
        "net": {"width": WIDTH, "depth": DEPTH, "dropout": 0.0},
        "learner": LEARNER,
        "sharing": [{"mode": "fedweit", "every": 5, "share": share}],
        **changes,
    }
    return fleet("decomposed-mlp", **raw)


def net(world: World) -> Decomposed:
    assert isinstance(world.model, Decomposed)
    return world.model


def mode(world: World) -> FedWeIT:
    (found,) = world.settings.sharing
    assert isinstance(found, FedWeIT)
    return found


def at(world: World, task: int, epoch: int) -> Stack:
    """Agents at some moment, not trained."""
    stack = start(world)
    stack.task, stack.epoch = task, epoch
    return stack


def test_weights_are_put_together_of_base_scale_part_and_what_is_attended_to() -> None:
    world = small()
    params = {name: tensor[0] for name, tensor in start(world).params.items()}
    last, others = torch.randn(DEPTH, WIDTH, WIDTH), torch.randn(2, DEPTH, WIDTH, WIDTH)
    found = net(world).weights(params, 1, last, others)
    share = params[ATTEND][1]
    for k in range(DEPTH):
        wanted = params[BASE][k] * params[SCALE][1, k].sigmoid()[:, None] + params[PART][1, k]
        wanted = wanted + share[k, 0] * last[k] + share[k, 1] * others[0, k] + share[k, 2] * others[1, k]
        assert torch.allclose(found[k], wanted, atol=1e-6)
    assert torch.equal(params[PART][2], params[BASE] / 3)  # where parts begin
    x = world.inputs[:4]
    h = torch.relu(x @ found[0].T + params[BIAS][1, 0])
    assert torch.allclose(
        net(world).features(params, x, 1, last=last, others=others),
        torch.relu(h @ found[1].T + params[BIAS][1, 1]),
        atol=1e-6,
    )


def test_what_is_paid_is_the_formula() -> None:
    world = small(learner={**LEARNER, "sparse": 0.01, "drift": 3.0, "decay": 0.2})
    learner = world.settings.learner
    assert isinstance(learner, Learner)
    stack = start(world)
    free = {name: stack.params[name][0, :1] for name in (PART, SCALE)} | {BASE: stack.params[BASE][0]}
    base, part, scale = free[BASE], free[PART], free[SCALE]
    batch = Batch(*(torch.zeros(1) for _ in range(4)))
    hold, anchor = torch.zeros(DEPTH, WIDTH), torch.zeros(DEPTH, WIDTH, WIDTH)

    def paid() -> float:
        return float(learner.penalty(Frame(net(world), free, free, {}, batch, {HOLD: hold, ANCHOR: anchor})))

    small_ = 0.01 * float(part.abs().sum()) + 0.1 * float(part.square().sum() + scale.square().sum())
    assert paid() == pytest.approx(small_ + 0.1 * float(base.square().sum()), rel=1e-5)  # the first task
    earlier = torch.randn(2, DEPTH, WIDTH)  # the scales of two tasks
    hold, anchor = earlier.sigmoid().square().sum(0), torch.randn(DEPTH, WIDTH, WIDTH)
    drift = sum(float(((base - anchor) * one.sigmoid()[..., None]).square().sum()) for one in earlier)
    assert paid() == pytest.approx(small_ + 1.5 * drift, rel=1e-4)


def test_at_the_end_of_a_task_what_it_attended_to_is_folded_into_its_part() -> None:
    world = small(learner={**LEARNER, "sparse": 0.05})
    stack, kept = (made := at(world, 1, 10)), made.of(MODEL)
    kept[LAST].normal_(generator=torch.Generator().manual_seed(0))
    hear(stack, 0, 1, 2, torch.ones(DEPTH, WIDTH, WIDTH))
    before = {name: tensor[0].clone() for name, tensor in stack.params.items()}
    last, others = kept[LAST][0].clone(), kept[OTHERS][0].clone()
    pruned = before[PART].where(before[PART].abs() > 0.05, 0)
    wanted = net(world).weights({**before, PART: pruned}, 1, last, others)
    world.settings.learner.end(world, stack)
    after = {name: tensor[0] for name, tensor in stack.params.items()}
    assert torch.allclose(net(world).weights(after, 1, torch.randn_like(last), None), wanted, atol=1e-6)
    assert torch.equal(kept[LAST][0], pruned[1])  # what is sent has nothing of others in it
    assert 0 < int((kept[LAST][0] == 0).sum()) < kept[LAST][0].numel()
    assert not kept[OTHERS].any()
    assert torch.equal(after[PART][2], before[PART][2])
    assert torch.equal(stack.of("decomposed")[ANCHOR][0], after[BASE])


def test_what_the_base_is_held_at_is_ones_own_and_not_the_average_that_the_next_task_begins_with() -> None:
    run = ran(small())
    states = {(state.task, state.epoch): saved([run.world], [state])[0] for state in run.states}
    ended, begun = states[1, 0], states[1, 1]
    held, now = ended.of(run.world.settings.learner.owner)[ANCHOR], ended.params[BASE]
    assert torch.equal(held, now)
    assert torch.equal(begun.of(run.world.settings.learner.owner)[ANCHOR], held)
    moved, learned = (
        (begun.params[BASE] - now).abs().max(),
        (states[1, 2].params[BASE] - begun.params[BASE]).abs().max(),
    )
    assert moved > 10 * learned  # by averaging, before the first epoch


def test_bits_are_words_and_come_back() -> None:
    bits = torch.rand(3, 70, generator=torch.Generator().manual_seed(0)) > 0.5
    held = packed(bits)
    assert (held.dtype, tuple(held.shape)) == (torch.int32, (3, 3))
    assert torch.equal(unpacked(held, 70), bits)
    part = torch.tensor([[0.0, 2.0], [-3.0, 0.5]])
    assert opened(sparse(part, 3, 9.0), (2, 2)).tolist() == part.tolist()
    assert opened(sparse(part, 2, 9.0), (2, 2)).tolist() == [[0, 2], [-3, 0]]


def test_the_base_is_averaged_unit_by_unit_over_those_that_have_it() -> None:
    world = small(share=0.5)
    stack = at(world, 1, 5)
    post = Post(world, stack, mode(world))
    chosen = torch.stack([mode(world).units(agent_of(post, lane)) for lane in world.lanes])
    assert (chosen.sum(2) == WIDTH // 2).all()
    least, most = (stack.params[SCALE][:, 1].abs()[one] for one in (~chosen, chosen))
    assert float(most.min()) > float(least.min())
    before = stack.params[BASE].clone()
    posted: list[Mail] = []
    exchange(world, stack, observe=lambda mail, verdict: posted.append(mail))
    assert {mail.kind for mail in posted} == {"base"}  # no part is there yet
    for row in range(3):
        theirs = [one for one in range(3) if one != row]
        for k in range(DEPTH):
            for unit in range(WIDTH):
                have = [one for one in range(3) if chosen[one, k, unit]]
                came = any(chosen[one, k, unit] for one in theirs)
                wanted = before[have, k, unit].mean(0) if came else before[row, k, unit]
                assert torch.allclose(stack.params[BASE][row, k, unit], wanted, atol=1e-6)


def test_parts_go_once_before_the_next_task_and_cost_what_is_left_of_them() -> None:
    world = small()
    posted: list[tuple[Mail, str]] = []
    stack = simulate(world, observe=lambda mail, verdict: posted.append((mail, verdict)))
    parts = [mail for mail, verdict in posted if mail.kind == "part" and verdict == ACCEPTED]
    edges = {(mail.sender, mail.receiver, mail.task) for mail in parts}
    assert len(parts) == len(edges) == 6 * 2  # before tasks 1 and 2
    assert {(mail.task, mail.epoch) for mail in parts} == {(1, 0), (2, 0)}
    every = DEPTH * WIDTH**2
    for mail in parts:
        assert 0 < mail.items == len(mail.payload["values"]) < every
        assert mail.floats == mail.items + -(-every // 32)
        assert (mail.payload["values"].abs() > 1e-3).all()
    base = next(mail for mail, _ in posted if mail.kind == "base")
    assert base.floats == DEPTH * (7 * WIDTH + 1 + 1)
    assert not stack.of(MODEL)[OTHERS].any()  # they are dropped at the end of a task


def test_a_part_too_large_for_a_link_goes_with_its_largest_entries_and_the_base_waits() -> None:
    world = small(network={"graph": "complete", "budget": "250 B"})
    stack = at(world, 1, 0)
    stack.of(MODEL)[LAST].normal_(generator=torch.Generator().manual_seed(0))
    posted: list[tuple[Mail, str]] = []
    exchange(world, stack, observe=lambda mail, verdict: posted.append((mail, verdict)))
    for mail, verdict in posted:
        assert (verdict == ACCEPTED) == (mail.kind == "part")
        if mail.kind == "part":
            part = stack.of(MODEL)[LAST][world.row[mail.sender]].abs().flatten()
            assert 1 < mail.items < len(part)
            assert mail.payload["values"].abs().min() >= part.sort(descending=True).values[mail.items - 1]


def test_bits_that_do_not_stand_for_the_numbers_are_refused() -> None:
    world = small()
    stack = at(world, 1, 0)
    stack.of(MODEL)[LAST].normal_(generator=torch.Generator().manual_seed(0))
    post = Post(world, stack, mode(world))
    for mail in mode(world).answers_of(post, []):
        assert mode(world).objects(post, mail) == ACCEPTED
        name = "bits" if mail.kind == "part" else "units"
        payload = {**mail.payload, name: torch.zeros_like(mail.payload[name])}
        wrong = Mail(mail.sender, mail.receiver, "fedweit", mail.kind, payload, mail.items)
        assert mode(world).objects(post, wrong) == OUT_OF_RANGE


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"model": "mlp", "sharing": "fedweit"}, "mode `fedweit` shares a base and parts of tasks, and `mlp` has none"),
        ({"model": "mlp", "learner": "decomposed"}, "the learner `decomposed` trains a base and a part"),
        ({"model": "decomposed-mlp", "learner": "ewc"}, "put together of a base and of parts"),
        ({"model": "decomposed-mlp", "tasks": {"heads": "one"}}, "for agents with a head for each task"),
    ],
)
def test_what_does_not_go_together_is_said_in_a_sentence(words: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said) as caught:
        resolve(words)
    assert "\n" not in str(caught.value)
