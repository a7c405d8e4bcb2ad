"""Settings: files, words, protocols, and what is said about those that cannot be."""

import copy
import pickle
from pathlib import Path
from typing import Any, Literal, get_args

import pytest
from pydantic import ValidationError

from shoal.configure.checks import fields
from shoal.configure.entries import net_kind, owners
from shoal.configure.reading import experiments, override, read, resolve
from shoal.data.draws import DRAWS
from shoal.data.scenarios import SCENARIOS, kind_of
from shoal.errors import SettingsError
from shoal.learners.modular import Growth
from shoal.models.families import family
from shoal.models.nets import ModularNet
from shoal.models.table import GROWTH, MODELS, OWN
from shoal.network.graphs import GRAPHS
from shoal.network.graphs import kind_of as network_by
from shoal.settings.groups import Kind, Net, Network, Settings, Tasks
from shoal.settings.protocols import switches
from shoal.settings.writing import toml
from shoal.sharing.fedavg import FedAvg
from shoal.sharing.modes import MODES
from shoal.sharing.uniform import Uniform
from shoal_paper import families, table1
from tests.fleets import models_of

EXPERIMENTS = list(experiments().values())
PAPER = {  # dataset, model: common start, fresh Adam, dropout on the basis, initial structure (docs/protocol.md 7)
    ("mnist", "modular-mlp"): (False, True, False, "onehot"),
    ("kmnist", "modular-mlp"): (False, True, False, "onehot"),
    ("fashionmnist", "modular-mlp"): (False, True, False, "onehot"),
    ("combined", "modular-mlp"): (True, False, False, "onehot"),
    ("cifar100", "modular-cnn"): (True, False, True, "own"),
    ("mnist", "mlp"): (False, False, None, None),
    ("kmnist", "mlp"): (False, False, None, None),
    ("fashionmnist", "mlp"): (False, False, None, None),
    ("combined", "mlp"): (True, False, None, None),
    ("cifar100", "cnn"): (True, False, None, None),
}


def write(folder: Path, text: str) -> Path:
    file = folder / "settings.toml"
    file.write_text(text)
    return file


def refusal(raw: dict[str, Any]) -> str:
    with pytest.raises(SettingsError) as caught:
        resolve(raw)
    return str(caught.value)


class Loud(Uniform):
    """A mode that is in no table."""

    mode: Literal["loud"] = "loud"  # type: ignore[assignment]
    volume: int = 3


def test_a_mode_passed_in_python_is_used() -> None:
    mode = Loud(volume=11)
    settings = Settings(sharing=[mode], protocol="paper")
    assert settings.sharing[0] is mode
    assert Settings(sharing=mode).sharing == (mode,)
    assert Settings(**settings.model_dump()) == settings
    assert settings.identity() != Settings(sharing=[Loud()], protocol="paper").identity()


def test_a_mode_passed_in_python_is_written_so_that_it_can_be_read(tmp_path: Path) -> None:
    settings = Settings(sharing=[Loud(volume=11), FedAvg(every=5)])
    assert f'mode = "{__name__}:Loud"' in toml(settings)
    assert read(write(tmp_path, toml(settings)), trust=True) == settings


def test_settings_made_in_python_are_completed_by_the_protocol() -> None:
    raw: dict[str, Any] = {"protocol": "paper", "dataset": "mnist", "sharing": "recv", "network": "ring"}
    settings = Settings(**raw)
    assert settings == resolve(raw)
    assert (settings.learner.fresh_adam, settings.network.graph) == (True, "ring")
    assert Settings(model="cnn", net=Net(width=8)) == resolve({"model": "cnn", "net": {"width": 8}})
    kinds = [Kind(name="flat", agents=(1,), model="mlp", net=Net(width=8))]
    assert Settings(kinds=kinds) == resolve(
        {"kinds": [{"name": "flat", "agents": [1], "model": "mlp", "net": {"width": 8}}]}
    )


@pytest.mark.parametrize(
    "raw",
    [
        {"agents": 0},
        {"agnets": 3},
        {"sharing": "telepathy"},
        {"sharing": "recv,simp"},
        {"tasks": Tasks(count=3)},
        {"learner": {"memory": 129}},
        {"network": "rign"},
        {"kinds": [{"name": "a", "agents": [9]}]},
        {"sharing": [Loud(), Loud()]},
    ],
)
def test_settings_made_in_python_are_checked_as_those_in_a_file(raw: dict[str, Any]) -> None:
    with pytest.raises(SettingsError) as caught:
        Settings(**raw)
    assert str(caught.value) == refusal(raw)


def test_settings_can_be_copied_and_sent_to_other_processes() -> None:
    settings = Settings(sharing=[Loud(volume=11), "fedavg"], kinds=[{"name": "flat", "agents": [1], "model": "mlp"}])
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert copy.deepcopy(settings) == settings
    assert settings.model_copy(update={"agents": 0}).agents == 0  # a copy is not checked


def test_nothing_said_is_the_default() -> None:
    assert resolve({}) == Settings()


