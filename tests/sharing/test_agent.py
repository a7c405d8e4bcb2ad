"""One agent: what may be read of it, kept for it, and what is refused before a run."""

import gc
import weakref
from typing import Any

import pytest
import torch

import shoal
from shoal.configure.reading import resolve
from shoal.errors import SettingsError
from shoal.fleet.run import simulate
from shoal.mail.post import Post
from shoal.sharing.agent import Agent
from shoal.sharing.mode import Present, agent_of, companion_of
from shoal.sharing.modes import MODES
from shoal.sharing.recv import Recv
from tests import golden_modes
from tests.fleets import FEW, entries, fleet, ready, same, total

KINDS: dict[str, Any] = golden_modes.ALL  # classes that need no arguments


def test_an_agent_reads_what_is_its_own() -> None:
    world, stack = ready("mlp", [{"mode": "fedavg"}])
    agent = Agent(world, stack, 1, "fedavg")
    x, y = agent.rows
    kept, classes = agent.memory
    assert (agent.number, agent.seed, agent.clock) == (1, 0, (2, 0))
    assert len(x) == len(y) == FEW["train"] * FEW["classes"]
    assert len(kept) == len(classes) == 8
    assert set(classes.tolist()) <= {one for task in agent.tasks[:2] for one in task.classes}
    assert len(agent.validation(0)[0]) == len(agent.validation(0)[1])
    assert set(agent.predict(x).tolist()) <= set(agent.classes)
    assert torch.equal(agent.predict(x), torch.tensor(agent.classes)[agent.logits(x).argmax(1)])
    agent.keep(mine=torch.ones(3))
    assert torch.equal(Agent(world, stack, 1, "fedavg").kept["mine"], torch.ones(3))
    assert torch.equal(Agent(world, stack, 0, "fedavg").kept["mine"], torch.zeros(3))


def test_an_agent_gives_nothing_of_others_and_nothing_to_write_on() -> None:
    world, stack = ready("mlp", [{"mode": "fedavg"}])
    agent = Agent(world, stack, 1, "fedavg")
    before = {name: tensor.clone() for name, tensor in stack.tensors.items()}
    given = [*agent.weights.values(), *agent.rows, *agent.memory, *agent.validation(0)]
    for tensor in given:
        tensor.zero_()
    assert all(torch.equal(tensor.nan_to_num(), before[name].nan_to_num()) for name, tensor in stack.tensors.items())
    others = {"world", "stack", "row", "lane", "post"}
    assert not others & {name for name in dir(agent) if not name.startswith("_")}


@pytest.mark.parametrize("name", ["halfway", "fedavg"])
def test_a_learner_that_keeps_weights_refuses_modes_that_may_change_them(name: str) -> None:
    mode = KINDS[name]() if name in KINDS else {"mode": name}
    with pytest.raises(SettingsError, match=f"packnet.*{name}.*share by another mode"):
        resolve({"model": "mlp", "learner": "packnet", "sharing": [mode]})


def test_a_mode_that_says_that_it_writes_no_weights_writes_none() -> None:
    @shoal.mode(every=2, writes_weights=False)
    def quiet(agent: Any, theirs: Any) -> None: ...

    @shoal.mode(every=2, writes_weights=False)
    def loud(agent: Any, theirs: Any) -> Any:
        return agent.weights

    kinds: dict[str, Any] = {"quiet": quiet, "loud": loud}
    assert resolve({"model": "mlp", "learner": "packnet", "sharing": [kinds["quiet"]()]})
    with pytest.raises(SettingsError, match="writes_weights=False"):
        simulate(fleet("mlp", sharing=[kinds["loud"]()], tasks={**FEW, "common": False}))


@pytest.mark.parametrize(("mode", "kind", "items"), [("uniform", "images", 3), ("recv", "question", 6)])
def test_an_agent_knows_what_of_its_letters_has_left(mode: str, kind: str, items: int) -> None:
    limits = {"budget": "400 B"} if mode == "uniform" else {}  # mail by mail, and as a bundle
    world, stack = ready("mlp", [{"mode": mode}], network={"graph": "ring", **limits}, agents=4)
    post = Post(world, stack, world.settings.sharing[0])
    assert agent_of(post, world.lanes[1]).sent(kind) == {}
    post.send(post.mode.answers_of(post, []) if mode == "uniform" else post.mode.asks_of(post))
    left = agent_of(post, world.lanes[1]).sent(kind)
    assert left.keys() == {0, 2}
    for letter in left.values():
        assert letter.items == len(letter.tensors["images"]) == items
        if letter.draft:
            assert torch.equal(letter.tensors["images"], world.images(letter.draft["images"][:items]))
    assert bool(left[0].draft) == (mode == "uniform")
    assert agent_of(post, world.lanes[1]).sent("other") == {}


def test_a_world_that_nobody_uses_is_forgotten() -> None:
    world = fleet("mlp", sharing=[KINDS["means"](), {"mode": "fedavg", "every": 2, "compress": "topk"}], tasks=FEW)
    simulate(world)
    seen = weakref.ref(world)
    del world
    gc.collect()
    assert seen() is None


AVERAGING = ("fedavg", "fedprox", "fedcurv", "fedfish", "fedrep", "ditto", "tracking")
RECV = {"mode": "recv", "every": 2, "queries": 6, "nearest": 3, "memory": 12}
MODMOD = {"mode": "modmod", "min_similarity": -1e9, "modules": 2}
EVERY: list[dict[str, Any]] = [RECV, *({"mode": one, **MODES[one].example} for one in AVERAGING)]


@pytest.mark.parametrize(
    ("mode", "limits"),
    [
        *((mode, limits) for mode in EVERY for limits in ({}, {"loss": 0.3}, {"delay": 1})),
        (MODMOD, {}),
        (MODMOD | {"metric": "leep", "compress": "int8"}, {"loss": 0.3}),
        (MODMOD | {"choose": "tryout", "tryout": 2}, {"budget": "4000 B"}),
        (MODMOD | {"accept": "helps", "tryout": 1, "leak": True}, {}),
    ],
    ids=str,
)
def test_a_companion_does_what_the_definition_says(mode: dict[str, Any], limits: dict[str, Any]) -> None:
    """Its verbs for all agents at once come to the same: the same mail, the same weights."""
    ends, model = [], "modular-mlp" if mode["mode"] == "modmod" else "mlp"
    learner = {"accept": -1.0} if model == "modular-mlp" else {}
    for companions in (True, False):
        machine = {"kernel": "torch", "companions": companions}
        world = fleet(model, sharing=[mode], tasks=FEW, learner=learner, network=limits, machine=machine)
        ends.append(simulate(world))
    same(ends[0], ends[1])
    assert entries(ends[0].ledger) == entries(ends[1].ledger)
    assert total(ends[0])


class Mute(Recv):
    """Recv that asks about nothing, in whatever package it says that it is."""

    def ask(self, agent: Present) -> None:  # type: ignore[override]
        return None


@pytest.mark.parametrize("package", ["shoal.sharing.recv", "tests.sharing.test_agent"])
def test_a_companion_never_stands_for_a_subclass(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mute, "__module__", package)
    world, stack = ready("mlp", [{"mode": "recv"}])
    for mode, found in ((Recv(mode="recv"), True), (Mute(mode="recv"), False)):
        post = Post(world, stack, mode)
        assert (companion_of(mode, post) is not None) == found
        assert bool(len(mode.asks_of(post))) == found
