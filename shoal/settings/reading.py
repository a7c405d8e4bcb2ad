"""Settings from TOML and `key=value`: what the user says, completed and checked."""

import copy
import difflib
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from shoal.errors import SettingsError
from shoal.settings.completing import listing
from shoal.settings.groups import Settings
from shoal.settings.kinds import described
from shoal.sharing.contract import Sharing

EXPERIMENTS = Path(__file__).parents[1] / "experiments"  # settings files that come with shoal
SHORT = {"network": "graph", "learner": "method"}  # what a group that is one word means


def resolve(raw: dict[str, Any]) -> Settings:
    """Settings from what the user said, as in TOML; `Settings(**raw)` is the same.

    >>> import shoal
    >>> shoal.resolve({"dataset": "digits", "learner": "ewc", "model": "mlp"}).learner.method
    'ewc'
    """
    return Settings(**raw)


def read(file: Path | str, overrides: Iterable[str] = ()) -> Settings:
    """Settings from a TOML file, or the experiment of that name, and `key=value` words; what is said later wins.

    >>> import shoal
    >>> settings = shoal.read("digits", ["agents=4", "sharing=recv"])
    >>> settings.agents, [mode.mode for mode in settings.sharing]
    (4, ['recv'])
    """
    return resolve(override(parsed(Path(file)), overrides))


def experiments() -> dict[str, Path]:
    """The settings files that come with shoal, by name."""
    return {file.stem: file for file in sorted(EXPERIMENTS.glob("*.toml"), key=lambda file: file.stem)}


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


def parsed(file: Path) -> dict[str, Any]:
    """What a settings file says; a name without a folder or an ending is that of an experiment."""
    file = located(file)
    try:
        raw = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        names = list(experiments())
        close = difflib.get_close_matches(file.stem, names, n=1)
        hint = f"did you mean `{close[0]}`? " if close else ""
        raise SettingsError(f"no settings file {file}; {hint}those that come with shoal: {', '.join(names)}") from None
    except OSError as error:
        raise SettingsError(f"cannot read {file}: {error.strerror}; give a settings file in TOML") from None
    except RecursionError:
        raise SettingsError(f"cannot read {file} as TOML: its values are nested too deep; make them flat") from None
    except ValueError as error:  # no TOML, no text, a number of thousands of digits, or a name that no file can have
        raise SettingsError(
            f"cannot read {file} as TOML: {error}; `shoal list experiments` names files that can be read"
        ) from None
    network = raw.get("network", {})
    said = {"graph": network} if isinstance(network, str) else network
    from shoal.network.graphs import is_file

    # A graph file is named from where the settings are.
    graph = said.get("graph") if isinstance(said, dict) else None
    if isinstance(graph, str) and is_file(graph) and is_there(file.parent / graph):
        raw["network"] = said | {"graph": str(file.parent / graph)}
    from shoal.data.sources import beside, is_source

    # And so is data.
    if isinstance(raw.get("dataset"), str) and is_source(raw["dataset"]):
        raw["dataset"] = beside(raw["dataset"], file.parent)
    return raw


def widen(raw: dict[str, Any]) -> None:
    """Write out what is said in short."""
    for name, last in SHORT.items():
        if isinstance(raw.get(name), str):
            raw[name] = {last: raw[name]}
    kinds = raw.get("kinds")
    for kind in kinds if isinstance(kinds, list) else ():
        if isinstance(kind, dict):
            widen(kind)


def override(raw: dict[str, Any], words: Iterable[str]) -> dict[str, Any]:
    """A copy of `raw` with `a.b=c` words applied. A value is read as TOML, or taken as a plain string."""
    result: dict[str, Any] = copy.deepcopy(raw)
    for word in words:
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
        if last in SHORT and not isinstance(value, dict) and (not groups or groups[0] == "kinds"):
            groups, last = [*groups, last], SHORT[last]
        widen(result)
        if [*groups, last] == ["network", "graph"] and isinstance(result.get("network"), dict):
            result["network"].pop("edges", None)  # they are another graph's
        if [*groups, last] == ["learner", "method"] and isinstance(result.get("learner"), dict):
            result["learner"] = without(result["learner"], value)
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


def without(table: dict[str, Any], method: Any) -> dict[str, Any]:
    """What is said of a learner without the settings of that one alone, when another takes its place."""
    from shoal.learners.table import LEARNERS

    before = table.get("method")
    if not isinstance(before, str) or before not in LEARNERS or method not in LEARNERS:
        return table
    own = LEARNERS[before].model_fields.keys() - LEARNERS[method].model_fields.keys()
    return {name: value for name, value in table.items() if name not in own}


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
