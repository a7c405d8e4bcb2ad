"""What users get wrong: every mistake is one sentence that names it and says what to do, and exit code 2."""

import os
import subprocess
import sys
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import shoal
from shoal.configure.checks import fields
from shoal.configure.reading import override
from shoal.data import load
from shoal.errors import UserError
from shoal.fleet.size import affordable
from shoal.settings.writing import toml
from tests.command import DIGITS, call, refused

pytestmark = pytest.mark.usefixtures("nowhere")

HUGE = "9" * 5000  # more digits than Python reads as a number
DEEP = "[" * 3000 + "]" * 3000
LONG = "a" * 5000
# A word that `shoal check digits` is given, and what it must be told.
WORDS: list[tuple[str, str]] = [
    ("agents", "cannot read `agents`"),
    ("=3", "cannot read `=3`"),
    ("agents=", "`agents` cannot be ''"),
    ("agents=0", "`agents` cannot be 0; allowed: a whole number above 0"),
    ("agents=-1", "`agents` cannot be -1"),
    ("agents=2.5", "`agents` cannot be 2.5"),
    ("agents=two", "`agents` cannot be 'two'"),
    ("agents=true", "`agents` cannot be True"),
    ("agents=[1]", "`agents` cannot be [1]"),
    ("agents={}", "`agents` cannot be {}"),
    ("agents=nan", "`agents` cannot be nan"),
    ("agents=1979-05-27", "`agents` cannot be "),
    (f"agents={HUGE}", "digits"),
    (f"agents={DEEP}", "nested too deep"),
    ("agents.x=3", "`agents` in `agents.x=3` is a single setting"),
    ("agents..x=3", "`agents` in `agents..x=3` is a single setting"),
    ("agnets=2", "did you mean `agents`?"),
    (".=3", "unknown setting"),
    (f"{LONG}=3", "unknown setting"),
    ("seeds=0", "`seeds` cannot be 0"),
    ("seed=-1", "`seed` cannot be -1"),
    ("seed=4294967296", "`seed` cannot be 4294967296"),
    ("seed=x", "`seed` cannot be 'x'"),
    ("model=", "there is no model ``"),
    ("model=5", "`model` cannot be 5"),
    ("model=mlpp", "did you mean `mlp`?"),
    ("model=no.such:Net", "importing `no.such` fails"),
    ("model=os.path:nothing", "has no `nothing`"),
    ("model=os:sep", "is no model"),
    (f"model={LONG}", "there is no model"),
    ("dataset=", "unknown dataset ``"),
    ("dataset=5", "`dataset` cannot be 5"),
    ("dataset=mnits", "did you mean `mnist`?"),
    ("dataset=[]", "`dataset` cannot be []"),
    ("protocol=papr", "`protocol` cannot be 'papr'; allowed: 'fair', 'paper'"),
    ("protocol=1", "`protocol` cannot be 1"),
    ("tasks=5", "`tasks` is a group of settings, got 5"),
    ("tasks=x", "there is no scenario `x`"),
    ("tasks=[]", "`tasks` is a group of settings, got []"),
    ("tasks.count=0", "`tasks.count` cannot be 0"),
    ("tasks.count=x", "`tasks.count` cannot be 'x'"),
    ("tasks.cuont=3", "did you mean `tasks.count`?"),
    ("tasks.count.x=3", "`count` in `tasks.count.x=3` is a single setting"),
    ("tasks.classes=0", "`tasks.classes` cannot be 0"),
    ("tasks.classes=11", "tasks.classes = 11"),
    ("tasks.train=-5", "`tasks.train` cannot be -5"),
    ("tasks.train=none", "`tasks.train` cannot be 'none'"),
    ("tasks.train=100000", "tasks.train = 100000"),
    ("tasks.validation=0", "`tasks.validation` cannot be 0"),
    ("tasks.validation=100000", "tasks.validation = 100000"),
    ("tasks.replacement=1", "`tasks.replacement` cannot be 1; allowed: true or false"),
    ("tasks.replacement=yes", "`tasks.replacement` cannot be 'yes'"),
    ("tasks.replacement=false", "needs 24 classes, the data has 10"),
    ("tasks.initial=0", "`tasks.initial` cannot be 0"),
    ("tasks.initial=9", "tasks.initial = 9 is more than tasks.count = 8"),
    ("tasks.scenario=dreamt", "there is no scenario `dreamt`"),
    ("tasks.scenario=5", "`tasks.scenario` cannot be 5"),
    ("tasks.heads=two", "`tasks.heads` cannot be 'two'"),
    ("tasks.heads=one", 'tasks.heads = "one"'),
    ("tasks.overlap=1.5", "`tasks.overlap` cannot be 1.5"),
    ("tasks.overlap=nan", "`tasks.overlap` cannot be nan"),
    ("tasks.alpha=0", "`tasks.alpha` cannot be 0"),
    ("tasks.blur=2", "`tasks.blur` cannot be 2"),
    ("net=mlp", "`net` is a group of settings"),
    ("net.width=0", "`net.width` cannot be 0"),
    ("net.depth=-1", "`net.depth` cannot be -1"),
    ("net.basis=0", "`net.basis` cannot be 0"),
    ("net.dropout=1", "`net.dropout` cannot be 1"),
    ("net.dropout=inf", "`net.dropout` cannot be inf"),
    ("net.dropout=-0.1", "`net.dropout` cannot be -0.1"),
    ("net.initial_structure=x", "`net.initial_structure` cannot be 'x'"),
    ("learner=5", "`learner.method` cannot be 5"),
    ("learner=sgd", "there is no learner `sgd`"),
    ("learner.method=5", "`learner.method` cannot be 5"),
    ("learner.epochs=0", "`learner.epochs` cannot be 0"),
    ("learner.epcohs=5", "did you mean `learner.epochs`?"),
    ("learner.batch=0", "`learner.batch` cannot be 0"),
    ("learner.rate=0", "`learner.rate` cannot be 0"),
    ("learner.rate=nan", "`learner.rate` cannot be nan"),
    ("learner.rate=-1", "`learner.rate` cannot be -1"),
    ("learner.rate=fast", "`learner.rate` cannot be 'fast'"),
    ("learner.memory=100", "learner.memory = 100 is more than the 36 training rows"),
    ("learner.strength=1", "`learner.strength` is a setting of the learner `ewc`"),
    ("network=", 'network.graph cannot be ""'),
    ("network=5", "`network.graph` cannot be 5"),
    ("network=rnig", 'did you mean "ring"?'),
    ("network=no/such.file", "no graph file"),
    (f"network=./{LONG}", "cannot read"),
    ("network.graph=1.5", "`network.graph` cannot be 1.5"),
    ("network.graph=['a.b']", "`network.graph` cannot be ['a.b']"),
    ("network.graph={}", "`network.graph` cannot be {}"),
    ("network.graph=true", "`network.graph` cannot be True"),
    ("network.edges=5", "`network.edges` cannot be 5"),
    ("network.edges=true", "`network.edges` cannot be True"),
    ("network.edges=nan", "`network.edges` cannot be nan"),
    ("network.edges=[5]", "`network.edges.0` cannot be 5"),
    ("network.edges=[{sender=0}]", "`network.edges[0].receiver`"),
    ("network.edges=[{sender=0,receiver=0}]", "an agent sends nothing to itself"),
    ("network.edges=[{sender=0,receiver=99}]", "the last agent is 7"),
    ("network.edges=[{sender=0,reciever=1}]", "did you mean `network.edges[0].receiver`?"),
    ("network.p=2", "`network.p` cannot be 2"),
    ("network.budget=-1", "`network.budget` cannot be -1"),
    ("network.budget=little", "`network.budget` cannot be 'little'"),
    ("network.every=0", "`network.every` cannot be 0"),
    ("network.graph=torch.nn:Linear", "cannot be drawn for 8 agents"),
    ("sharing=recvv", "there is no sharing mode `recvv`"),
    ("sharing=5", "`sharing` cannot be 5"),
    ("sharing=true", "`sharing` cannot be True"),
    ("sharing=[5]", "every [[sharing]] table needs a mode"),
    ("sharing=[{}]", "every [[sharing]] table needs a mode"),
    ("sharing=[{mode=5}]", "every [[sharing]] table needs a mode"),
    ("sharing=recv,recv", "listed 2 times"),
    ("sharing=recv,simp", "share by one of them"),
    ("sharing=recv,,simp", "there is no sharing mode ``"),
    ("sharing.every=5", "say sharing=MODE first"),
    ("sharing.recv.every=5", "say sharing=recv first"),
    ('sharing={mode="recv",every=0}', "`sharing.recv.every` cannot be 0"),
    ('sharing={mode="recv",every=99}', "is more than learner.epochs = 50"),
    ('sharing={mode="recv",evry=9}', "did you mean `sharing.recv.every`?"),
    ('sharing={mode="recv",start=50}', "lower sharing.recv.start"),
    ('sharing={mode="modmod",metric="x"}', "there is no metric `x`"),
    ("kinds=5", "`kinds` cannot be 5"),
    ("kinds=[5]", "`kinds` cannot be [5]"),
    ("kinds=[{}]", "`kinds[0].name` is missing"),
    ('kinds=[{name="a",agents=[]}]', "`kinds[0].agents` cannot be ()"),
    ('kinds=[{name="a",agents=5}]', "`kinds[0].agents` cannot be 5"),
    ('kinds=[{name="a",agents=[99]}]', "the last agent is 7"),
    ('kinds=[{name="rest",agents=[1]}]', "cannot be 'rest'"),
    ('kinds=[{name="a",agents=[1],net=5}]', "is a group of settings, got 5"),
    ('kinds=[{name="a",agents=[1],model=5}]', "5"),
    ("kinds.a.model=mlp", "no kinds are described"),
    ("machine.device=tpu", "`machine.device` cannot be 'tpu'"),
    ("machine.device=cuda:99", "is not on this machine"),
    ("machine.engine=warp", "`machine.engine` cannot be 'warp'"),
    ("machine.threads=-1", "`machine.threads` cannot be -1"),
    ("machine.checkpoint=0", "`machine.checkpoint` cannot be 0"),
    ("machine.data=5", "`machine.data` cannot be 5"),
    ("machine=fast", "`machine.device` cannot be 'fast'"),
]
# A settings file, and what `shoal check` must say of it.
FILES: list[tuple[str, str]] = [
    ("agents: 8", "as TOML"),
    ("agents = ", "as TOML"),
    ("agents = 8\nagents = 9", "as TOML"),
    ("[tasks\ncount = 8", "as TOML"),
    (f"agents = {HUGE}", "as TOML"),
    (f"agents = {DEEP}", "nested too deep"),
    ("agents = 2020-01-01", "`agents` cannot be"),
    ("network = 5", "`network` is a group of settings"),
    ("network = ['a']", "`network` is a group of settings"),
    ("[network]\ngraph = 1.5", "`network.graph` cannot be 1.5"),
    ("[network]\ngraph = ['a.b']", "`network.graph` cannot be"),
    ("[network]\ngraph = {}", "`network.graph` cannot be {}"),
    ("[network]\ngraph = '/dev/zero'", "would read `/dev/zero`"),
    ("[network]\nedges = 5", "`network.edges` cannot be 5"),
    ("sharing = 5", "`sharing` cannot be 5"),
    ("[sharing]\nevery = 5", "every [[sharing]] table needs a mode"),
    ("kinds = 'a'", "`kinds` cannot be 'a'"),
    ("learner = 5", "`learner` is a group of settings"),
    ("dataset = 5", "`dataset` cannot be 5"),
    ("'' = 5", "unknown setting"),
    ("tasks = 2020-01-01", "`tasks` is a group of settings"),
]
# Whole commands, and what they must say.
COMMANDS: list[tuple[list[str], str]] = [
    (["run"], "Missing argument"),
    (["fly"], "fly"),
    (["run", "digits", "--sedes", "3"], "--sedes"),
    (["run", "digits", "--seeds", "many"], "'--seeds': Input should be a valid integer"),
    (["run", "digits", "--seeds", HUGE], "seeds"),
    (["run", "digits", "--seeds", "0"], "`seeds` cannot be 0"),
    (["run", "digts"], "did you mean `digits`?"),
    (["run", ""], "settings file"),
    (["run", "."], "Is a directory"),
    (["run", LONG], "name too long"),
    (["run", "a\0b"], "null"),
    (["run", "digits", "--track", "paper"], "paper"),
    (["run", "digits", "dataset=mnist", "--data", "~nouser/x"], "~nouser"),
    (["run", "digits", "dataset=mnist", "--data", LONG], "name too long"),
    (["check", "digits", "--data", "a\0b", "dataset=mnist"], "'--data'"),
    (["resume", "nowhere"], "is not a run directory"),
    (["resume", ""], "is not a run directory"),
    (["resume", LONG], "is not a run directory"),
    (["list", "fish"], "cannot list `fish`"),
    (["data", "get", "fish"], "unknown dataset `fish`"),
    (["data", "fly"], "fly"),
    (["compare", LONG], "name too long"),
    (["report", LONG], "name too long"),
    (["reproduce", "report", "--tables", LONG], "name too long"),
    (["compare", "nothing"], "no settings file nothing"),
    (["compare", "digits", "--baseline", "mnist"], "no run mnist to compare with"),
    (["compare", "digits", "digits"], "is named 2 times"),
    (["sweep", "digits", "seeds"], "an axis of the grid looks like"),
    (["sweep", "digits", "sharing=none,recvv"], "there is no sharing mode `recvv`"),
    (["sweep", "nothing", "seed=1,2"], "no settings file nothing"),
    (["sweep", "digits", f"agents={DEEP}"], "nested too deep"),
    (["advise", "digits", "--budget", "20"], "a budget cannot be '20'"),
    (["advise", "digits", "--budget", "20 kB/week"], "it is per exchange or per task"),
    (["advise", "digits", "--seeds", "1"], "at least 2"),
    (["advise", "digits", "--candidates", "+"], "cannot read the candidate '+'"),
    (["advise", "nothing"], "no settings file nothing"),
    (["report", "nowhere"], "nowhere"),
    (["network", "rnig"], 'did you mean "ring"?'),
    (["network", "ring", "--agents", "0"], "'--agents'"),
    (["network", "ring", "--agents", "2000"], "only up to 1000"),
    (["network", "ring", "--p", "2"], "'--p'"),
    (["network", "ring", "--out", "a.png"], "ends in .svg"),
    (["network", "ring", "--out", "no/such/place.svg"], "give --out another place"),
    (["network", "no.such"], "no graph file"),
    (["network", "."], "cannot read"),
    (["network", "digits", "--seed", "-1"], "'--seed'"),
    (["transfer", "nowhere"], "is not a run directory"),
    (["transfer", "nowhere", "--out", "a.png"], "ends in .svg"),
    (["reproduce", "table9"], "table9"),
    (["reproduce", "table1", "--dataset", "fish"], "fish"),
    (["reproduce", "table1", "--method", "fish"], "fish"),
    (["reproduce", "table1", "--seeds", "0"], "0"),
    (["reproduce", "table1", "--protocol", "fish"], "fish"),
    (["demo", "sharing=recv"], "is what the demo varies itself"),
    (["demo", "agents=1"], "agents=2 or more"),
    (["demo", "--seeds", "0"], "'--seeds'"),
    (["demo", "agnets=3"], "did you mean `agents`?"),
]


