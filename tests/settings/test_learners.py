"""Learners: chosen by name, each with its own settings."""

import pickle
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import Field

from shoal.agents.stack import Stack
from shoal.agents.world import World
from shoal.configure.reading import override, read, resolve
from shoal.errors import SettingsError
from shoal.learners.analytic import Analytic
from shoal.learners.contract import Learner
from shoal.learners.decomposed import Decomposed
from shoal.learners.ella import Ella
from shoal.learners.frozen import Frozen
from shoal.learners.modular import Growth
from shoal.learners.replay import Replay
from shoal.learners.table import LEARNERS, usual
from shoal.models.table import MODELS
from shoal.settings.groups import Settings
from shoal.settings.writing import toml
from tests.command import DIGITS, call, refused


class Slow(Learner):
    """A learner of somebody else."""

    method: Literal["slow"] = "slow"
    patience: int = Field(3, description="how long it waits")

    def epoch(self, world: World, stack: Stack, epoch: int) -> None:
        raise NotImplementedError


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The learner is in the table."""
    monkeypatch.setitem(LEARNERS.entries, "slow", Slow)


def refusal(raw: dict[str, Any]) -> str:
    with pytest.raises(SettingsError) as caught:
        resolve(raw)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("model", MODELS)
def test_the_usual_learner_follows_from_the_model(model: str) -> None:
    learner = Settings(model=model).learner
    assert (learner.method, type(learner)) == (usual(model), LEARNERS[usual(model)])
    own: dict[str, type[Learner]] = {"masked-mlp": Frozen, "frozen-mlp": Frozen, "decomposed-mlp": Decomposed}
    own |= {"factor": Ella, "ridge": Analytic}
    assert isinstance(learner, own.get(model, Growth if model.startswith("modular-") else Replay))


@pytest.mark.usefixtures("slow")
def test_a_learner_is_chosen_by_name_in_words_toml_and_python(tmp_path: Path) -> None:
    wanted = Settings(learner={"method": "slow", "patience": 5, "rate": 0.1})
    assert isinstance(wanted.learner, Slow)
    words = ["learner=slow", "learner.patience=5", "learner.rate=0.1"]
    assert resolve(override({}, words)) == wanted
    assert resolve(override({}, words[::-1])) == wanted
    file = tmp_path / "fleet.toml"
    file.write_text('learner = "slow"')
    assert read(file, words[1:]) == wanted
    file.write_text('[learner]\nmethod = "slow"\npatience = 5\nrate = 0.1')
    assert read(file) == wanted
    assert Settings(learner="slow").learner == Slow()


@pytest.mark.usefixtures("slow")
def test_a_learner_has_a_say_in_what_a_run_is_called() -> None:
    plain, slow = Settings(), Settings(learner="slow")
    assert Settings(learner="modular") == plain
    assert Settings(learner="modular").identity() == plain.identity() != slow.identity()
    assert Settings(learner={"method": "slow", "patience": 4}).identity() != slow.identity()


def test_a_learner_passed_in_python_is_used(tmp_path: Path) -> None:
    learner = Slow(patience=9)  # in no table
    settings = Settings(learner=learner, protocol="paper")
    assert settings.learner is learner
    assert Settings(**settings.model_dump()) == settings
    assert pickle.loads(pickle.dumps(settings)) == settings
    file = tmp_path / "settings.toml"
    file.write_text(toml(settings))
    assert f'method = "{__name__}:Slow"' in file.read_text()
    assert read(file, trust=True) == settings
    kinds = [{"name": "slow", "agents": [1], "learner": learner}]
    assert Settings(kinds=kinds).kinds[0].learner is learner


def test_a_setting_of_another_learner_says_whose_it_is() -> None:
    assert refusal({"model": "mlp", "learner": {"accept": 0.1}}) == (
        "`learner.accept` is a setting of the learner `modular`, and these agents learn by `replay`; leave it out, or "
        'say learner.method = "modular"'
    )
    kinds = [{"name": "flat", "agents": [1], "model": "mlp", "learner": {"accept": 0.1}}]
    assert refusal({"kinds": kinds}).startswith("`kinds[0].learner.accept` is a setting of the learner `modular`")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"learner": "modulr"}, "there is no learner `modulr`; did you mean `modular`? allowed: replay, modular"),
        ({"learner": {"method": 3}}, "`learner.method` cannot be 3; allowed: replay, modular"),
        ({"learner": 3}, "`learner` is a group of settings, got 3; say learner.KEY=VALUE"),
        ({"learner": {"epcohs": 3}}, "unknown setting `learner.epcohs`; did you mean `learner.epochs`?"),
        ({"learner": "modular", "model": "mlp"}, "the learner `modular` needs a modular model, got `mlp`; use model ="),
        ({"learner": "replay"}, "the learner `replay` is for nets that all tasks use as a whole, got `modular-mlp`"),
        (
            {"kinds": [{"name": "a", "agents": [1], "learner": "replay"}]},
            "the learner `replay` is for nets that all tasks use as a whole",
        ),
        ({"kinds": [{"name": "a", "agents": [1], "learner": 3}]}, "`kinds[0].learner` is a group of settings, got 3"),
    ],
)
def test_a_learner_that_cannot_be_gets_a_sentence(raw: dict[str, Any], message: str) -> None:
    assert message in refusal(raw)


def test_a_learner_that_cannot_serve_a_model_ends_with_exit_code_2() -> None:
    refused(call("check", DIGITS, "model=mlp", "learner=modular"), "the learner `modular` needs a modular model")


def test_each_kind_takes_of_the_fleets_learner_what_its_own_has() -> None:
    kinds: list[dict[str, Any]] = [{"name": "flat", "agents": [1], "model": "mlp"}]
    settings = Settings(learner={"accept": 0.2, "rate": 0.1}, kinds=kinds)
    assert settings.learner == Growth(accept=0.2, rate=0.1)
    assert settings.of("flat").learner == Replay(rate=0.1)
    kinds = [{"name": "deep", "agents": [1], "model": "modular-mlp", "learner": {"batch": 8}}]
    settings = Settings(model="mlp", learner={"accept": 0.2, "rate": 0.1}, kinds=kinds)
    assert settings.learner == Replay(rate=0.1)
    assert settings.of("deep").learner == Growth(accept=0.2, rate=0.1, batch=8)
    assert Settings(model="mlp", learner=Replay(rate=0.1), kinds=kinds).of("deep").learner == Growth(rate=0.1, batch=8)


@pytest.mark.usefixtures("slow")
def test_a_kind_can_have_a_learner_of_its_own_and_else_has_the_fleets() -> None:
    kinds: list[dict[str, Any]] = [{"name": "a", "agents": [1], "learner": "slow"}]
    settings = Settings(kinds=kinds, learner={"rate": 0.1})
    assert (settings.learner, settings.of("a").learner) == (Growth(rate=0.1), Slow(rate=0.1))
    assert resolve(override({"kinds": kinds}, ["kinds.a.learner.rate=0.2"])).of("a").learner == Slow(rate=0.2)
    assert resolve(override({"kinds": kinds}, ["kinds.a.learner=modular"])).of("a").learner == Growth()
    kinds = [{"name": "flat", "agents": [1], "model": "mlp"}]
    assert Settings(kinds=kinds, learner="slow").of("flat").learner == Slow()


class Later(Learner):
    """A learner with a setting that was added later."""

    method: Literal["later"] = "later"
    added: int = Field(3, description="what it had not before")

    def epoch(self, world: World, stack: Stack, epoch: int) -> None:
        raise NotImplementedError


def test_a_setting_counts_where_it_is_not_at_its_default() -> None:
    class Earlier(Learner):
        method: Literal["later"] = "later"

        def epoch(self, world: World, stack: Stack, epoch: int) -> None:
            raise NotImplementedError

    Earlier.__qualname__ = Later.__qualname__  # the same learner, before
    assert Settings(learner=Later()).identity() == Settings(learner=Earlier()).identity()
    assert Settings(learner=Later(added=4)).identity() != Settings(learner=Earlier()).identity()
    kinds = [Settings(kinds=[{"name": "a", "agents": [1], "learner": Later(added=more)}]).identity() for more in (3, 4)]
    assert kinds[0] != kinds[1]


def test_another_learner_by_a_word_leaves_the_files_settings_of_the_first_behind(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('model = "mlp"\n[learner]\nmethod = "replay"\nbalance = true\nepochs = 7\n')
    assert read(file).learner.model_dump()["balance"]
    other = read(file, ["learner=none"]).learner
    assert (other.method, other.epochs) == ("none", 7)
    with pytest.raises(SettingsError, match=r"`learner\.balance` is a setting of the learner `replay`"):
        read(file, ["learner=none", "learner.balance=true"])