def test_a_file_says_what_differs_and_later_words_win(tmp_path: Path) -> None:
    file = write(tmp_path, 'agents = 3\nmodel = "mlp"\n[learner]\nepochs = 7\n')
    settings = read(file, ["learner.epochs=9", "net.width=16", "learner.epochs=11"])
    assert (settings.agents, settings.model, settings.learner.epochs, settings.net.width) == (3, "mlp", 11, 16)
    assert settings.learner.batch == Settings().learner.batch


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("x=3", 3), ("x=0.5", 0.5), ("x=1e-3", 1e-3), ("x=true", True), ("x=mlp", "mlp"), ('x="mlp"', "mlp"),
        ("x=modular-mlp", "modular-mlp"), ("x=", ""), ("x=a=b", "a=b"), ("x=True", "True"),
    ],
)  # fmt: skip
def test_the_value_of_a_word_is_toml_or_a_plain_string(word: str, value: object) -> None:
    found = override({}, [word])["x"]
    assert found == value
    assert type(found) is type(value)


def test_words_do_not_change_what_they_are_applied_to() -> None:
    raw = {"net": {"width": 8}}
    assert override(raw, ["net.width=9"]) == {"net": {"width": 9}}
    assert raw == {"net": {"width": 8}}


@pytest.mark.parametrize(("dataset", "model"), PAPER)
def test_the_paper_protocol_is_what_each_row_really_did(dataset: str, model: str) -> None:
    settings = resolve({"dataset": dataset, "model": model, "protocol": "paper"})
    modules = [getattr(settings.net, name, None) for name in ("dropout_basis", "initial_structure")]
    assert (settings.tasks.common, settings.learner.fresh_adam, *modules) == PAPER[dataset, model]
    if isinstance(settings.learner, Growth):
        assert (settings.learner.hidden, settings.learner.current) == ("keep", "max")
        assert (settings.learner.adaptation, settings.learner.accept) == ("last", 0.05)
    assert settings.learner.memory == 32
    assert (settings.learner.epochs, settings.learner.batch, settings.learner.rate) == (100, 64, 1e-3)
    assert (settings.net.depth, settings.net.dropout, settings.tasks.initial) == (4, 0.5, 4)


@pytest.mark.parametrize(("dataset", "model"), PAPER)
def test_the_fair_protocol_is_one_setting_for_all_rows(dataset: str, model: str) -> None:
    settings = resolve({"dataset": dataset, "model": model})
    assert settings.protocol == "fair"
    assert settings.tasks.common
    assert not settings.learner.fresh_adam
    if isinstance(settings.learner, Growth):
        assert (settings.learner.hidden, settings.learner.current) == ("renormalise", "validation")
    if isinstance(settings.net, ModularNet):
        assert settings.net.dropout_basis == model.endswith("cnn")


@pytest.mark.parametrize("protocol", ["fair", "paper"])
@pytest.mark.parametrize(("dataset", "model"), PAPER)
def test_what_the_user_says_wins_over_the_protocol(protocol: str, dataset: str, model: str) -> None:
    for part, filled in switches(protocol, model, dataset).items():
        has = getattr(Settings(model=model), part)
        values = {name: value for name, value in filled.items() if hasattr(has, name)}  # another learner has the rest
        for name, value in values.items():
            other = next(one for one in others(part, name) if one != value)
            settings = resolve({"protocol": protocol, "dataset": dataset, "model": model, part: {name: other}})
            assert getattr(getattr(settings, part), name) == other
            rest = {k: v for k, v in values.items() if k != name}
            assert {k: getattr(getattr(settings, part), k) for k in rest} == rest


def others(part: str, name: str) -> list[object]:
    """Values that a switch can have."""
    if (part, name) == ("tasks", "draw"):
        return list(DRAWS)
    kind = dict(fields())[f"{part}.{name}"].annotation
    return [True, False] if kind is bool else list(get_args(kind))


@pytest.mark.parametrize(
    ("words", "better"),
    [
        (["agnets=2"], "agents"),
        (["datset=mnist"], "dataset"),
        (["learnr.epochs=2"], "learner"),
        (["learner.epcohs=2"], "learner.epochs"),
        (["tasks.clases=2"], "tasks.classes"),
        (["net.with=2"], "net.width"),
        (["machine.devise=cpu"], "machine.device"),
        (["epochs=2"], "learner.epochs"),  # the right name at the wrong level
        (["learner.width=2"], "net.width"),
        (["widht=2"], "net.width"),
        (["learner.lr=2"], "learner.rate"),  # what others call it
        (["batch_size=2"], "learner.batch"),
    ],
)
def test_a_misspelt_key_gets_did_you_mean(words: list[str], better: str) -> None:
    message = refusal(override({}, words))
    assert message.startswith("unknown setting `")
    assert f"did you mean `{better}`?" in message


