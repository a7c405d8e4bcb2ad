"""Settings from TOML and `key=value`: what the user says, completed and checked."""

import copy
import stat
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from shoal.configure.completing import listing
from shoal.configure.entries import net_kind, network_kind
from shoal.configure.kinds import described, models_of
from shoal.data.scenarios import kind_of
from shoal.errors import SettingsError, nearly
from shoal.learners.table import LEARNERS
from shoal.models.table import vet
from shoal.settings.groups import MODEL, Settings
from shoal.settings.saying import SHORT, widen
from shoal.sharing.contract import Sharing
from shoal.trust import allow

OF_DATA = ("agents", "tasks")  # settings that belong to a file's data, and go with it
LARGEST = 64 * 2**20  # bytes of a settings file
EXPERIMENTS = Path(__file__).parents[1] / "experiments"  # settings files that come with shoal


def resolve(raw: dict[str, Any]) -> Settings:
    """Settings from what the user said, as in TOML; `Settings(**raw)` is the same.

    >>> import shoal
    >>> shoal.resolve({"dataset": "digits", "learner": "ewc", "model": "mlp"}).learner.method
    'ewc'
    """
    return Settings(**raw)


def read(file: Path | str, overrides: Iterable[str] = (), trust: bool = False) -> Settings:
    """Settings from a TOML file, or the experiment of that name, and `key=value` words; what is said later wins. A file
    that would load code, files outside its folder or a cluster needs `trust`, unless it was trusted before.

    >>> import shoal
    >>> settings = shoal.read("digits", ["agents=4", "sharing=recv"])
    >>> settings.agents, [mode.mode for mode in settings.sharing]
    (4, ['recv'])
    """
    return resolve(said(Path(file), overrides, trust))


def said(file: Path, overrides: Iterable[str] = (), trust: bool = False) -> dict[str, Any]:
    """What a settings file and words say, if this user allows what they would load."""
    overrides = tuple(overrides)
    data = data_of(file)
    raw = parsed(file)
    found = override(raw, overrides)
    own = overrides if data is None else (*overrides, data)  # data that the user names is no word of a stranger
    allow(found, located(file), own, trust, raw)
    vet(found)
    return found


def experiments() -> dict[str, Path]:
    """The settings files that come with shoal, by name."""
    return {file.stem: file for file in sorted(EXPERIMENTS.glob("*.toml"), key=lambda file: file.stem)}


TABLES = (".csv", ".parquet")  # data in the place of a settings file


def located(file: Path) -> Path:
    """The settings file that is meant: a path, or the name of one that comes with shoal, which may also be written
    `experiments/NAME.toml`."""
    if str(file) in experiments() or (file.parent, file.suffix) == (Path("experiments"), ".toml"):
        own = experiments().get(file.stem)
        if own and not is_there(file):
            return own
    return file


def is_there(file: Path) -> bool:
    """Is there such a file?"""
    try:
        return file.is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False


def data_of(file: Path) -> str | None:
    """The data that stands in the place of a settings file; None if it is one."""
    from shoal.data.sources import is_source

    if is_source(str(file)):
        return str(file)
    path, asks, said = str(file).partition("?")  # as in table.csv?label=NAME
    place = Path(path)
    if place.suffix.lower() not in TABLES or not is_there(place):
        return None
    return f"{place.suffix[1:].lower()}:{path}{asks}{said}"


def parsed(file: Path) -> dict[str, Any]:
    """What a settings file says; a name without a folder or an ending is that of an experiment."""
    from shoal.data.sources import is_source

    if (data := data_of(file)) is not None:
        return {"dataset": data}
    file = located(file)
    try:
        found = file.stat()
        if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):  # it may never end
            raise SettingsError(f"cannot read {file}: it is no regular file; give a settings file in TOML")
        if found.st_size > LARGEST:
            raise SettingsError(
                f"cannot read {file}: it has {found.st_size:,} bytes, and settings have {LARGEST:,} at most; give a "
                "settings file in TOML"
            )
        raw = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        names = list(experiments())
        hint = nearly(file.stem, names)
        if str(file).startswith(("data=", "dataset=")):  # as it is said behind --from
            hint = "leave out `data=`, or say an experiment before it; "
        raise SettingsError(f"no settings file {file}; {hint}those that come with shoal: {', '.join(names)}") from None
    except SettingsError:
        raise
    except OSError as error:
        raise SettingsError(f"cannot read {file}: {error.strerror}; give a settings file in TOML") from None
    except RecursionError:
        raise SettingsError(f"cannot read {file} as TOML: its values are nested too deep; make them flat") from None
    except ValueError as error:  # no TOML, no text, a number of thousands of digits, or a name that no file can have
        raise SettingsError(
            f"cannot read {file} as TOML: {error}; `shoal list experiments` names files that can be read"
        ) from None
    network = raw.get("network", {})
    linked = {"graph": network} if isinstance(network, str) else network
    from shoal.network.graphs import is_file

    # A graph file is named from where the settings are.
    graph = linked.get("graph") if isinstance(linked, dict) else None
    if isinstance(graph, str) and is_file(graph) and is_there(file.parent / graph):
        raw["network"] = linked | {"graph": str(file.parent / graph)}
    from shoal.data.sources import beside

    # And so is data.
    if isinstance(raw.get("dataset"), str) and is_source(raw["dataset"]):
        raw["dataset"] = beside(raw["dataset"], file.parent)
    # And so is a backbone.
    backbone = raw.get("backbone")
    if isinstance(backbone, str) and backbone.endswith(".onnx") and is_there(file.parent / backbone):
        raw["backbone"] = str(file.parent / backbone)
    return raw