def told(words: list[str], part: str) -> None:
    """A command ends with exit code 2, no traceback, and words that have a part in them; nothing is written."""
    done = call(*words)
    assert done.code == 2, done.err[:2000]
    assert "Traceback" not in done.err
    assert part in " ".join(done.err.replace("│", " ").split()), done.err[:2000]
    assert len(done.err) < 20_000
    assert not list(Path().iterdir())


def test_there_are_many() -> None:
    assert len(WORDS) + len(FILES) + len(COMMANDS) >= 120


@pytest.mark.parametrize(("word", "part"), WORDS, ids=[word[:40] for word, _ in WORDS])
def test_a_wrong_word_gets_one_sentence(word: str, part: str) -> None:
    told(["check", "digits", word], part)


@pytest.mark.parametrize(("text", "part"), FILES, ids=[text[:40] for text, _ in FILES])
def test_a_wrong_settings_file_gets_one_sentence(text: str, part: str, tmp_path: Path) -> None:
    file = tmp_path.parent / f"{tmp_path.name}.toml"
    file.write_text(text, encoding="utf-8")
    told(["check", str(file)], part)


@pytest.mark.parametrize(("words", "part"), COMMANDS, ids=[" ".join(words)[:40] for words, _ in COMMANDS])
def test_a_wrong_command_gets_one_sentence(words: list[str], part: str) -> None:
    told(words, part)