def test_a_key_like_no_other_gets_the_list() -> None:
    message = refusal({"net": {"qqqq": 1}})
    assert message == (
        "unknown setting `net.qqqq`; allowed here: net.width, net.depth, net.dropout, net.head, net.basis, "
        "net.dropout_basis, net.initial_structure"
    )


def test_a_file_for_live_agents_is_told_apart() -> None:
    message = refusal({"live": {"base": "127.0.0.1:7500"}})
    assert message.startswith("unknown setting `live`; it says where agents are, for `shoal live init`")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"agents": 0}, "`agents` cannot be 0; allowed: a whole number above 0"),
        ({"agents": -3}, "`agents` cannot be -3; allowed: a whole number above 0"),
        ({"agents": "8"}, "`agents` cannot be '8'; allowed: a whole number above 0"),
        ({"agents": 8.0}, "`agents` cannot be 8.0; allowed: a whole number above 0"),
        ({"agents": True}, "`agents` cannot be True; allowed: a whole number above 0"),
        ({"agents": {"x": 1}}, "`agents` cannot be {'x': 1}; allowed: a whole number above 0"),
        ({"seed": -1}, "`seed` cannot be -1; allowed: a whole number at least 0 and below 4294967296"),
        ({"seed": 2**32}, "`seed` cannot be 4294967296; allowed: a whole number at least 0 and below 4294967296"),
        (
            {"model": "mlpp"},
            "there is no model `mlpp`; did you mean `mlp`? allowed: MODELS, or one of yours as package.module:Name",
        ),
        ({"protocol": "papr"}, "`protocol` cannot be 'papr'; allowed: 'fair', 'paper'"),
        ({"tasks": {"classes": 0}}, "`tasks.classes` cannot be 0; allowed: a whole number above 0"),
        ({"tasks": {"common": "yes"}}, "`tasks.common` cannot be 'yes'; allowed: true or false"),
        ({"tasks": {"common": 1}}, "`tasks.common` cannot be 1; allowed: true or false"),
        (
            {"tasks": {"validation": "al"}},
            "`tasks.validation` cannot be 'al'; allowed: a whole number above 0 or 'all'",
        ),
        ({"net": {"dropout": 1.0}}, "`net.dropout` cannot be 1.0; allowed: a finite number at least 0 and below 1"),
        ({"learner": {"rate": 0}}, "`learner.rate` cannot be 0; allowed: a finite number above 0"),
        ({"learner": {"rate": float("nan")}}, "`learner.rate` cannot be nan; allowed: a finite number above 0"),
        ({"learner": {"rate": float("inf")}}, "`learner.rate` cannot be inf; allowed: a finite number above 0"),
        (
            {"learner": {"adaptation": 0}},
            "`learner.adaptation` cannot be 0; allowed: a whole number above 0 or 'last', 'never'",
        ),
        ({"machine": {"device": "gpu"}}, "`machine.device` cannot be 'gpu'; allowed: cpu, cuda or cuda:N"),
        ({"machine": {"device": 0}}, "`machine.device` cannot be 0; allowed: cpu, cuda or cuda:N"),
        ({"tasks": 3}, "`tasks` is a group of settings, got 3; say tasks.KEY=VALUE"),
        (
            {"tasks": {"count": 3}},
            "tasks.initial = 4 is more than tasks.count = 3; lower tasks.initial or raise tasks.count",
        ),
        (
            {"learner": {"memory": 129}},
            "learner.memory = 129 is more than the 128 training rows of a task (tasks.train x tasks.classes); "
            "lower learner.memory or raise tasks.train",
        ),
        (
            {"model": "modular-cnn", "net": {"basis": 3}},
            'net.initial_structure = "own" needs a basis module for each initial task, got net.basis = 3 and '
            "tasks.initial = 4",
        ),
    ],
)
def test_a_wrong_value_gets_a_sentence_with_what_is_allowed(raw: dict[str, Any], message: str) -> None:
    assert refusal(raw) == message.replace("MODELS", ", ".join(MODELS))  # other tests may have added some


@pytest.mark.parametrize(
    ("model", "compress", "said"),
    [
        ("modular-mlp", "int8", "these take here: fedavg, fedprox, fedcurv, fedfish, modmod, fedagem; leave it out"),
        ("modular-mlp", "int4", "these take here: fedavg, fedprox, fedfish, fedagem; leave it out, or share by one of"),
        ("mlp", "topk", "these take here: fedavg, fedprox, fedfish, fedrep, ditto, fedagem; leave it out, or share by"),
        ("mlp", "zip", "none of them takes here: fedavg, fedprox, fedcurv, fedfish, fedrep, ditto, tracking, modmod,"),
    ],
)
def test_a_setting_of_another_mode_names_the_modes_that_take_it(model: str, compress: str, said: str) -> None:
    assert refusal({"model": model, "sharing": {"mode": "recv", "compress": compress}}).startswith(
        f"`sharing.recv.compress` is a setting of other modes, got '{compress}', which {said}"
    )


