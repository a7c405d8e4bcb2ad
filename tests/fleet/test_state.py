"""State by owner: pieces are views of a stack, owners keep to their own, and rows can be taken and joined."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import pytest
import torch
from torch import Tensor

from shoal import Settings
from shoal.agents.engine import crew
from shoal.agents.stack import Stack, joined, start
from shoal.agents.state import State, guarded
from shoal.agents.world import World
from shoal.agents.worlds import world
from shoal.contracts.fleets import LEARNER, NET, TASKS, difference
from shoal.data import load
from shoal.data.tasks import Lane
from shoal.errors import SettingsError
from shoal.fleet.run import simulate
from shoal.learners.contract import Learner
from shoal.learners.usual import usual_epoch
from shoal.models import heads
from shoal.sharing.uniform import Uniform
from tests.fleets import fleet

LANES = tuple(Lane(seed, agent) for seed in range(2) for agent in range(3))


def small(**changes: Any) -> World:
    """A fleet of six lanes, of a net that needs no more than one for a piece of its own."""
    raw: dict[str, Any] = {"model": "cnn", "tasks": TASKS, "net": NET, "learner": LEARNER, "agents": 3, "seeds": 2}
    return world(Settings(**{**raw, "machine": {"threads": 3}, **changes}), load("digits"))


def plain(lanes: int, **tensors: Tensor) -> State:
    return State(lanes, tensors)


# Pieces


def test_what_is_written_to_a_piece_is_in_the_stack() -> None:
    whole = plain(4, known=torch.zeros(4, 2))
    piece = whole.cut(slice(1, 3))
    piece["known"][0] += 1  # in place
    piece["known"] = piece["known"] + 1  # anew
    assert whole["known"][:, 0].tolist() == [0, 2, 1, 0]
    piece["known"] += 1  # what was written anew is a view too
    assert whole["known"][:, 0].tolist() == [0, 3, 2, 0]


def test_views_of_a_piece_are_made_when_asked_for_and_listed_in_the_order_of_the_stack() -> None:
    whole = plain(4, first=torch.zeros(4), second=torch.ones(4))
    piece = whole.cut(slice(0, 4, 2))
    assert not piece.tensors
    assert (len(piece), "second" in piece, "third" in piece) == (2, True, False)
    piece["second"] += 1
    assert [(name, tensor.tolist()) for name, tensor in piece.items()] == [("first", [0, 0]), ("second", [2, 2])]
    assert whole["second"].tolist() == [2, 1, 2, 1]


def test_the_views_of_a_piece_are_kept_until_the_stack_has_other_tensors() -> None:
    whole = plain(4, known=torch.zeros(4))
    piece = whole.cut(slice(1, 3))
    assert whole.cut(slice(1, 3), piece) is piece
    piece["more"] = torch.ones(2)  # a name of its own is the stack's too
    assert whole.cut(slice(1, 3), piece) is piece
    whole["known"] = torch.ones(4)
    other = whole.cut(slice(1, 3), piece)
    assert other is not piece
    assert other["known"].tolist() == [1, 1]
    assert plain(4, known=torch.zeros(4)).cut(slice(1, 3), other) is not other


def test_a_piece_is_guarded_whether_its_views_were_made_before_or_not() -> None:
    made = small()
    stack = start(made)
    _, piece = stack.pieces(made)[0]
    with guarded(piece, "who", ()):
        piece.params["head.weight"].sum()  # looks, and does not write
    with (
        pytest.raises(SettingsError, match=r"in the state of `steps`"),
        guarded(piece, "who", ()),
    ):
        next(iter(piece.of("steps").values())).add_(1)


def test_a_new_name_in_a_piece_is_new_in_the_stack_and_zero_for_the_others() -> None:
    whole = plain(4)
    first, second = whole.cut(slice(2)), whole.cut(slice(2, 4))
    second["count"] = torch.tensor([7, 8])
    assert whole["count"].tolist() == [0, 0, 7, 8]
    first["count"] = torch.tensor([5, 6])
    assert whole["count"].tolist() == [5, 6, 7, 8]
    second["count"] += 1
    assert whole["count"].tolist() == [5, 6, 8, 9]


def test_a_new_owner_in_a_piece_is_new_in_the_stack() -> None:
    made = small()
    stack = start(made)
    pieces = stack.pieces(made)
    assert [len(piece.lanes) for _, piece in pieces] == [2, 2, 2]
    for at, (_, piece) in enumerate(pieces):
        piece.of("mine")["number"] = torch.full((2,), float(at))
        assert piece.of("mine") is piece.of("mine")
    assert stack.of("mine")["number"].tolist() == [0, 0, 1, 1, 2, 2]
    assert [piece.of("mine")["number"].tolist() for _, piece in stack.pieces(made)] == [[0, 0], [1, 1], [2, 2]]


def test_a_piece_of_a_piece_writes_to_the_stack_too() -> None:
    whole = plain(4)
    whole.cut(slice(3)).cut(slice(1, 3))["x"] = torch.ones(2)
    assert whole["x"].tolist() == [0, 1, 1, 0]


def test_rows_equally_far_apart_are_a_view() -> None:
    whole = plain(6)
    whole["x"] = torch.zeros(6)
    piece = whole.cut(slice(1, 6, 2))
    piece["x"] += 1
    piece["y"] = torch.ones(3, 2)
    assert piece.lanes == 3
    assert whole["x"].tolist() == whole["y"][:, 0].tolist() == [0, 1, 0, 1, 0, 1]


def test_pieces_in_threads_give_the_stack_new_names_at_the_same_time() -> None:
    for _ in range(20):
        whole = plain(8)
        pieces = [whole.cut(slice(2 * at, 2 * at + 2)) for at in range(4)]

        def work(piece: State) -> None:
            for name in "abcdef":
                piece[name] = torch.full((2, 3), float(piece.rows.start))

        crew(pieces, work)
        assert set(whole) == set("abcdef")
        for tensor in whole.values():
            assert tensor[:, 0].tolist() == [0, 0, 2, 2, 4, 4, 6, 6]


def test_a_learner_that_keeps_something_new_in_pieces_keeps_it_in_the_stack() -> None:
    """Every epoch counts, in three pieces side by side as in one."""
    one, three = (
        simulate(small(learner=Counting(epochs=2, memory=4), machine={"threads": threads})) for threads in (1, 3)
    )
    assert difference(one, three) == ""
    assert three.of("counting")["epochs"].tolist() == [6] * 6


class Counting(Learner):
    """Counts its epochs, under a name that it has not declared."""

    method: Literal["counting"] = "counting"

    def epoch(self, world: World, stack: Stack, epoch: int) -> None:
        state = stack.of(self.owner)
        state["epochs"] = state.get("epochs", torch.zeros(len(stack.lanes), dtype=torch.int64)) + 1
        usual_epoch(world, stack, epoch, past=True)


# Rows


def test_rows_are_taken_as_copies_and_joined_in_any_order() -> None:
    stack = start(small())
    stack.of("mine")["x"] = torch.arange(6.0)
    one, two = stack.take([4, 1], [LANES[4], LANES[1]]), stack.take([0, 2, 3, 5], [LANES[row] for row in (0, 2, 3, 5)])
    assert one.of("mine")["x"].tolist() == [4, 1]
    whole = joined([one, two], LANES)
    assert difference(whole, stack) == ""
    one.of("mine")["x"].zero_()
    assert stack.of("mine")["x"].tolist() == [0, 1, 2, 3, 4, 5]


def test_what_some_have_no_name_for_is_zero_when_they_are_joined() -> None:
    stack = start(small())
    one, two = (stack.take(list(rows), [LANES[row] for row in rows]) for rows in (range(2), range(2, 6)))
    two.of("mine")["x"] = torch.ones(4, 2, dtype=torch.int32)
    found = joined([one, two], LANES).of("mine")["x"]
    assert found.dtype == torch.int32
    assert found[:, 0].tolist() == [0, 0, 1, 1, 1, 1]


def test_flat_names_make_the_same_stack() -> None:
    stack = start(small())
    assert "params/module.weight" in stack.tensors
    assert difference(Stack.made(LANES, stack.tensors), stack) == ""


# Whose state it is


class Rude(Uniform):
    mode: Literal["rude"] = "rude"  # type: ignore[assignment]

    def absorb(self, agent: Any, letters: Any) -> None:
        agent._stack.of("memory")["y"][0] += 1


class Hasty(Uniform):
    mode: Literal["hasty"] = "hasty"  # type: ignore[assignment]

    def answer(self, agent: Any, question: Any, to: int) -> Any:
        agent._stack.params["module.bias"][0] += 1
        return super().answer(agent, question, to)


class Thief(Learner):
    method: Literal["thief"] = "thief"

    def epoch(self, world: World, stack: Stack, epoch: int) -> None:
        stack.of("another's")["x"] = torch.zeros(len(stack.lanes))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"sharing": [Rude(every=1)]}, "the mode `rude` wrote `y` in the state of `memory`, which is not its own"),
        (
            {"sharing": [Hasty(every=1)]},
            "the mode `hasty`, before it absorbs, wrote `module.bias` in the state of `params`",
        ),
        (
            {"learner": Thief(epochs=2, memory=4)},
            "the learner `thief` wrote `x` in the state of `another's`, which is not its",
        ),
    ],
)
def test_who_writes_anothers_state_gets_a_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingsError) as caught:
        simulate(small(**changes))
    assert sentence in str(caught.value)
    assert 'list "' in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "write",
    [
        lambda stack: stack.of("mine")["x"].add_(1),
        lambda stack: stack.of("mine").update(x=torch.ones(6)),
        lambda stack: stack.of("mine").update(y=torch.ones(6)),
        lambda stack: stack.of("new").update(x=torch.ones(6)),
        lambda stack: stack.of("mine").pop("x"),
    ],
    ids=["in place", "anew", "a new name", "a new owner", "a name less"],
)
def test_every_way_to_write_is_seen(write: Callable[[Stack], None]) -> None:
    stack = Stack(LANES, {"mine": plain(6, x=torch.zeros(6))})
    with pytest.raises(SettingsError, match="wrote"), guarded(stack, "somebody", ["another"]):
        write(stack)
    stack = Stack(LANES, {"mine": plain(6, x=torch.zeros(6))})
    with guarded(stack, "somebody", ["mine", "new"]):
        write(stack)


def test_to_read_is_not_to_write() -> None:
    stack = Stack(LANES, {"mine": plain(6, x=torch.zeros(6))})
    with guarded(stack, "somebody", []):
        assert stack.of("mine")["x"].sum() + 1 == 1
        assert len(stack.of("nobody's")) == 0


class Keeping(Uniform):
    """Declares a tensor of some shape."""

    mode: Literal["keeping"] = "keeping"  # type: ignore[assignment]
    shape: ClassVar[tuple[int, ...]] = (5,)

    def init(self, world: World) -> Mapping[str, Tensor]:  # type: ignore[override]
        return {"mine": torch.zeros(self.shape)}


class Namesake(Keeping):
    shape: ClassVar[tuple[int, ...]] = (6,)

    @property
    def owner(self) -> str:
        return "memory"


class Core(Uniform):
    mode: Literal["params"] = "params"  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("mode", "sentence"),
    [
        (Keeping(), "the state `mine` of `keeping` must have a row for each of the 6 lanes, got shape [5]"),
        (Namesake(), "two owners of state are called `memory`; give the learner or the sharing mode another name"),
        (Core(), "two owners of state are called `params`; give the learner or the sharing mode another name"),
    ],
)
def test_an_owner_that_cannot_be_gets_a_sentence(mode: Uniform, sentence: str) -> None:
    with pytest.raises(SettingsError) as caught:
        start(small(sharing=[mode.model_copy(update={"every": 1})]))
    assert str(caught.value) == sentence


def test_heads_of_later_tasks_may_begin_at_zero_and_all_else_as_ever() -> None:
    usual, zero = (start(fleet("modular-mlp", net={"head": word})).params for word in ("random", "zero"))
    first = fleet("modular-mlp").settings.tasks.initial
    for name, tensor in zero.items():
        if name in heads.NAMES:
            assert torch.equal(tensor[:, :first], usual[name][:, :first])
            assert not tensor[:, first:].any()
            assert usual[name][:, first:].any()
        else:
            assert torch.equal(tensor, usual[name])