@pytest.mark.parametrize("place", ["", ".", "/"])
def test_a_page_that_cannot_be_written_gets_one_sentence(place: str, shown: Path) -> None:
    told(["report", str(shown / "vanilla"), "--out", place], "cannot write")


def test_settings_are_refused_before_torch_is_there() -> None:
    program = (
        "import sys\nfrom shoal.cli import main\nsys.argv = ['shoal', 'check', 'digits', 'agnets=3']\n"
        "try:\n    main()\nexcept SystemExit as end:\n    print(end.code, 'torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["2", "False"], done.stderr


def test_a_mistake_of_ours_is_one_sentence_with_a_traceback_to_report(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a mistake of ours\nin two lines")

    monkeypatch.setattr("shoal.own_code.is_theirs", lambda frame: False)  # as if it stood in shoal
    monkeypatch.setattr("shoal.configure.reading.said", broken)
    monkeypatch.delenv("SHOAL_TRACEBACK", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(Path.cwd()))
    done = call("check", "digits")
    assert done.code == 1
    assert done.err.startswith(
        "error: a mistake in shoal, not in what you said (RuntimeError: a mistake of ours); please "
    )
    (file,) = Path().glob("shoal-*.txt")
    assert str(file) in done.err
    written = file.read_text(encoding="utf-8")
    assert written.startswith("shoal check digits\n")
    assert 'raise RuntimeError("a mistake of ours' in written
    monkeypatch.setattr("tempfile.tempdir", "/no/such/place")
    assert "SHOAL_TRACEBACK=1 shows where" in call("check", "digits").err
    monkeypatch.setenv("SHOAL_TRACEBACK", "1")
    with pytest.raises(RuntimeError, match="a mistake of ours"):
        call("check", "digits")


PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 40),
    st.integers(),
    st.sampled_from([10**9, 2**63, 10**400]),
    st.floats(),
    st.text(max_size=6),
    st.sampled_from(
        ["ring", "recv", "x.y", "./x", "~nouser/x", "csv:", "os:path", "modular-os:path", "9 kB/task", "\0"]
    ),
)
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
NAMES = [name for name, _ in fields()]
KEYS = st.one_of(
    st.sampled_from(NAMES), st.sampled_from(sorted({name.partition(".")[0] for name in NAMES})), st.text(max_size=6)
)