def test_a_setting_that_no_mode_has_gets_the_nearest_one() -> None:
    said = refusal({"sharing": {"mode": "recv", "evry": 3}})
    assert said == "unknown setting `sharing.recv.evry`; did you mean `sharing.recv.every`?"


def test_limits_themselves_are_allowed() -> None:
    settings = resolve(
        {
            "seed": 2**32 - 1,
            "tasks": {"count": 4, "validation": "all"},
            "net": {"dropout": 0},
            "learner": {"memory": 128, "rate": 1, "accept": 0, "adaptation": "never"},
            "machine": {"device": "cuda:1"},
        }
    )
    assert (settings.learner.memory, settings.learner.rate) == (128, 1.0)


@pytest.mark.parametrize("word", ["foo", "=3", ""])
def test_a_word_that_sets_nothing_is_refused(word: str) -> None:
    with pytest.raises(SettingsError, match=r"settings on the command line look like learner\.epochs=50"):
        override({}, [word])


def test_a_single_setting_is_no_group() -> None:
    with pytest.raises(SettingsError, match=r"`agents` in `agents\.x=3` is a single setting, not a group"):
        override({"agents": 8}, ["agents.x=3"])


def test_a_file_that_is_missing_or_no_toml_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "none.toml"
    for file, words in (
        (missing, f"no settings file {missing}; those that come with shoal: budget, cifar100,"),
        (tmp_path, f"cannot read {tmp_path}: Is a directory"),
        (write(tmp_path, "agents 8"), f"cannot read {tmp_path / 'settings.toml'} as TOML: "),
    ):
        with pytest.raises(SettingsError) as caught:
            read(file)
        assert str(caught.value).startswith(words)
    write(tmp_path, "").write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match="as TOML"):
        read(tmp_path / "settings.toml")


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        Settings().agents = 3  # type: ignore[misc]
    with pytest.raises(ValidationError):
        Settings().learner.epochs = 3  # type: ignore[misc]


def another(name: str, field: Any) -> object:
    """A value of a setting that is allowed and not the default."""
    special: dict[str, object] = {
        "dataset": "mnist", "protocol": "paper", "model": "modular-cnn", "tasks.scenario": "split",
        "tasks.draw": "authors",
        "tasks.detector": "adwin", "tasks.of": "permuted",
        "tasks.repeat": 2, "learner.adaptation": 5, "learner.iterations": 200,
        "machine.device": "cuda", "machine.data": "elsewhere", "backbone": "efficientnet-lite0",
        "network.graph": "ring", "network.budget": 100, "network.edges": [{"sender": 0, "receiver": 1, "budget": 5}],
        "sharing": [{"mode": "recv"}], "start": 6, "budget": 100, "min_similarity": 0.5, "metric": "leep",
        "kinds": [{"name": "flat", "agents": [1]}], "machine.address": "127.0.0.1:6379",
        "combine": "median", "radius": 1.0, "faulty": [{"agents": [1], "does": "stale"}],
        "compress": "int8", "gamma": 0.5, "head": 2,
        "network.down": [[10, 20]], "network.changes": [{"task": 5, "graph": "ring"}], "network.bandwidth": 1000,
        "network.latency": 0.1, "clock.arrivals": "poisson", "clock.speed": 100, "clock.patience": 1.0,
        "clock.step_joules": 1.0, "clock.byte_joules": 1.0,
        "presence.absent": [{"agents": [1], "tasks": [2]}], "presence.joins": [{"agents": [1], "task": 5}],
        "presence.leaves": [{"agents": [1], "task": 5}],
        "policy": {"forbid": ["images"]},
    }  # fmt: skip
    if name in special:
        return special[name]
    if isinstance(field.default, bool):
        return not field.default
    if isinstance(field.default, int):
        return field.default + 1
    if isinstance(field.default, float):
        return field.default / 2 or 0.5
    return next(one for one in get_args(field.annotation) if one != field.default)


CHOSEN = [(name, field) for name, field in fields() if name != "learner.method"]  # one word does not change it alone


@pytest.mark.parametrize(("name", "field"), CHOSEN, ids=[name for name, _ in CHOSEN])
def test_identity_names_all_that_can_change_a_result_and_nothing_else(name: str, field: Any) -> None:
    group, _, last = name.rpartition(".")
    value = another(name, field)
    shared: dict[str, Any] = {} if name == "sharing" else {"sharing": "fedavg"}
    if name in ("tasks.heads", "tasks.blur", "tasks.outputs", "learner.balance", "net.weights"):
        shared |= {"model": "plain-mlp", "tasks": {"heads": "grow"}}  # these need a net that composes no modules
    if name in ("network.bandwidth", "network.latency", "clock.pace", "clock.patience") or name.endswith("joules"):
        shared |= {"clock": {"speed": 50}}  # these need seconds
    if name == "net.head":
        shared |= {"net": {"head": "random"}}  # what modular nets do not have unless it is said
    owner = next((one for one in SCENARIOS if group == "tasks" and last not in Tasks.model_fields
                  and last in kind_of(one).model_fields), None)  # fmt: skip
    if owner is not None:
        shared |= {"tasks": {"scenario": owner}}
    if group == "network" and last not in Network.model_fields:
        shared |= {"network": {"graph": next(one for one in GRAPHS if last in network_by(one).model_fields)}}
    if group == "net" and last not in ModularNet.model_fields:
        one = next(iter(owners(MODELS, net_kind, last, OWN)))
        shared |= {"model": one.replace("package.module:Net", "torch.nn:Flatten"), "sharing": "none"}
    plain = resolve(shared)
    said = shared.get(group, {}) | {last: value} if group else value
    changed = resolve(shared | {group or last: said})
    assert changed != plain
    assert (changed.identity() != plain.identity()) == (group != "machine")


