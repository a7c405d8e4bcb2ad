"""Code of the user's own that fails: it is said which, for whom and when, with its own traceback."""

import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple

import pytest

import shoal
from shoal.errors import CodeError, UserError
from shoal.runs.metrics import METRICS
from tests.command import call

GROUPS: dict[str, Any] = {
    "agents": 2, "tasks": {"count": 3, "classes": 2, "train": 8, "validation": 4, "initial": 1, "common": False},
    "learner": {"epochs": 2, "batch": 8, "memory": 4}, "machine": {"threads": 1},
}  # fmt: skip
# A module with one of each, whose middle a case replaces.
PLACES = {
    "mode": """
        @shoal.mode(every=1)
        def mine(agent, theirs):
            {body}
        """,
    "sender": """
        def send(agent):
            {body}
        @shoal.mode(sends=send, every=1)
        def mine(agent, theirs):
            return None
        """,
    "long mode": """
        from shoal.sharing.fedavg import FedAvg
        class mine(FedAvg):
            mode: str = "mine"
            def answer(self, agent, question, to):
                {body}
        """,
    "judge": """
        from shoal.sharing.fedavg import FedAvg
        class mine(FedAvg):
            mode: str = "mine"
            def welcomes(self, post, bundle):
                return False
            def objects(self, post, mail):
                {body}
        """,
    "learner": """
        from shoal.learners.contract import Learner
        class mine(Learner):
            method: str = "mine"
            def epoch(self, world, stack, epoch):
                super().epoch(world, stack, epoch)
                {body}
        """,
    "penalty": """
        @shoal.penalty
        def mine(frame):
            first = next(iter(frame.free.values()))
            {body}
        """,
    "net": """
        class mine(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(64, 4)
                self.calls = 0
            def forward(self, x):
                self.calls += self.training
                h = self.layer(x.flatten(1))
                {body}
                return h
        """,
    "metric": """
        def mine(run):
            {body}
        """,
    "scenario": """
        from dataclasses import replace
        from shoal.data.scenarios import SCENARIOS
        from shoal.data.tasks import Stream
        def mine(bank, settings, lanes):
            found = next(iter(SCENARIOS.values()))(bank, settings, lanes)
            {body}
            return found
        """,
    "graph": """
        import networkx
        def mine(agents, p, rng):
            graph = networkx.complete_graph(agents)
            {body}
            return graph
        """,
}
THEIRS, SENTENCE, DIVERGED, FINE = "their traceback", "a sentence", "diverged", "fine"


class Case(NamedTuple):
    """A place, what stands there, what must come of it, and a word that must be said."""

    place: str
    body: str
    comes: str
    says: str = ""


