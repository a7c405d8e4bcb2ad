"""Policies: what may leave an agent, whatever its modes want."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from shoal.contracts.fleets import Run, difference, ran, saved
from shoal.contracts.mode_case import made_of
from shoal.errors import SettingsError
from shoal.fleet.run import simulate
from shoal.letters.mail import (
    ACCEPTED,
    CLASS_FORBIDDEN,
    CLASS_UNSAID,
    CLASS_USED_UP,
    FORBIDDEN,
    POLICY,
    UNDECLARED,
    UNSENT,
)
from shoal.letters.terms import Terms
from shoal.settings.policies import CONTENTS, Carries
from shoal.sharing import sites
from shoal.sharing.modes import MODES
from shoal.sharing.modmod import ModMod
from shoal.sharing.plan import feasible, plan
from shoal.sharing.uniform import Uniform
from shoal.short import mode as short_mode
from tests.fleets import FEW, fleet

UNIFORM: dict[str, Any] = {"mode": "uniform", "every": 2, "images": 10, "memory": 12}


def shared(policy: Any, sharing: Any = UNIFORM, **more: Any) -> Run:
    return ran(fleet("mlp", agents=3, tasks=FEW, sharing=[sharing], policy=policy, **more))


def verdicts(run: Run, **ends: int) -> Counter[str]:
    """The verdicts on mail of some senders or receivers."""
    return Counter(
        verdict for mail, verdict in run.posted if all(getattr(mail, name).agent == one for name, one in ends.items())
    )


def test_policies_hold_for_agents_and_for_links_and_add_up() -> None:
    run = shared([{"agents": [0], "forbid": "images"}, {"agents": [1], "to": [2], "allow": ["models", "questions"]}])
    assert verdicts(run, sender=0).keys() == {FORBIDDEN["images"]}
    assert verdicts(run, sender=1, receiver=2).keys() == {FORBIDDEN["images"]}
    assert verdicts(run, sender=1, receiver=0).keys() == verdicts(run, sender=2).keys() == {ACCEPTED}
    words = run.stack.ledger.column("verdict").tolist()
    assert Counter(words) == verdicts(run)
    assert not run.stack.ledger.crossed[np.array(words) == FORBIDDEN["images"]].any()
    both = [{"allow": ["images", "models"]}, {"forbid": ["images"]}]
    ours = fleet("mlp", sharing=[UNIFORM], policy=both)
    assert ours.terms(*next(iter(ours.edges))) == Terms(frozenset({"models"}))


def test_nothing_of_a_class_that_is_forbidden_leaves_and_the_rest_does() -> None:
    for sharing in (UNIFORM, {"mode": "recv", "every": 2, "queries": 6}, {"mode": "push", "every": 1, "images": 3}):
        free, run = shared((), sharing), shared({"forbid_classes": [0, "digits/1"]}, sharing)
        name = "labels"
        there = [int(one) for mail, _ in free.posted if name in mail.payload for one in mail.payload[name]]
        left = [
            int(one)
            for mail, said in run.posted
            if said not in UNSENT and name in mail.payload
            for one in mail.payload[name]
        ]
        assert {0, 1} & set(there), sharing
        assert left, sharing
        assert not {0, 1} & set(left), sharing
        assert CLASS_FORBIDDEN not in verdicts(run), sharing  # modes leave out what may not leave


def test_a_mode_that_does_not_look_at_policies_is_held_to_them() -> None:
    class Blind(Uniform):
        def answers_of(self, post: Any, questions: Any) -> Any:
            post.permitted = lambda lane, others, kind, classes: np.ones(len(classes), bool)
            return super().answers_of(post, questions)

    blind = Blind(**{name: value for name, value in UNIFORM.items() if name != "mode"})
    run = shared({"forbid_classes": [0]}, blind)
    for mail, verdict in run.posted:
        assert (verdict == CLASS_FORBIDDEN) == (0 in mail.payload["labels"].tolist())
    assert verdicts(run)[CLASS_FORBIDDEN]
    assert CLASS_USED_UP in verdicts(shared({"per_class": 4}, blind))


def test_no_more_items_of_a_class_leave_over_a_link_than_may_and_a_run_that_goes_on_knows_it() -> None:
    run = shared({"per_class": 3})
    counts: Counter[tuple[int, int, int]] = Counter()
    for mail, verdict in run.posted:
        if verdict not in UNSENT:
            ends = mail.sender.agent, mail.receiver.agent
            counts.update((*ends, label) for label in mail.payload["labels"].tolist())
    assert max(counts.values()) == 3
    state = run.states[len(run.states) // 2]
    (stack,) = saved([run.world], [state])
    assert not difference(simulate(run.world, stack), run.stack)


def test_mail_that_does_not_say_its_classes_stays_where_classes_matter() -> None:
    run = shared({"per_class": 100}, {"mode": "recv", "every": 2, "queries": 6, "receive": "none", "labels": "query"})
    assert verdicts(run)[CLASS_UNSAID]
    assert all(said == (ACCEPTED if mail.kind == "question" else CLASS_UNSAID) for mail, said in run.posted)


def test_every_built_in_mode_declares_what_it_sends() -> None:
    for name in MODES:
        mode = made_of(name)
        for kind in mode.asking:
            found = mode.carries(kind)
            assert found is None or set(found.what) <= CONTENTS.keys()
        assert mode.carries("no such kind") is None
    assert made_of("recv").carries("question") == Carries(("images",), "labels")
    assert ModMod(metric="leep").carries("question") == Carries(("images",))


def test_a_mode_that_declares_nothing_is_taken_to_send_anything() -> None:
    @short_mode(every=2, sends=lambda agent: {"x": agent.rows[0].mean(0)})
    def silent(agent: Any, theirs: Mapping[str, Any]) -> None: ...

    @short_mode(every=2, sends=lambda agent: {"x": agent.rows[0].mean(0)}, holds=["prototypes"])
    def honest(agent: Any, theirs: Mapping[str, Any]) -> None: ...

    kinds: dict[str, Any] = {"silent": silent, "honest": honest}  # classes that need no arguments
    for policy in ({"forbid": ["masks"]}, {"per_class": 5}):
        assert verdicts(shared(policy, kinds["silent"]())).keys() == {UNDECLARED}
    assert verdicts(shared({"forbid": ["masks"]}, kinds["honest"]())).keys() == {ACCEPTED}
    with pytest.raises(SettingsError, match=r'`holds` cannot have \'prototype\'; did you mean "prototypes"\?'):
        short_mode(holds=["prototype"])


def test_a_policy_that_forbids_all_that_a_mode_sends_is_said_before_the_run() -> None:
    made = fleet("mlp", agents=3, sharing=[{"mode": "recv", "every": 2}], policy={"allow": ["models"]})
    sentence = "`policy` forbids mode `recv` on every link: its mail of kind `question`, which has images, never leaves"
    with pytest.raises(SettingsError, match=sentence):
        feasible([made])
    some = fleet("mlp", agents=3, sharing=[{"mode": "recv", "every": 2}], policy={"allow": ["models"], "agents": [0]})
    feasible([some])
    (told,) = [one for one in sites.said([some]) if "kind question" in one]
    assert told == "policy: recv cannot send mail of kind question over 2 of 6 edges (images forbidden)"
    lines = [one for one in plan([some]) if one.forbidden]
    assert {(one.kind, one.total_bytes, one.forbidden == one.posted) for one in lines} == {
        ("question", 0, True),
        ("answer", 0, True),
    }
    ask = fleet("modular-mlp", agents=3, sharing=[{"mode": "modmod"}], policy={"allow": ["modules"]})
    with pytest.raises(SettingsError, match="its mail of kind `question`, which has questions, never leaves"):
        feasible([ask])


def test_policies_that_cannot_be_are_said_in_a_sentence() -> None:
    cases: list[tuple[Any, str]] = [
        (
            {"allow": ["image"]},
            r"`policy\[0\]\.allow` cannot have 'image'; did you mean \"images\"\? allowed: images, ",
        ),
        ({"agents": [9]}, r"`policy\[0\]` names agent 9, but with agents = 3 the last agent is 2; take it out"),
        ({"noise": 1.0}, r"`policy\[0\]` has noise = 1, a multiple of `clip`, but no `clip`; say one"),
        (
            {"clip": 1.0, "epsilon": 1.0},
            r"has epsilon = 1, but without `noise` all of it is spent at once; say `noise`",
        ),
        ({"clip": 1.0, "to": [1]}, r"has a `clip` for some links, but what an agent has sent to anybody counts"),
        ([{"clip": 1.0}, {"clip": 2.0, "agents": [1]}], r"agent 1 has 2 policies with a `clip`; give it one"),
        ({"clip": -1.0}, r"`policy\[0\]\.clip` cannot be -1.0"),
        ({"per_class": -1}, r"`policy\[0\]\.per_class` cannot be -1"),
        ({"forbids": ["images"]}, r"unknown setting `policy\[0\]\.forbids`; did you mean `policy\[0\]\.forbid`\?"),
        ("images", "`policy` cannot be 'images'"),
    ]
    for policy, sentence in cases:
        with pytest.raises(SettingsError, match=sentence):
            fleet("mlp", sharing=[UNIFORM], policy=policy)
    made = fleet("mlp", sharing=[UNIFORM], policy={"forbid_classes": ["digits/x"]})
    with pytest.raises(SettingsError, match=r"policy\.forbid_classes has 'digits/x', but the classes of `digits` are"):
        feasible([made])


def test_without_a_policy_a_run_keeps_its_name() -> None:
    plain = fleet("mlp", sharing=[UNIFORM]).settings
    assert plain.identity() == fleet("mlp", sharing=[UNIFORM], policy=[]).settings.identity()
    assert plain.identity() != fleet("mlp", sharing=[UNIFORM], policy={"forbid": "masks"}).settings.identity()
    assert set(POLICY) <= set(UNSENT)