@pytest.mark.parametrize("mode", MODES)
def test_identity_names_every_setting_of_a_mode(mode: str) -> None:
    model = max(models_of(mode), key=lambda one: one == "modular-mlp")
    needed: dict[str, dict[str, Any]] = {
        "receive": {"labels": "query"},
        **{name: {"compress": "topk"} for name in ("gamma", "ratio")},
        "form": {"compress": "int8"},
        "rank": {"compress": "power"},
    }
    for name, field in fields(MODES[mode]):
        if get_args(field.annotation) == (field.default,):  # there is no choice
            continue
        table = {"mode": mode, **needed.get(name, {})}
        try:
            plain, changed = (
                resolve({"model": model, "sharing": [{**table, **said}]}) for said in ({}, {name: another(name, field)})
            )
        except SettingsError:  # what a mode refuses changes no result of its
            assert (mode, name) in REFUSED
            continue
        assert changed.identity() != plain.identity(), name


# Modes that average, but not models that are compressed, weighed or combined in every way.
REFUSED = (
    *((mode, name) for mode in ("fedcurv", "tracking") for name in ("form", "gamma", "ratio", "rank")),
    ("tracking", "compress"),
)


def test_a_network_that_nobody_uses_changes_nothing() -> None:
    assert resolve({"network": "ring"}).identity() == Settings().identity()
    assert resolve({"network": "ring", "sharing": "recv"}).identity() != resolve({"sharing": "recv"}).identity()


def test_identity_is_the_same_for_the_same_settings_said_otherwise() -> None:
    said = resolve({"agents": 8, "learner": {"hidden": "renormalise", "epochs": 100}, "machine": {"threads": 2}})
    assert said.identity() == Settings().identity()


def test_there_are_experiments() -> None:
    names = {file.stem for file in EXPERIMENTS}
    assert names >= {"digits", "mnist", "kmnist", "fashionmnist", "combined", "cifar100"}


@pytest.mark.parametrize("file", EXPERIMENTS, ids=lambda file: file.stem)
def test_an_experiment_says_what_it_is_and_then_its_command(file: Path) -> None:
    first, second, *_ = file.read_text().splitlines()
    assert first.startswith("# ")
    assert first.endswith(".")
    assert second == f"# shoal run {file.stem}"
    for place in (file.stem, f"experiments/{file.name}"):
        assert read(Path(place)) == read(file)


def test_a_file_wins_over_the_experiment_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for place in ("digits", "experiments/digits.toml"):
        assert read(Path(place)).seeds == 4
        Path(place).parent.mkdir(exist_ok=True)
        Path(place).write_text("seeds = 7\n")
        assert read(Path(place)).seeds == 7
    with pytest.raises(SettingsError, match=r"no settings file data=csv:a.csv; leave out `data=`, or say an exp"):
        read(Path("data=csv:a.csv"))
    with pytest.raises(SettingsError, match=r"no settings file digts; did you mean `digits`\?"):
        read(Path("digts"))
    with pytest.raises(SettingsError, match=r"no settings file elsewhere/mnist.toml; did you mean `mnist`\?"):
        read(Path("elsewhere/mnist.toml"))


@pytest.mark.parametrize("model", ["mlp", "modular-mlp", "modular-cnn"])
@pytest.mark.parametrize("protocol", ["fair", "paper"])
@pytest.mark.parametrize("file", EXPERIMENTS, ids=lambda file: file.stem)
def test_resolved_settings_read_back_equal(file: Path, protocol: str, model: str, tmp_path: Path) -> None:
    shared = ["sharing=none"] if model == "mlp" and "modmod" in file.read_text() else []  # it needs modules
    if model != "mlp" and any(word in file.read_text() for word in ("replay", 'heads = "grow"', 'heads = "one"')):
        pytest.skip("the file names a learner or heads that are not for modular nets")
    settings = read(file, [f"protocol={protocol}", f"model={model}", "learner.rate=1e-05", *shared])
    again = read(write(tmp_path, toml(settings)))
    assert again == settings
    assert again.identity() == settings.identity()