NAN = "{name: own * float('nan') for name, own in agent.weights.items()}"
CASES = [
    Case("mode", "raise KeyError('page')", THEIRS, "KeyError: 'page'"),
    Case("mode", f"return {NAN}", DIVERGED),
    Case("mode", "return {name: own[..., :1] for name, own in agent.weights.items()}", SENTENCE, "shape"),
    Case("mode", "return torch.zeros(3)", SENTENCE, "weights by name"),
    Case("mode", "sys.exit(0)", THEIRS, "SystemExit: 0"),
    Case("mode", "return {name: own.long() for name, own in agent.weights.items()}", FINE),
    Case("mode", "[one.zero_() for one in theirs.values()]", FINE),
    Case("mode", "agent.rows[1].fill_(77)", FINE),
    Case("sender", "raise KeyError('page')", THEIRS, "KeyError: 'page'"),
    Case("sender", "return None", SENTENCE, "must be a dictionary of tensors"),
    Case("long mode", "raise KeyError('page')", THEIRS, "`answer` of the mode `mine`"),
    Case("long mode", "return 7", SENTENCE, "`answer` of the mode `mine`"),
    Case("long mode", "return ['a letter']", SENTENCE, "no mail"),
    Case("long mode", "agent._stack.params.clear()", SENTENCE, "mine"),
    Case("judge", "raise IndexError('too short')", THEIRS, "`objects` of the mode `mine` fails for agent"),
    Case("judge", "return 7", SENTENCE, "a word or nothing"),
    Case("learner", "raise KeyError('page')", THEIRS, "`epoch` of the learner `mine`"),
    Case("learner", "stack.params['head.weight'].mul_(float('nan'))", DIVERGED),
    Case("learner", "sys.exit(3)", THEIRS, "SystemExit: 3"),
    Case("learner", "world.inputs.zero_()", SENTENCE, "which all agents learn from"),
    Case("penalty", "raise KeyError('page')", THEIRS, "the penalty of `mine`"),
    Case("penalty", "return first.sum() * float('nan')", DIVERGED),
    Case("penalty", "return first.flatten()", SENTENCE, "one number is needed"),
    Case("penalty", "return None", SENTENCE, "one number is needed"),
    Case("penalty", "return 3", SENTENCE, "the gradient of the penalty of `mine`"),
    Case("penalty", "sys.exit()", THEIRS, "SystemExit"),
    Case("net", "if self.calls > 6: raise KeyError('page')", THEIRS, "KeyError: 'page'"),
    Case("net", "raise KeyError('page')", THEIRS, "KeyError: 'page'"),
    Case("net", "return h * float('nan')", DIVERGED),
    Case("net", "return h[:, 0]", SENTENCE, "a row of features for each is needed"),
    Case("net", "return None", SENTENCE, "a row of features for each is needed"),
    Case("net", "return h.long()", SENTENCE, "a row of features for each is needed"),
    Case("net", "if self.calls > 6: return h[:, :2]", SENTENCE, "floats for each of"),
    Case("net", "if self.calls > 6: sys.exit(1)", THEIRS, "SystemExit: 1"),
    Case("net", "x.zero_()", SENTENCE, "the gradient of the net"),
    Case("metric", "raise KeyError('page')", THEIRS, "the metric `mine` fails: KeyError"),
    Case("metric", "return run.accuracy[:, 0, 0, 0] * float('nan')", FINE),
    Case("metric", "return 0.5", SENTENCE, "a number for each of 2 lanes"),
    Case("metric", "return run.accuracy", SENTENCE, "a number for each of 2 lanes"),
    Case("metric", "return None", FINE),
    Case("metric", "return [1, 2]", FINE),
    Case("metric", "sys.exit(0)", THEIRS, "SystemExit: 0"),
    Case("metric", "run.accuracy[:] = 1", THEIRS, "read-only"),
    Case("scenario", "raise KeyError('page')", THEIRS, "the scenario"),
    Case("scenario", "return None", SENTENCE, "a stream for every lane"),
    Case("scenario", "return found[:1]", SENTENCE, "1 streams for 2 lanes"),
    Case("scenario", "found = [Stream(tuple(replace(t, train=t.train * 1.0) for t in s)) for s in found]", SENTENCE),
    Case("scenario", "found = [Stream(tuple(replace(t, train=t.train + 10**6) for t in s)) for s in found]", SENTENCE),
    Case("scenario", "sys.exit(0)", THEIRS, "SystemExit: 0"),
    Case("scenario", "bank.labels[:] = 0", THEIRS, "read-only"),
    Case("graph", "raise KeyError('page')", THEIRS, "cannot be drawn for 2 agents: KeyError"),
    Case("graph", "return None", SENTENCE, "a networkx graph is needed"),
    Case("graph", "graph = networkx.complete_graph(9)", SENTENCE, "not all among 0 to 1"),
    Case("graph", "graph.add_edge(0, float('nan'))", SENTENCE, "not all among 0 to 1"),
    Case("graph", "sys.exit(0)", THEIRS, "SystemExit: 0"),
]  # fmt: skip


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Makes a module of a case that both doors lead to."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(place: str, body: str) -> Any:
        text = dedent(PLACES[place]).replace("{body}", body)
        (tmp_path / "owncase.py").write_text(f"import sys\nimport torch\nimport shoal\n{text}")
        importlib.invalidate_caches()
        sys.modules.pop("owncase", None)
        module = importlib.import_module("owncase")
        if place == "metric":
            METRICS.add("mine", module.mine)
        return module.mine

    yield make
    sys.modules.pop("owncase", None)
    if "mine" in METRICS:
        METRICS.remove("mine")


def worded(place: str) -> str:
    """The settings file with what is at a place."""
    groups = {name: dict(value) if isinstance(value, dict) else value for name, value in GROUPS.items()}
    groups |= {"dataset": "digits", "model": "mlp"}
    door, sharing = "owncase:mine", ""
    if place in ("learner", "penalty"):
        groups["learner"]["method"] = door
    elif place == "net":
        groups["model"] = door
    elif place == "scenario":
        groups["tasks"]["scenario"] = door
    elif place == "graph":
        groups["network"], sharing = {"graph": door}, "fedavg"
    elif place != "metric":
        sharing = door
    groups["sharing"] = [{"mode": sharing, "every": 1}] if sharing else []
    return "\n".join(f"{name} = {inline(value)}" for name, value in groups.items())