def nested(said: dict[str, Any]) -> dict[str, Any]:
    """`a.b` as groups."""
    raw: dict[str, Any] = {}
    for name, value in said.items():
        *groups, last = name.split(".")
        at = raw
        for group in groups:
            inner = at.setdefault(group, {})
            if not isinstance(inner, dict):
                break
            at = inner
        at[last] = value
    return raw


def known_or_refused(found: shoal.Settings) -> None:
    """Settings have a name, can be written and read again, and have a size that can be told."""
    assert found.identity()
    assert shoal.resolve(tomllib.loads(toml(found))).identity() == found.identity()
    affordable(found, load("digits"))


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_whatever_is_said_in_python_is_settings_or_one_sentence(said: dict[str, Any]) -> None:
    with suppress(UserError):
        known_or_refused(shoal.resolve(nested(said)))


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(KEYS, st.one_of(VALUES.map(repr), st.text(max_size=8))), max_size=4))
def test_whatever_is_said_in_words_is_settings_or_one_sentence(said: list[tuple[str, str]]) -> None:
    raw = tomllib.loads(DIGITS.read_text(encoding="utf-8"))
    with suppress(UserError):
        known_or_refused(shoal.resolve(override(raw, [f"{name}={text}" for name, text in said])))


def completed(*words: str) -> list[str]:
    """What a shell is told when the last word is completed."""
    program = "from shoal.cli import main; import sys; sys.argv = ['shoal']; main()"
    told = {
        "_SHOAL_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(["shoal", *words]),
        "COMP_CWORD": str(len(words)),
    }
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **told}, capture_output=True, text=True, check=False
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["ad"], ["advise"]),
        (["run", "mn"], ["mnist"]),
        (["compare", "kmn"], ["kmnist"]),
        (["list", "exp"], ["experiments"]),
        (["run", "digits", "learner.ep"], ["learner.epochs="]),
        (["run", "digits", "machine.engine="], ["machine.engine=auto", "machine.engine=loop", "machine.engine=vmap"]),
        (["run", "digits", "tasks.replacement=t"], ["tasks.replacement=true"]),
    ],
)
def test_the_shell_completes_what_there_is(words: list[str], found: list[str]) -> None:
    assert completed(*words) == found


def test_completion_can_be_installed() -> None:
    done = call("--show-completion", "bash")
    assert done.code == 0
    assert "_shoal_completion" in done.out
    assert "--install-completion" in call("--help").out


def test_refusals_of_other_tests_are_sentences() -> None:
    refused(call("check", "digits", "agents=0"), "allowed: a whole number above 0")