@pytest.mark.parametrize("protocol", ["fair", "paper"])
@pytest.mark.parametrize("dataset", table1.DATASETS)
def test_an_experiment_of_the_paper_gives_every_row_of_its_table(dataset: str, protocol: str) -> None:
    seeds = 2 if dataset == table1.SMALL else 8
    for model, method in table1.PAPER:
        modes = table1.modes(dataset, model, method)
        net = ("modular-" if model == "modular" else "") + ("mlp" if dataset in table1.MLP else "cnn")
        words = [f"protocol={protocol}", f"model={net}", f"sharing={','.join(modes) or 'none'}"]
        if dataset == table1.SMALL:
            words += [f"sharing.{mode}.every={2 if mode == 'simp' else 1}" for mode in modes if mode != "modmod"]
        ours = read(Path(dataset), words)
        assert ours == table1.settings(dataset, model, method, protocol, seeds), (model, method)


@pytest.mark.parametrize("family", ["budget", "topology"])
def test_an_experiment_of_a_figure_is_one_of_its_points(family: str) -> None:
    ours = read(Path(family))
    cells = families.choose(family, ["mnist"], ["modular"], None, "paper", 2)
    assert ours.identity() in {cell.settings.identity() for cell in cells}


# dataset, model, mode: common start, fresh Adam, dropout on the basis; and what the mode itself does.
ROWS: list[tuple[str, str, str, tuple[bool, bool, bool], dict[str, object]]] = [
    ("mnist", "modular-mlp", "recv", (False, True, True),
     {"leak": True, "labels": "query", "scope": "current", "start": 3, "buffer": "reservoir", "memory": 32,
      "neighbours": "all", "every": 16, "when": "after", "queries": 20, "nearest": 5}),
    ("combined", "modular-mlp", "recv", (True, False, True),
     {"leak": True, "labels": "true", "scope": "current", "buffer": "replace", "neighbours": "same source",
      "oldest": 4}),
    ("kmnist", "mlp", "recv", (True, False, True),
     {"leak": True, "labels": "true", "scope": "all", "buffer": "reservoir", "neighbours": "all", "oldest": 0}),
    ("combined", "mlp", "recv", (True, False, True), {"neighbours": "same source", "scope": "all"}),
    ("cifar100", "modular-cnn", "simp", (False, False, True),
     {"every": 20, "when": "before", "worth": "task", "quota": "remainder", "buffer": "replace", "once": True,
      "memory": 160, "images": 20, "scope": "last"}),
    ("cifar100", "cnn", "simp", (False, False, True), {"every": 16, "when": "after", "scope": "all"}),
    ("mnist", "modular-mlp", "fedavg", (True, True, False), {"every": 5, "when": "before"}),
    ("combined", "modular-mlp", "fedavg", (True, False, False), {"every": 5, "neighbours": "same source"}),
    ("combined", "mlp", "fedavg", (True, False, False), {"every": 5, "neighbours": "all"}),
    ("mnist", "mlp", "fedavg", (True, False, False), {"every": 5, "when": "before"}),
    ("mnist", "modular-mlp", "fedprox", (True, False, False), {"mu": 0.001, "squared": False, "scaling": "task"}),
    ("mnist", "modular-mlp", "fedcurv", (True, False, False), {"fisher": "frozen", "scaling": "task"}),
    ("kmnist", "mlp", "fedcurv", (True, False, False), {"fisher": "batch", "mu": 0.001, "scaling": "task"}),
    ("mnist", "mlp", "fedfish", (True, False, False), {"fisher": "batch", "norm": "softmax"}),
    ("mnist", "modular-mlp", "modmod", (True, True, False),
     {"metric": "iou", "choose": "trust", "modules": 1, "min_similarity": "metric", "transfer_head": True,
      "transfer_structure": True, "frozen": False, "extra_random": False, "leak": False, "start": "grown"}),
    ("combined", "modular-mlp", "modmod", (True, False, False),
     {"metric": "leep", "examples": 40, "min_similarity": "metric", "leak": True, "neighbours": "all"}),
    ("cifar100", "modular-cnn", "modmod", (True, False, True), {"metric": "iou", "min_similarity": -1.0}),
]  # fmt: skip
# The same for all modes at once.
HYBRIDS: list[tuple[str, str, tuple[bool, bool, bool], dict[str, dict[str, object]]]] = [
    ("kmnist", "modular-mlp", (True, False, False), {
        "recv": {"leak": True, "scope": "current", "labels": "query", "buffer": "reservoir", "start": "initial"},
        "modmod": {"metric": "iou", "min_similarity": -1.0, "leak": False, "neighbours": "all"},
        "fedavg": {"every": 5, "neighbours": "all"}}),
    ("combined", "modular-mlp", (True, False, False), {
        "recv": {"leak": True, "scope": "current", "labels": "true", "buffer": "reservoir",
                 "neighbours": "same source"},
        "modmod": {"metric": "iou", "neighbours": "same source"}, "fedavg": {"neighbours": "same source"}}),
    ("mnist", "mlp", (True, False, False), {
        "recv": {"leak": True, "scope": "all", "labels": "true", "buffer": "reservoir"}, "fedavg": {}}),
    ("combined", "mlp", (True, False, False), {
        "recv": {"neighbours": "same source"}, "fedavg": {"neighbours": "same source"}}),
    ("cifar100", "modular-cnn", (True, False, True), {
        "simp": {"every": 20, "when": "before", "buffer": "reservoir", "once": True}, "modmod": {}, "fedavg": {}}),
]  # fmt: skip