def inline(value: Any) -> str:
    """A value as TOML writes it in one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {inline(one)}" for name, one in value.items()) + "}"
    return f"[{', '.join(map(inline, value))}]" if isinstance(value, list) else json.dumps(value)


def made(place: str, thing: Any) -> shoal.Fleet:
    """The fleet with what is at a place."""
    given = dict(GROUPS, model="mlp", learner={**GROUPS["learner"], "method": "replay"})
    if place in ("learner", "penalty"):
        given["learner"] = {**GROUPS["learner"], "method": "owncase:mine"}
    elif place == "net":
        given["model"] = thing
    elif place == "scenario":
        given["tasks"] = {**GROUPS["tasks"], "scenario": "owncase:mine"}
    elif place == "graph":
        given |= {"network": {"graph": "owncase:mine"}, "sharing": [{"mode": "fedavg", "every": 1}]}
    elif place != "metric":
        given["sharing"] = [thing(every=1)]
    return shoal.Fleet("digits", **given)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.place}: {case.body}")
def test_code_that_fails_is_never_silent(case: Case, mine: Any, tmp_path: Path) -> None:
    thing = mine(case.place, case.body)
    (tmp_path / "settings.toml").write_text(worded(case.place))
    done = call("run", tmp_path / "settings.toml", "--trust", "--out", tmp_path / "run")
    told = done.err + done.out
    assert "mistake in shoal" not in told
    assert "Traceback" not in told
    fleet_error: BaseException | None = None
    try:
        made(case.place, thing).run(progress=False)
    except UserError as error:
        fleet_error = error
    if case.comes == FINE:
        assert (done.code, fleet_error) == (0, None)
        return
    assert fleet_error is not None
    assert done.code == 2
    assert case.says in done.err
    assert case.says in str(fleet_error)
    if case.comes == DIVERGED:
        assert "diverged" in done.err
    elif case.place in ("learner", "penalty") or "self.calls >" in case.body:  # what fails while agents learn
        for said in (done.err, str(fleet_error)):
            assert re.search(r" for (agent|one of) .* in task \d, after \d epoch", said), said
    if case.comes == THEIRS:
        assert isinstance(fleet_error, CodeError)
        for trace in (done.err, fleet_error.trace):
            assert 'owncase.py", line' in trace
            assert case.body.splitlines()[-1] in trace
            assert "shoal/fleet" not in trace


def test_a_run_goes_on_once_its_code_is_mended(mine: Any, tmp_path: Path) -> None:
    """The same bits as if it had never failed."""
    fails = "if agent.task == 2: raise KeyError('page')"
    mends = "if agent.task == 9: raise KeyError('page')"
    (tmp_path / "settings.toml").write_text(worded("mode"))
    mine("mode", mends)
    call("run", tmp_path / "settings.toml", "--trust", "--out", tmp_path / "whole")
    mine("mode", fails)
    done = call("run", tmp_path / "settings.toml", "--trust", "--out", tmp_path / "run")
    assert done.code == 2
    assert "`mine` of the mode `mine` fails for agent 0 of seed 0 in task 3, after 0 epochs: KeyError" in done.err
    assert f"mend it, and `shoal resume {tmp_path / 'run'}` goes on from the last checkpoint" in done.err
    mine("mode", mends)
    assert call("resume", tmp_path / "run", "--trust").code == 0
    first, second = (tmp_path / name / "accuracy.parquet" for name in ("whole", "run"))
    assert first.read_bytes() == second.read_bytes()


def test_code_that_fails_in_a_worker_is_told_by_its_own_traceback(mine: Any, tmp_path: Path) -> None:
    thing = mine("mode", "raise KeyError('page')")
    with pytest.raises(CodeError, match=r"`mine` of the mode `mine` fails for agent . of seed 0") as caught:
        made("mode", thing).run(progress=False, workers=2)
    assert 'owncase.py", line' in caught.value.trace
    assert caught.value.trace in caught.value.__notes__


def test_who_stops_code_that_hangs_is_told_where_it_was(mine: Any, tmp_path: Path) -> None:
    """The first Ctrl-C waits for the end of the epoch, which never comes; the second stops at once."""
    hangs = "import signal; [signal.raise_signal(signal.SIGINT) for _ in range(2)]"
    thing = mine("mode", hangs)
    (tmp_path / "settings.toml").write_text(worded("mode"))
    done = call("run", tmp_path / "settings.toml", "--trust", "--out", tmp_path / "run")
    assert done.code == 130
    assert "stopped at once in `mine` of the mode `mine` for agent 0 of seed 0 in task 2" in done.err
    assert "owncase.py, line" in done.err
    with pytest.raises(KeyboardInterrupt, match=r"stopped at once in `mine` of the mode `mine` for agent 0"):
        made("mode", thing).run(progress=False)


def test_a_mistake_of_shoals_own_is_still_one(mine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.sharing.batched.averaging.absorb", lambda self, *mails: shoal.nothing_such)
    monkeypatch.setattr("shoal.own_code.is_theirs", lambda frame: False)  # else this test's lambda is the user's
    (tmp_path / "settings.toml").write_text(
        worded("metric").replace("sharing = []", 'sharing = [{mode = "fedavg", every = 1}]')
    )
    done = call("run", tmp_path / "settings.toml", "--trust", "--out", tmp_path / "run")
    assert (done.code, "a mistake in shoal" in done.err) == (1, True)
