"""Agents that lie: what they send, who believes it, and that nothing else changes."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from shoal.contracts.fleets import difference, ran, saved
from shoal.errors import SettingsError
from shoal.fleet.placement import deal
from shoal.fleet.run import simulate
from shoal.letters.mail import ACCEPTED, TOO_LARGE, Expected, Mail
from shoal.mail.lies import BUILT_IN, LIES, Truth
from shoal.sharing.body import GROWN, LARGEST, fresh, size
from tests.fleets import FEW, fleet

WEIGHTS = torch.tensor([[1.0, -2.0], [3.0, 4.0]])
MODEL: dict[str, Tensor] = {"weight": WEIGHTS, "modules": torch.tensor([0, 1], dtype=torch.int32)}
IMAGES: dict[str, Tensor] = {
    "images": torch.arange(12, dtype=torch.uint8).view(3, 2, 2),
    "labels": torch.tensor([4, 7, 4], dtype=torch.int32),
}
LOOKS = {
    "weight": Expected(torch.float32, (None, 2)),
    "modules": Expected(torch.int32, (None,), 2),
    "images": Expected(torch.uint8, (None, 2, 2), 17),
    "labels": Expected(torch.int32, (None,), 10),
    "scores": Expected(torch.float32, (None,), least=0.0, most=1.0),
}


def told(does: str, payload: dict[str, Tensor], first: dict[str, Tensor] | None = None) -> dict[str, Any]:
    lie = BUILT_IN[does]
    found = lie.tell(Truth(payload, LOOKS, np.random.default_rng(0), lie.strength, first or {}, {}, 1))
    return {name: tensor.tolist() for name, tensor in found.items()}


def test_what_liars_say() -> None:
    assert told("sign-flip", MODEL) == {"weight": [[-1, 2], [-3, -4]]}
    assert told("scaled", MODEL) == {"weight": [[5, -10], [15, 20]]}
    assert told("constant", MODEL) == {"weight": [[1.5, 1.5], [1.5, 1.5]]}
    assert told("stale", MODEL, {"weight": WEIGHTS - 1}) == {"weight": [[0, -3], [2, 3]]}
    assert told("label-flip", IMAGES) == {"labels": [7, 4, 7]}
    alone = {**IMAGES, "labels": torch.tensor([9, 9, 9], dtype=torch.int32)}
    assert told("label-flip", alone) == {"labels": [0, 0, 0]}
    assert told("label-flip", MODEL) == told("sign-flip", IMAGES) == {}
    poisoned = told("poison", {**MODEL, "scores": torch.tensor([0.1, 0.2])})
    assert poisoned["scores"] == [1, 1]
    assert poisoned["weight"] != MODEL["weight"].tolist()
    assert told("random", IMAGES).keys() == {"images"}


ADAPTIVE = ("a-little", "inner-product", "dissensus")
MODES: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "fedavg": ("mlp", {"every": 2}, ("sign-flip", "scaled", "random", "constant", "stale", *ADAPTIVE)),
    "recv": ("mlp", {"every": 2, "queries": 6}, ("label-flip", "random", "constant", "poison")),
}
CASES = [(mode, lie) for mode, (_, _, lies) in MODES.items() for lie in lies]


@pytest.mark.parametrize(("mode", "lie"), CASES)
def test_every_lie_is_told_and_believed_and_resumes(mode: str, lie: str) -> None:
    model, said, _ = MODES[mode]
    given: dict[str, Any] = {"agents": 3, "tasks": {**FEW, "count": 4}, "sharing": [{"mode": mode, **said}]}
    honest = ran(fleet(model, **given))
    run = ran(fleet(model, **given, faulty={"agents": [2], "does": lie}))
    assert len(run.stack.ledger) == len(honest.stack.ledger)
    pairs = [(one, other) for (one, _), (other, _) in zip(honest.posted, run.posted, strict=True)]

    def changed(one: Mail, other: Mail) -> bool:
        return any(not torch.equal(one.payload[name], other.payload[name]) for name in one.payload)

    begun = pairs[0][0]
    first = [one for one in pairs if (one[0].task, one[0].epoch, one[0].kind) == (begun.task, begun.epoch, begun.kind)]
    assert not any(changed(*pair) for pair in first if pair[0].sender.agent != 2)  # later they have learned from it
    assert any(changed(*pair) for pair in pairs if pair[0].sender.agent == 2)
    lies = [verdict for mail, verdict in run.posted if mail.sender.agent == 2]
    assert ACCEPTED in lies
    assert difference(run.stack, honest.stack)
    state = run.states[len(run.states) // 2]
    (stack,) = saved([run.world], [state])
    assert not difference(simulate(run.world, stack), run.stack)


def test_lies_that_adapt_are_their_formulas() -> None:
    """The receiver has 1, its two honest neighbours have 3 and 5: their mean is 3, their standard deviation sqrt(8/3);
    both pull the receiver by 2 + 4."""
    honest = {"weight": torch.stack([torch.full((2, 2), value) for value in (1.0, 3.0, 5.0)])}
    wanted = {"a-little": 3 - 1.5 * (8 / 3) ** 0.5, "inner-product": -0.3, "dissensus": 1 - 1.5 * (2 + 4) / 2}
    for name, number in wanted.items():
        lie = BUILT_IN[name]
        told = lie.tell(Truth(MODEL, LOOKS, np.random.default_rng(0), lie.strength, {}, honest, 2))
        assert torch.allclose(told["weight"], torch.full((2, 2), number)), name
        assert lie.tell(Truth(IMAGES, LOOKS, np.random.default_rng(0), lie.strength, {}, {}, 1)) == {}


def test_dissensus_undoes_what_averaging_pulls_together() -> None:
    """Of what honest neighbours pull a receiver by, one liar of strength 1 takes all away: it stays where it is."""
    given: dict[str, Any] = {"agents": 3, "tasks": {**FEW, "count": 3}, "sharing": [{"mode": "fedavg", "every": 2}]}
    edges = [{"sender": sender, "receiver": 0} for sender in (1, 2)]
    network = {"graph": "edges", "edges": edges}
    lie = {"agents": [2], "does": "dissensus", "strength": 1.0}
    alone, lied = (
        simulate(fleet("mlp", **{**given, "sharing": []})),
        simulate(fleet("mlp", **given, faulty=lie, network=network)),
    )
    for name, tensor in alone.params.items():
        assert torch.allclose(tensor[0], lied.params[name][0], atol=1e-5), name
    honest = simulate(fleet("mlp", **given, network=network))
    assert difference(honest.take([0], honest.lanes[:1]), alone.take([0], alone.lanes[:1]))


def test_a_seed_whose_liars_adapt_stays_in_one_worker() -> None:
    given: dict[str, Any] = {"agents": 4, "seeds": 2, "tasks": FEW, "sharing": [{"mode": "fedavg", "every": 2}]}
    for does, count in (("stale", 4), ("dissensus", 2)):
        whole = [fleet("mlp", **given, faulty={"agents": [3], "does": does})]
        assert len(deal(whole, 4)) == count


def test_what_a_liar_learns_is_honest() -> None:
    given: dict[str, Any] = {"agents": 2, "tasks": FEW, "sharing": [{"mode": "fedavg", "every": 2}]}
    network = {"graph": "edges", "edges": [{"sender": 0, "receiver": 1}]}
    plain = simulate(fleet("mlp", network=network, **given))
    lying = simulate(fleet("mlp", network=network, **given, faulty={"agents": [0], "does": "random"}))
    assert not difference(plain.take([0], plain.lanes[:1]), lying.take([0], plain.lanes[:1]))
    assert difference(plain.take([1], plain.lanes[1:]), lying.take([1], plain.lanes[1:]))


def test_scaled_weights_do_not_make_those_of_all_grow_without_end() -> None:
    given: dict[str, Any] = {"agents": 4, "tasks": FEW, "learner": {"epochs": 40, "memory": 4, "rate": 1e-4}}
    lying = {"agents": [2, 3], "does": "scaled"}
    world = fleet("mlp", sharing=[{"mode": "fedavg", "every": 1}], **given, faulty=lying)
    stack = simulate(world)
    assert stack.ledger.among("verdict", [TOO_LARGE]).any()
    grown = size({name: stack.params[name][:, :units] for name, units in world.model.body.items()})
    assert float(grown.max()) < LARGEST * GROWN * fresh(world.model)


def test_a_rule_bears_a_liar_that_the_mean_does_not() -> None:
    given: dict[str, Any] = {"agents": 6, "tasks": FEW}

    def end(combine: str, **faulty: Any) -> Tensor:
        table = {"mode": "fedavg", "every": 1, "combine": combine}
        stack = simulate(fleet("mlp", sharing=[table], **given, **faulty))
        return torch.cat([tensor[:5].flatten() for tensor in stack.params.values()])

    lie = {"faulty": {"agents": [5], "does": "scaled"}}
    for rule in ("median", "trimmed", "krum", "multi-krum", "geometric", "clipped"):
        moved = float((end(rule, **lie) - end(rule)).norm())
        assert moved < float((end("mean", **lie) - end("mean")).norm()), rule


def test_liars_that_cannot_be_are_said_in_a_sentence() -> None:
    cases: list[tuple[Any, str]] = [
        ({"agents": [9], "does": "stale"}, r"`faulty\[0\]` names agent 9, but there are 3, counted from 0"),
        ([{"agents": [1], "does": "stale"}, {"agents": [1], "does": "random"}], "agent 1 is in `faulty` 2 times"),
        ({"agents": [1], "does": "sing-flip"}, r"there is no lie `sing-flip`; did you mean `sign-flip`\?"),
        ({"agents": [], "does": "stale"}, r"`faulty\[0\]\.agents` cannot be"),
        ({"agents": [1], "does": "scaled", "strength": 0.0}, r"`faulty\[0\]\.strength` cannot be"),
        ({"agents": [1], "dose": "scaled"}, r"unknown setting `faulty\[0\]\.dose`; did you mean `faulty\[0\]\.does`\?"),
        ("sign-flip", "`faulty` cannot be 'sign-flip'"),
    ]
    for faulty, sentence in cases:
        with pytest.raises(SettingsError, match=sentence):
            fleet("mlp", sharing=[{"mode": "fedavg"}], faulty=faulty)


def test_every_lie_has_a_line_in_lists() -> None:
    assert all(lie.about for lie in LIES.values())