@pytest.mark.parametrize(("dataset", "model", "mode", "switched", "own"), ROWS)
def test_the_paper_protocol_knows_how_each_row_shared(
    dataset: str, model: str, mode: str, switched: tuple[bool, bool, bool], own: dict[str, object]
) -> None:
    settings = resolve({"dataset": dataset, "model": model, "protocol": "paper", "sharing": mode})
    on_basis = getattr(settings.net, "dropout_basis", switched[2])  # which nets without modules do not have
    assert (settings.tasks.common, settings.learner.fresh_adam, on_basis) == switched
    assert own.items() <= settings.sharing[0].model_dump().items()
    adapts = "never" if (dataset, mode) == ("cifar100", "modmod") else "last"
    assert getattr(settings.learner, "adaptation", "last") == adapts


@pytest.mark.parametrize(("dataset", "model", "switched", "own"), HYBRIDS)
def test_the_paper_protocol_knows_how_its_hybrids_shared(
    dataset: str, model: str, switched: tuple[bool, bool, bool], own: dict[str, dict[str, object]]
) -> None:
    settings = resolve({"dataset": dataset, "model": model, "protocol": "paper", "sharing": ",".join(own)})
    on_basis = getattr(settings.net, "dropout_basis", switched[2])  # which nets without modules do not have
    assert (settings.tasks.common, settings.learner.fresh_adam, on_basis) == switched
    assert [mode.mode for mode in settings.sharing] == list(own)
    for mode in settings.sharing:
        assert own[mode.mode].items() <= mode.model_dump().items()
    assert getattr(settings.learner, "adaptation", "last") == ("never" if dataset == "cifar100" else "last")


@pytest.mark.parametrize(
    ("model", "mode"),
    [(model, mode) for mode in MODES for model in models_of(mode) if not model.endswith("cnn")],
)
def test_the_fair_protocol_does_not_depend_on_what_is_shared(model: str, mode: str) -> None:
    alone, shared = resolve({"model": model}), resolve({"model": model, "sharing": mode})
    assert shared.model_copy(update={"sharing": ()}) == alone
    assert getattr(shared.sharing[0], "leak", False) is False
    assert getattr(shared.sharing[0], "neighbours", "all") == "all"


@pytest.mark.parametrize(
    "words",
    [
        ["sharing=recv", "sharing.every=10"],
        ["sharing=recv", "sharing.recv.every=10"],
        ['sharing=["recv"]', "sharing.every=10"],
        ['sharing=[{mode = "recv", every = 10}]'],
        ["sharing=fedavg", "sharing=recv", "sharing.every=10"],
    ],
)
def test_sharing_can_be_said_in_words(words: list[str]) -> None:
    assert resolve(override({}, words)) == resolve({"sharing": [{"mode": "recv", "every": 10}]})


def test_several_modes_act_in_the_order_they_are_listed() -> None:
    settings = resolve(override({}, ["sharing=recv,fedavg", "sharing.fedavg.every=10"]))
    assert [(mode.mode, mode.every) for mode in settings.sharing] == [("recv", 16), ("fedavg", 10)]
    assert resolve(override({"sharing": "recv"}, ["sharing=none"])).sharing == ()


def test_a_network_can_be_said_in_words() -> None:
    wanted = resolve({"network": {"graph": "ring", "budget": 20000}})
    assert resolve(override({}, ["network=ring", "network.budget=20000"])) == wanted
    assert resolve(override({}, ["network.budget=20000", "network=ring"])) == wanted
    assert resolve(override({"network": "tree"}, ["network.budget=20000", "network=ring"])) == wanted


def test_another_graph_forgets_the_edges_of_the_one_before() -> None:
    raw = {"network": {"graph": "edges", "edges": [{"sender": 0, "receiver": 1}]}}
    assert resolve(override(raw, ["network=ring"])).network.edges == ()
    assert resolve(override(raw, ["network.every=3"])).network.edges != ()


def test_single_edges_of_a_file_can_have_limits_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "links.txt").write_text("0 1\n1 2 500 10\n")
    graph = str(tmp_path / "links.txt")
    own = {"sender": 1, "receiver": 2, "every": 3}
    found = resolve({"network": {"graph": graph, "edges": [own]}}).network.edges
    assert [(link.sender, link.budget, link.every) for link in found] == [(0, None, None), (1, 500, 3)]
    assert "an edge that" in refusal({"network": {"graph": graph, "edges": [{"sender": 2, "receiver": 1}]}})