def override(raw: dict[str, Any], words: Iterable[str]) -> dict[str, Any]:
    """A copy of `raw` with `a.b=c` words applied. A value is read as TOML, or taken as a plain string."""
    result: dict[str, Any] = copy.deepcopy(raw)
    # Data first: what it does not take over is the file's, never another word's.
    for word in sorted(words, key=lambda one: not one.startswith("dataset=")):
        name, equals, text = word.partition("=")
        if not equals or not name:
            raise SettingsError(f"cannot read `{word}`; settings on the command line look like learner.epochs=50")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text
        except RecursionError:
            raise SettingsError(f"cannot read `{name}`: its value is nested too deep; make it flat") from None
        except ValueError:  # a number of thousands of digits
            raise SettingsError(
                f"cannot read `{name}`: its value has {len(text)} digits; say a smaller number"
            ) from None
        *groups, last = name.split(".")
        short = isinstance(value, str) or (last in ("learner", "network") and not isinstance(value, dict))
        if last in SHORT and short and (not groups or groups[0] == "kinds"):
            groups, last = [*groups, last], SHORT[last]
        result = widen(result)
        if [*groups, last] == ["network", "graph"] and isinstance(result.get("network"), dict):
            result["network"].pop("edges", None)  # they are another graph's
        if ".".join([*groups, last]) in ("learner.method", "tasks.scenario", "network.graph", "model"):
            result = without(result, ".".join([*groups, last]), value)
        if name == "dataset" and is_other_source(result.get("dataset"), value):
            for one in OF_DATA:
                result.pop(one, None)
        at = result
        if groups[:1] == ["sharing"]:
            at, groups = shared(result, groups[1:], word), []
        elif groups[:1] == ["kinds"]:
            at, groups = described(result, groups[1:], word), groups[2:]
        for group in groups:
            at = at.setdefault(group, {})
            if not isinstance(at, dict):
                raise SettingsError(f"`{group}` in `{word}` is a single setting, not a group")
        at[last] = value
    return result


def not_taken(file: Path | str, words: Iterable[str]) -> str:
    """A sentence that says what data of one's own, in the place of a file's, does not take over from that file; empty:
    it takes over everything."""
    raw = parsed(Path(file))
    lost = []
    for word in words:
        if word.startswith("dataset=") and is_other_source(
            raw.get("dataset"), word.removeprefix("dataset=").strip("'\"")
        ):
            lost = [shown(one, raw[one]) for one in OF_DATA if one in raw]
    if not lost:
        return ""
    return (
        f"of {file} this is not taken over, because it is about its data, {raw['dataset']}: {', '.join(lost)}; the "
        "data itself says who has it and what the tasks are, and words such as agents=4 or tasks.count=3 say otherwise"
    )


def shown(name: str, value: Any) -> str:
    """A setting, or those of a group, as words of the command line."""
    if not isinstance(value, dict):
        return f"{name}={value}"
    return ", ".join(shown(f"{name}.{key}", one) for key, one in value.items())


def is_other_source(before: Any, value: Any) -> bool:
    """Does data of one's own take the place of other data? It says itself who has it and what the tasks are."""
    from shoal.data.sources import is_source

    return isinstance(value, str) and is_source(value) and before is not None and before != value


def without(raw: dict[str, Any], name: str, entry: Any) -> dict[str, Any]:
    """What is said without the settings that an entry alone has, when another takes its place: a learner, a scenario, a
    graph, or the model, whose nets they are."""
    group, _, inner = name.rpartition(".")
    group = group or "net"
    said = raw.get(group, {})
    before = raw.get("model", MODEL) if name == "model" else said.get(inner) if isinstance(said, dict) else None
    if not isinstance(said, dict) or not isinstance(before, str) or not isinstance(entry, str):
        return raw
    try:
        gone = fields_by(name, before, raw) - fields_by(name, entry, raw)
    except SettingsError:  # there is no such entry, which is said where it is used
        return raw
    return {**raw, group: {key: one for key, one in said.items() if key not in gone}} if gone else raw


def fields_by(name: str, entry: str, raw: dict[str, Any]) -> set[str]:
    """The settings that go with an entry; kinds of agents and later graphs may need more of them."""
    if name == "learner.method":
        return {*LEARNERS.find(entry).model_fields}
    if name == "tasks.scenario":
        return {*kind_of(entry).model_fields}
    if name == "network.graph":
        return {*network_kind({**raw["network"], "graph": entry}).model_fields}
    return {key for model in (entry, *models_of(raw.get("kinds", ()))) for key in net_kind(model).model_fields}


def shared(raw: dict[str, Any], groups: list[str], word: str) -> dict[str, Any]:
    """The [[sharing]] table that `sharing.KEY=VALUE` (if there is one) or `sharing.MODE.KEY=VALUE` means."""
    listed = listing(raw.get("sharing", ()))
    tables = [mode.model_dump() if isinstance(mode, Sharing) else dict(mode) for mode in listed]
    raw["sharing"] = tables
    names = [table["mode"] for table in tables]
    mode = ".".join(groups)  # package.module:Name has dots
    if mode in names:
        return tables[names.index(mode)]
    if mode:
        raise SettingsError(f"`{word}` is for the mode `{mode}`, which is not shared; say sharing={mode} first")
    if len(tables) != 1:
        which = f"say which: sharing.{names[0]}.KEY=VALUE" if tables else "say sharing=MODE first"
        raise SettingsError(f"`{word}` is for one of {len(tables)} sharing modes; {which}")
    return tables[0]
