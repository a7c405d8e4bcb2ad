"""Privacy: clipped and noised models, and the account of what they spend."""

import re
from typing import Any

import pytest
import torch

from shoal.contracts.fleets import difference, ran, saved
from shoal.errors import SettingsError
from shoal.fleet.run import simulate
from shoal.letters.mail import ACCEPTED, NOT_CLIPPED, SPENT
from shoal.mail import privacy
from shoal.runs.summaries import spent
from shoal.runs.tables import accounts
from shoal.settings.policies import Policy
from shoal.sharing.plan import feasible
from tests.fleets import FEW, fleet

FEDAVG: dict[str, Any] = {"mode": "fedavg", "every": 2}
ROOM = 5  # releases
TIGHT: dict[str, Any] = {"clip": 0.01, "noise": 4.0, "delta": 1e-5}


def made(policy: Any, sharing: Any = FEDAVG, **more: Any) -> Any:
    return fleet("mlp", agents=3, tasks={**FEW, "count": 4}, sharing=[sharing], policy=policy, **more)


def test_epsilon_is_that_of_the_accountant() -> None:
    pytest.importorskip("dp_accounting")
    # The exact value for one Gaussian release with half the noise, as for any two sets of data, is 1.993.
    assert 1.9930 <= privacy.epsilon(4.0, 1e-5, 1) <= 2.2
    assert 7.511 <= privacy.epsilon(4.0, 1e-5, 10) <= 8.1
    assert privacy.epsilon(4.0, 1e-5, 0) == 0
    policy = Policy(**TIGHT, epsilon=privacy.epsilon(4.0, 1e-5, ROOM))
    assert privacy.affordable(policy) == ROOM
    assert privacy.affordable(Policy(clip=1.0, noise=1.0)) > 10**9


def test_a_release_is_what_was_known_and_a_clipped_change_the_same_for_all() -> None:
    """Without noise, so that the change can be seen; and nothing counts privacy then."""
    run = ran(made({"clip": 0.5}))
    sent = [mail for mail, verdict in run.posted if mail.sender.agent == 0]
    assert all(verdict == ACCEPTED for _, verdict in run.posted)
    assert spent(run.world.settings, [run.stack]) == {}
    start = run.world.model.start
    from shoal.rng import key

    known = {name: one for name, one in start(key(*sent[0].sender, "weights")).items() if name in run.world.model.body}
    for one, other in zip(sent[::2], sent[1::2], strict=True):
        assert (one.receiver.agent, other.receiver.agent) == (1, 2)
        gaps = []
        for name in known:
            assert torch.equal(one.payload[name], other.payload[name])
            gaps.append((one.payload[name] - known[name][: len(one.payload[name])]).double().flatten())
            known[name] = one.payload[name]
        assert float(torch.cat(gaps).norm()) <= 0.5 + 1e-4
    plain = ran(made({"clip": 1e6}))
    open_ = ran(made(()))
    pairs = zip(plain.posted, open_.posted, strict=True)
    far = [float((one.payload[n] - two.payload[n]).abs().max()) for (one, _), (two, _) in pairs for n in known]
    assert max(far) < 1e-5  # a wide clip changes nothing but by rounding


def test_a_spent_account_stops_models_and_a_run_that_goes_on_knows_it() -> None:
    pytest.importorskip("dp_accounting")
    policy = {**TIGHT, "epsilon": privacy.epsilon(4.0, 1e-5, ROOM)}
    run = ran(made([{**policy, "agents": [0, 1]}]))
    for agent in (0, 1):
        mine = [verdict for mail, verdict in run.posted if mail.sender.agent == agent]
        assert mine == [ACCEPTED] * (2 * ROOM) + [SPENT] * (len(mine) - 2 * ROOM)
        assert SPENT in mine
    assert all(verdict == ACCEPTED for mail, verdict in run.posted if mail.sender.agent == 2)
    table = accounts(run.world.settings, [run.stack])
    assert table["releases"].to_list() == [ROOM, ROOM]
    told = spent(run.world.settings, [run.stack])
    assert told["epsilon"].keys() == {"0", "1"}
    assert max(told["epsilon"].values()) <= policy["epsilon"] + 1e-4
    for state in (run.states[2], run.states[len(run.states) // 2]):
        (stack,) = saved([run.world], [state])
        assert not difference(simulate(run.world, stack), run.stack)


def test_noise_is_as_large_as_it_says_and_is_not_the_same_twice() -> None:
    pytest.importorskip("dp_accounting")
    run, plain = ran(made({"clip": 1e-3, "noise": 100.0})), ran(made({"clip": 1e-3}))
    sent = [[mail for mail, _ in one.posted if mail.sender.agent == 0][::2] for one in (run, plain)]
    names = [name for name in run.world.model.body if sent[0][0].payload[name].numel() > 100]
    first = [sent[0][0].payload[name] - sent[1][0].payload[name] for name in names]
    noise = torch.cat([one.flatten() for one in first])
    assert 0.09 < float(noise.std()) < 0.11
    second = sent[0][1].payload[names[0]] - sent[0][0].payload[names[0]]
    assert float(torch.corrcoef(torch.stack([first[0].flatten(), second.flatten()]))[0, 1].abs()) < 0.2


def test_agents_that_begin_as_copies_have_that_beginning_as_known() -> None:
    world = fleet("mlp", agents=3, tasks={**FEW, "common": True}, sharing=[FEDAVG], policy={"clip": 1e-9})
    run = ran(world)
    sent = [mail for mail, verdict in run.posted if verdict == ACCEPTED]
    assert sent
    for name in world.model.body:  # nobody can move away from where all began
        assert all(torch.allclose(one.payload[name], sent[0].payload[name], atol=1e-6) for one in sent)


def test_what_cannot_be_clipped_does_not_leave() -> None:
    for mode in ({"mode": "fedcurv", "every": 2}, {"mode": "fedavg", "every": 2, "compress": "int8"}):
        world = made({"clip": 1.0}, mode)
        with pytest.raises(SettingsError, match=rf"`policy` forbids mode `{mode['mode']}` on every link.*not clipped"):
            feasible([world])
        run = ran(world)
        assert {verdict for mail, verdict in run.posted if mail.kind == "model"} == {NOT_CLIPPED}


def test_an_account_that_is_spent_at_once_is_said_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(privacy, "find_spec", lambda name: None)
        with pytest.raises(SettingsError, match=r"policy\.noise needs the package dp-accounting"):
            feasible([made({"clip": 1.0, "noise": 1.0})])
    pytest.importorskip("dp_accounting")
    with pytest.raises(SettingsError, match=r"policy\.epsilon = 0\.1 is spent before the first model leaves"):
        feasible([made({"clip": 1.0, "noise": 1.0, "epsilon": 0.1})])


def test_noise_that_no_receiver_would_take_is_said_before_the_run() -> None:
    """All models that left were refused as too large, the rest was spent, and nobody said so."""
    pytest.importorskip("dp_accounting")
    world = made({"clip": 1.0, "noise": 8.0, "epsilon": 4.0, "delta": 1e-5})
    with pytest.raises(SettingsError, match=r"no model would be accepted, and privacy be spent for nothing") as caught:
        feasible([world])
    clip = float(re.search(r"set policy\.clip to (\S+) or less", str(caught.value))[1])  # type: ignore[index]
    world = made({"clip": clip, "noise": 8.0, "epsilon": 4.0, "delta": 1e-5})
    feasible([world])
    run = ran(world)
    left = [verdict for _, verdict in run.posted if verdict != SPENT]
    assert left
    assert set(left) == {ACCEPTED}