def test_a_graph_file_is_looked_for_beside_the_settings(tmp_path: Path) -> None:
    (tmp_path / "links.txt").write_text("0 1\n1 2 500 10\n")
    file = tmp_path / "fleet.toml"
    file.write_text('sharing = "fedavg"\n[network]\ngraph = "links.txt"\n')
    settings = read(file)
    assert [(link.sender, link.receiver, link.budget) for link in settings.network.edges] == [(0, 1, None), (1, 2, 500)]
    (tmp_path / "ring").write_text("0 1\n")
    file.write_text(file.read_text().replace("links.txt", "ring"))  # a name of ours is never a file
    assert read(file).network.graph == "ring"
    (tmp_path / "links.txt").unlink()  # resolved settings need the file no more
    (tmp_path / "settings.toml").write_text(toml(settings))
    assert read(tmp_path / "settings.toml") == settings


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"sharing": "telepathy"}, "there is no sharing mode `telepathy`; allowed: recv, simp, uniform, fedavg"),
        ({"sharing": "fedagv"}, "did you mean `fedavg`?"),
        ({"sharing": 3}, "`sharing` cannot be 3"),
        ({"sharing": [{"every": 3}]}, "needs a mode"),
        ({"sharing": "recv,recv"}, "listed 2 times"),
        ({"sharing": [{"mode": "recv", "querys": 3}]}, "did you mean `sharing.recv.queries`?"),
        ({"sharing": [{"mode": "recv", "queries": 0}]}, "`sharing.recv.queries` cannot be 0"),
        ({"sharing": [{"mode": "recv", "scorer": "luck"}]}, "`sharing.recv.scorer` cannot be 'luck'"),
        ({"sharing": [{"mode": "recv", "budget": -1}]}, "`sharing.recv.budget` cannot be -1"),
        ({"sharing": [{"mode": "fedavg", "every": 101}]}, "nothing would ever be exchanged"),
        ({"network": {"budget": -5}}, "`network.budget` cannot be -5"),
        ({"network": {"every": 0}}, "`network.every` cannot be 0"),
        ({"network": "rign"}, 'did you mean "ring"?'),
        ({"network": {"graph": "edges"}}, "needs network.edges"),
        ({"network": {"graph": "edges", "edges": [{"sender": 0, "receiver": 8}]}}, "the last agent is 7"),
        ({"network": {"graph": "edges", "edges": [{"sender": 1, "receiver": 1}]}}, "1 -> 1"),
        (
            {"network": {"graph": "edges", "edges": [{"sender": -1, "receiver": 1}]}},
            "`network.edges[0].sender` cannot be -1; allowed: a whole number at least 0",
        ),
        ({"network": {"edges": [{"sender": 0, "receiver": 1, "budget": "x"}]}}, "`network.edges[0].budget` cannot be"),
        ({"network": {"edges": [{"sender": 0, "recever": 1}]}}, "did you mean `network.edges[0].receiver`?"),
        ({"sharing": [{"mode": "recv", "receive": "none"}]}, 'labels = "true" needs the labels'),
        ({"sharing": "recv,simp"}, "`recv` and `simp` would keep what they receive in the same buffers"),
        ({"sharing": [{"mode": "recv", "start": 10}]}, "mode `recv` would begin with task 10"),
        ({"sharing": "fedavg", "tasks": {"count": 4}}, "nothing would ever be exchanged"),
    ],
)
def test_sharing_that_cannot_be_gets_a_sentence(raw: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        resolve(raw)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sharing.every=3"], "say sharing=MODE first"),
        (["sharing=recv,fedavg", "sharing.every=3"], "say which: sharing.recv.KEY=VALUE"),
        (["sharing=recv", "sharing.simp.every=3"], "say sharing=simp first"),
    ],
)
def test_words_for_a_mode_that_is_not_shared_are_refused(words: list[str], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        override({}, words)
    assert message in str(caught.value)


class Choosy(FedAvg):
    """A mode that can serve monolithic nets only."""

    def suits(self, settings: Settings) -> None:
        if family(settings) == GROWTH:
            raise SettingsError(f"mode `choosy` needs a monolithic model, got `{settings.model}`; use model = mlp")


def test_a_mode_refuses_a_model_it_cannot_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODES.entries, "fedavg", Choosy)
    assert resolve({"model": "mlp", "sharing": "fedavg"}).sharing
    with pytest.raises(SettingsError, match="needs a monolithic model, got `modular-mlp`"):
        resolve({"model": "modular-mlp", "sharing": "fedavg"})


def test_rows_are_what_modes_call_images() -> None:
    few = {"dataset": "digits", "agents": 2, "tasks": {"count": 3, "classes": 2, "initial": 1}}
    ways = [resolve({**few, "sharing": {"mode": "simp", name: 7}}).sharing for name in ("rows", "images")]
    assert ways[0] == ways[1]
    with pytest.raises(SettingsError, match="rows and images, which are the same"):
        resolve({**few, "sharing": {"mode": "simp", "rows": 7, "images": 8}})
    with pytest.raises(SettingsError, match=r"sharing\.fedavg\.rows"):
        resolve({**few, "sharing": {"mode": "fedavg", "rows": 7}})
