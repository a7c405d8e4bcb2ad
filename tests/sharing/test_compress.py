"""Compressed mail: codecs, copies and directions that both ends keep, and the round and traffic tables of gossip
without learning."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from shoal.agents.stack import Stack, start
from shoal.agents.world import World
from shoal.errors import SettingsError
from shoal.letters.mail import LOST, Mail, pack
from shoal.mail import filters as rules
from shoal.mail.filters import Filter, Load, Ways
from shoal.rng import key
from shoal.sharing.codecs import CODECS
from shoal.sharing.fedavg import FedAvg
from shoal.sharing.fedcurv import FedCurv
from shoal.sharing.fedfish import FedFish
from shoal.sharing.fedprox import FedProx
from shoal.sharing.plan import plan
from shoal.testing import check_mode
from tests.command import call
from tests.fleets import exchange, fleet

# Codecs


@pytest.mark.parametrize("name", CODECS)
def test_a_codec_sends_what_it_says_and_its_receiver_reads_it(name: str) -> None:
    codec, n = CODECS[name], 37
    v = torch.from_numpy(key(0, "v").standard_normal((3, n)).astype(np.float32))
    v[2] = 0
    sent = codec.encode(v, 0.2, key(0, "own"), key(0, "both"))
    for part, want in codec.layout(n, 0.2).items():
        assert (sent[part].dtype, tuple(sent[part].shape)) == (want.dtype, (3, *want.shape[1:]))
    found = codec.decode(sent, n, key(0, "both"))
    assert found.shape == v.shape
    assert float((found - v).norm()) < float(v.norm())  # nearer than nothing
    assert not found[2].any()
    for row in range(3):  # a module that goes alone is read as one among others
        alone = {part: one[row : row + 1] for part, one in sent.items()}
        assert torch.equal(codec.decode(alone, n, key(0, "both"))[0], found[row])


def test_codecs_by_hand() -> None:
    v = torch.tensor([[1.0, -4.0, 0.5, 2.0, -0.25]])
    draws = key(0), key(1)
    assert CODECS["topk"].decode(CODECS["topk"].encode(v, 0.4, *draws), 5, key(1)).tolist() == [[0, -4, 0, 2, 0]]
    assert CODECS["sign"].decode(CODECS["sign"].encode(v, 1.0, *draws), 5, key(1)).tolist() == [
        pytest.approx([1.55, -1.55, 1.55, 1.55, -1.55])
    ]
    for name, levels in (("int8", 127), ("int4", 7)):
        many = torch.stack(
            [CODECS[name].decode(CODECS[name].encode(v, 1.0, key(at), key(1)), 5, key(1)) for at in range(400)]
        )
        assert float((many - v).abs().max()) <= 4 / levels + 1e-6
        assert torch.allclose(many.mean(0), v, atol=5 * 4 / levels / 20)  # right on average


# Gossip without learning, by real mail


def gossip(
    rounds: int, agents: int = 8, spread: Callable[[int], Tensor] | None = None, graph: str = "ring", **own: Any
) -> tuple[list[float], list[Mail]]:
    """Agents on a ring whose weights are drawn and only averaged: distances to the mean after every round, relative to
    the first, and the mails of the last round."""
    world, stack = made(agents, graph, rounds, **own)
    if spread is not None:
        stack.params["module.weight"][:, 0] = torch.stack([spread(at) for at in range(agents)])
    return gone_on(world, stack, rounds)


def made(agents: int, graph: Any, rounds: int, width: int = 64, **own: Any) -> tuple[World, Stack]:
    network = graph if isinstance(graph, dict) else {"graph": graph}
    table = {"mode": "fedavg", "every": 1, **own}
    tasks = {"count": 2, "classes": 2, "initial": 1, "train": 2, "validation": 2}
    world = fleet(
        "mlp", agents=agents, network=network, sharing=[table], tasks=tasks, net={"width": width, "depth": 1},
        learner={"epochs": rounds + 1, "memory": 0},
    )  # fmt: skip
    stack = start(world)
    stack.task = 1
    stack.params["module.weight"][:, 0] = torch.stack(
        [torch.from_numpy(key(at, "x").standard_normal((width, width)).astype(np.float32)) for at in range(agents)]
    )
    stack.params["module.bias"].zero_()
    return world, stack


def gone_on(world: World, stack: Stack, rounds: int, seen: list[Mail] | None = None) -> tuple[list[float], list[Mail]]:
    def spread() -> float:
        x = stack.params["module.weight"].double()
        return float((x - x.mean(0)).norm())

    first, found = spread(), []
    seen = [] if seen is None else seen
    for at in range(rounds):
        stack.epoch = at
        seen.clear()
        exchange(world, stack, observe=lambda mail, verdict: seen.append(mail))
        found.append(spread() / first)
    return found, seen


def until(distances: list[float], near: float = 0.01) -> int:
    """The first round at which agents are that near to their mean."""
    return next(at + 1 for at, one in enumerate(distances) if one < near)


MODEL = 4 * 64 * 64  # bytes of a matrix


@pytest.mark.parametrize(
    ("own", "rounds", "models"),
    [
        ({}, 19, 19),
        ({"compress": "int8", "form": "copies"}, 19, 4.8),
        ({"compress": "int8"}, 19, 4.8),
        ({"compress": "int4"}, 19, 2.4),
        pytest.param(  # 18 to 26 with places of four bytes
            {"compress": "topk", "ratio": 0.1, "gamma": 0.4}, (88, 132), 16, marks=pytest.mark.slow
        ),
        ({"compress": "topk", "ratio": 0.1}, 94, 14),  # 19 with places of four bytes; ours have two
        pytest.param({"compress": "topk", "ratio": 0.1, "gamma": 0.1}, 194, 29, marks=pytest.mark.slow),
        pytest.param({"compress": "topk", "ratio": 0.01}, 937, 14, marks=pytest.mark.slow),
        ({"compress": "power", "rank": 16}, 67, 16.7),  # Gaussian differences have no low rank to gain from
    ],
)
def test_gossip_takes_the_rounds_and_the_traffic_of_the_table(own: dict[str, Any], rounds: Any, models: float) -> None:
    least, most = rounds if isinstance(rounds, tuple) else (0.97 * rounds - 1, 1.03 * rounds + 1)
    distances, seen = gossip(int(most) + 2, **own)
    needed = until(distances)
    assert least <= needed <= most
    # What crosses an edge in one direction: the mail of a round, less its biases and the names in it.
    content = max(
        sum(one.nbytes for name, one in mail.payload.items() if "weight" in name or name == "low") for mail in seen
    )
    content -= 4 * 64 * (own.get("compress") == "power")
    assert needed * content / MODEL == pytest.approx(models, rel=0.16 if isinstance(rounds, tuple) else 0.06)


def test_differences_of_low_rank_cost_less_than_half() -> None:
    def low(at: int) -> Tensor:
        mine, ours = key(at, "low").standard_normal((64, 3)), key(0, "ours").standard_normal((3, 64))
        return torch.from_numpy((mine @ ours).astype(np.float32))

    distances, _ = gossip(200, spread=low, compress="power", rank=4)
    assert until(distances) * 4 * 64 / 64**2 < 8.6


def test_a_step_that_is_too_large_does_not_converge_and_is_said_before() -> None:
    gamma = 0.4
    mode = FedAvg(compress="topk", ratio=0.01, gamma=gamma)
    assert f"sharing.fedavg.gamma = {gamma:g} may diverge" in mode.doubt
    assert FedAvg(compress="topk", ratio=0.01, gamma=0.02).doubt == ""
    distances, _ = gossip(160, agents=4, compress="topk", ratio=0.01, gamma=gamma)
    assert distances[-1] > 1 > min(distances)


def test_a_codec_that_is_too_coarse_for_differences_stalls_and_is_said_before() -> None:
    mode = FedAvg(compress="int4", form="difference")
    assert mode.doubt == (
        'sharing.fedavg.form = "difference" stalls with compress = int4: agents have been seen to stay 8 % of the size '
        "of their weights away from their mean, and to move that far apart if they were nearer; use form = "
        '"copies", which has been seen to reach it'
    )
    words = "sharing=fedavg", "sharing.compress=int4", "sharing.form=difference"
    assert mode.doubt in " ".join(call("check", "digits", "seeds=1", *words).out.split())
    converging: list[dict[str, Any]] = [{}, {"compress": "int4"}, {"compress": "int8"}]
    for fine in [*converging, {"compress": "randk", "form": "difference"}]:
        assert FedAvg(**fine).doubt == ""

    def near(at: int) -> Tensor:
        same, own = (key(one, "near").standard_normal((64, 64)) for one in (99, at))
        return torch.from_numpy((same + 0.01 * own).astype(np.float32))

    far, _ = gossip(24, compress="int4", form="difference")
    assert far[-6:] == [pytest.approx(CODECS["int4"].floor, abs=0.01)] * 6
    nearer, _ = gossip(2, spread=near, compress="int4", form="difference")
    assert nearer[-1] > 10
    by_bytes, _ = gossip(34, compress="int8")
    assert by_bytes[-6:] == [pytest.approx(CODECS["int8"].floor, abs=0.001)] * 6


@pytest.mark.parametrize(
    "own", [{"compress": "topk"}, {"compress": "int4"}, {"compress": "power"}, {"compress": "int8"}]
)
def test_the_mean_of_the_fleet_stays(own: dict[str, Any]) -> None:
    world, stack = made(6, "ring", 30, width=16, **own)
    before = stack.params["module.weight"].double().mean(0)
    gone_on(world, stack, 30)
    assert torch.allclose(stack.params["module.weight"].double().mean(0), before, atol=1e-5)


# Lost and refused mail


def luck(ways: Ways, load: Load) -> list[np.random.Generator]:
    """What decides of every mail."""
    edges = [ways.roads.edges[at][1][:2] for at in ways.at.tolist()]
    return [key(0, kind, *ends, ways.now) for kind, ends in zip(load.kinds, edges, strict=True)]


def losing(monkeypatch: pytest.MonkeyPatch, chance: float) -> None:
    """Every mail is lost with some chance."""

    def lost(ways: Ways, load: Load) -> tuple[np.ndarray, np.ndarray]:
        return np.array([one.random() < chance for one in luck(ways, load)]), np.zeros(len(ways.at), np.int64)

    monkeypatch.setattr(rules, "filters", lambda: (*rules.ROW, Filter(sends=lost)))


def copies_agree(world: World, stack: Stack) -> int:
    """How many pairs of ends agree on what the receiver knows of the sender, which all should."""
    state, count = stack.of("fedavg"), 0
    for sender, receiver in world.edges:
        near = {lane: sorted(other for one, other in world.edges if one == lane) for lane in (sender, receiver)}
        out = world.row[sender], near[sender].index(receiver)
        into = world.row[receiver], near[receiver].index(sender)
        mine, theirs = int(state["version"][out][0]), int(state["version"][into][1])
        assert mine - theirs in (0, 1)
        if mine == theirs:
            assert torch.equal(state["mine.module.weight"][out], state["theirs.module.weight"][into])
            count += 1
    return count


@pytest.mark.parametrize("compress", ["topk", "int4", "randk", "sign"])
def test_copies_agree_whatever_is_lost(monkeypatch: pytest.MonkeyPatch, compress: str) -> None:
    losing(monkeypatch, 0.3)
    world, stack = made(4, "ring", 40, width=8, compress=compress, ratio=0.25)
    distances, _ = gone_on(world, stack, 40)
    assert LOST in stack.ledger.words
    assert copies_agree(world, stack) > 0
    assert distances[-1] < 0.5 * distances[0]


def test_directions_agree_whatever_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    losing(monkeypatch, 0.3)
    world, stack = made(4, "ring", 60, width=8, compress="power", rank=2, weights="metropolis")
    before = stack.params["module.weight"].double().mean(0)
    distances, _ = gone_on(world, stack, 60)
    assert LOST in stack.ledger.words
    assert distances[-1] < 0.1
    steps = stack.of("fedavg")["step"]
    assert int(steps.max()) - int(steps.min()) < 30
    assert int(steps.min()) > 10
    gap = (stack.params["module.weight"].double().mean(0) - before).abs().max()
    assert float(gap) < 0.2  # a step of some pair may be half done


def test_late_mail_is_added_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(ways: Ways, load: Load) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(len(ways.at), bool), np.array([one.integers(0, 4) for one in luck(ways, load)])

    monkeypatch.setattr(rules, "filters", lambda: (*rules.ROW, Filter(sends=late)))
    world, stack = made(4, "ring", 60, width=8, compress="topk", ratio=0.25)
    distances, _ = gone_on(world, stack, 60)
    assert copies_agree(world, stack) > 0
    assert distances[-1] < 0.7 * distances[0]


def test_what_a_budget_refuses_changes_no_copy_and_modules_take_turns() -> None:
    table = {"mode": "fedavg", "every": 1, "compress": "topk"}
    base: dict[str, Any] = {
        "tasks": {"count": 3, "classes": 4, "initial": 1, "train": 6, "validation": 4},
        "learner": {"epochs": 12},
    }
    world = fleet("mlp", agents=2, sharing=[table], network={"graph": "complete", "budget": "1 kB"}, **base)
    stack = start(world)
    stack.task = 1
    seen: list[tuple[Mail, str]] = []
    for at in range(8):
        stack.epoch = at
        exchange(world, stack, observe=lambda mail, verdict: seen.append((mail, verdict)))
    firsts = [int(mail.payload["modules"][0]) for mail, _ in seen if mail.kind == "model" and mail.sender.agent == 0]
    assert len(set(firsts)) > 1
    assert all(mail.bytes <= 1000 for mail, verdict in seen if verdict == "accepted")


# What it costs


def test_prices_are_of_packed_mail_and_a_budget_in_bytes_lets_more_through() -> None:
    sizes = {}
    for compress in ("none", *CODECS, "power"):
        world, stack = made(3, "complete", 3, compress=compress)
        (line,) = (one for one in plan([world]) if one.kind == "model")
        seen: list[Mail] = []
        gone_on(world, stack, 1, seen)
        sizes[compress] = {mail.bytes for mail in seen}
        assert {len(pack(mail)[1]) for mail in seen} == sizes[compress] == {line.bytes}
    whole, small = min(sizes["none"]), {name: max(found) for name, found in sizes.items()}
    assert small["int8"] < whole / 3.5
    assert small["int4"] < whole / 6
    assert small["sign"] < whole / 12
    assert small["topk"] < whole / 5
    assert small["randk"] < whole / 7
    assert small["power"] < whole / 18


# Bad input


@pytest.mark.parametrize(
    ("own", "sentence"),
    [
        ({"compress": "zip"}, "there is no codec `zip`; allowed: topk, randk, int8, int4, sign, none, power, or one"),
        ({"compress": "powr"}, r"there is no codec `powr`; did you mean `power`\?"),
        ({"mode": "fedcurv", "compress": "zip"}, "got compress = zip in form copies; use compress = int8, or another"),
        ({"mode": "tracking", "compress": "zip"}, "got compress = zip and weights = mean; use compress = none"),
        (
            {"compress": "topk", "ratio": 0.0},
            r"`sharing.fedavg.ratio` cannot be 0.0; allowed: a finite number above 0 and at most 1",
        ),
        ({"compress": "topk", "gamma": 1.5}, r"`sharing.fedavg.gamma` cannot be 1.5; allowed: .*above 0 and at most 1"),
        ({"compress": "topk", "form": "difference"}, 'form = "difference" compares coded weights number by number'),
        ({"form": "copies"}, "form means nothing with compress = none"),
        ({"compress": "power", "gamma": 0.5}, "gamma means nothing with compress = power"),
        ({"compress": "int8", "weights": "push-sum"}, 'weights = "push-sum" needs whole weights, got compress = int8'),
        ({"compress": "topk", "receipts": True}, "receipts means nothing with compress = topk"),
    ],
)
def test_what_cannot_work_is_said_in_a_sentence(own: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        made(2, "complete", 2, **own)


def test_a_rank_that_no_matrix_has_is_said_in_a_sentence() -> None:
    table = {"mode": "fedavg", "every": 1, "compress": "power", "rank": 9}
    world = fleet("mlp", sharing=[table], net={"width": 8, "depth": 1})
    for work in (lambda: plan([world]), lambda: start(world)):
        with pytest.raises(SettingsError, match=r"sharing.fedavg.rank = 9 is more than the smallest matrix has, 8"):
            work()


def test_fedcurv_takes_int8_alone() -> None:
    with pytest.raises(SettingsError, match="mode `fedcurv` can send what matters as int8"):
        fleet("mlp", sharing=[{"mode": "fedcurv", "compress": "topk"}])


# Laws


# One of each way of sending in the default run; the rest is the same code with other codecs.
USUAL = [
    FedAvg(every=2, compress="topk", form="copies", ratio=0.25),
    FedAvg(every=2, compress="power", rank=2),
    FedAvg(every=2, compress="randk", form="difference"),
]
LONG = [
    *(FedAvg(every=2, compress=name, form="copies", ratio=0.25) for name in CODECS if name != "topk"),
    FedAvg(every=2, compress="topk", weights="metropolis"),
    FedProx(every=2, compress="int4"),
    FedFish(every=2, compress="power", samples=8),
    FedCurv(every=2, compress="int8", samples=8),
]


@pytest.mark.parametrize(
    "mode",
    [*USUAL, *(pytest.param(mode, marks=pytest.mark.slow) for mode in LONG)],
    ids=lambda mode: f"{mode.mode} {mode.compress} {mode.way}",
)
def test_compressed_modes_keep_the_laws(mode: FedAvg) -> None:
    check_mode(mode)
