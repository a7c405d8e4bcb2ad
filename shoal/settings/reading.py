"""Settings from TOML and `key=value`: what the user says, completed and checked."""

import copy
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from shoal.errors import SettingsError
from shoal.settings.checks import known, made
from shoal.settings.groups import REST, Link, Settings
from shoal.settings.kinds import described, kinds_of, possible, suitable
from shoal.settings.protocols import completed, switches
from shoal.sharing.contract import Sharing


def resolve(raw: dict[str, Any]) -> Settings:
    """Settings from what the user said; the protocol fills its switches where the user said nothing."""
    from shoal.network.edges import edges, settle

    raw = dict(raw)
    listed, kinds = raw.pop("sharing", ()), raw.pop("kinds", ())
    if isinstance(raw.get("network"), str):
        raw["network"] = {"graph": raw["network"]}
    known(raw)
    for at, link in enumerate(raw.get("network", {}).get("edges", ())):
        if isinstance(link, dict):
            known(link, Link, f"network.edges[{at}].")
            made(Link, link, f"network.edges[{at}].")
    said = made(Settings, raw)
    tables = listing(listed)
    names = tuple(table["mode"] for table in tables)
    modes = tuple(mode_of(one, said, names) for one in tables)
    merged = {**raw, **completed(raw, said, said.model, names)}
    settings = Settings(
        **{**merged, "network": settle(said.network), "sharing": modes, "kinds": kinds_of(kinds, raw, said, names)}
    )
    edges(said.network, said.agents, said.seed)  # says what is wrong with them before anything is written
    for mode in modes:
        suitable(mode, settings)
        if mode.every != "task" and mode.every > settings.learner.epochs:
            raise SettingsError(
                f"sharing.{mode.mode}.every = {mode.every} is more than learner.epochs = {settings.learner.epochs}, so "
                f"nothing would ever be exchanged; lower sharing.{mode.mode}.every"
            )
        first = mode.first(settings.tasks.initial)
        if first >= settings.tasks.count:
            raise SettingsError(
                f"mode `{mode.mode}` would begin with task {first}, counted from 0, but tasks.count = "
                f"{settings.tasks.count}: nothing would ever be exchanged; raise tasks.count or lower "
                f"sharing.{mode.mode}.start"
            )
    keepers = [mode.mode for mode in modes if mode.room]
    if len(keepers) > 1:
        raise SettingsError(
            f"`{keepers[0]}` and `{keepers[1]}` would keep what they receive in the same buffers; share by one of them"
        )
    if settings.tasks.initial > settings.tasks.count:
        raise SettingsError(
            f"tasks.initial = {settings.tasks.initial} is more than tasks.count = {settings.tasks.count}; "
            "lower tasks.initial or raise tasks.count"
        )
    for name in settings.members():
        possible(settings.of(name), "" if name == REST else f"kinds.{name}.")
    return settings


def listing(said: Any) -> list[dict[str, Any]]:
    """What the user shares, as a table per mode, from "recv", "recv,fedavg", "none", ["recv"] or [{mode = "recv"}]."""
    if isinstance(said, str):
        said = [] if said in ("none", "") else [{"mode": name.strip()} for name in said.split(",")]
    if isinstance(said, dict):
        said = [said]
    if not isinstance(said, (list, tuple)):
        raise SettingsError(f'`sharing` cannot be {said!r}; say sharing = "recv", or a [[sharing]] table for each mode')
    tables = []
    for one in said:
        if isinstance(one, Sharing):
            one = one.model_dump()
        table = {"mode": one} if isinstance(one, str) else one
        if not isinstance(table, dict) or not isinstance(table.get("mode"), str):
            raise SettingsError(f'every [[sharing]] table needs a mode, e.g. mode = "recv"; got {one!r}')
        tables.append(table)
    names = [table["mode"] for table in tables]
    for name in names:
        if names.count(name) > 1:
            raise SettingsError(f"mode `{name}` is listed {names.count(name)} times in `sharing`; list it once")
    return tables


def mode_of(table: dict[str, Any], said: Settings, modes: tuple[str, ...]) -> Sharing:
    """The sharing mode that a table describes, one of `modes`; the protocol fills what the table does not say."""
    from shoal.sharing.modes import MODES

    name = table["mode"]
    mode, path = MODES.find(name), f"sharing.{name}."
    known(table, mode, path)
    filled = switches(said.protocol, said.model, said.dataset, modes, said.tasks.initial)["sharing"].get(name, {})
    named = {} if mode.model_fields["mode"].is_required() else {"mode": mode.model_fields["mode"].default}
    return made(mode, {**filled, **table, **named}, path)


def read(file: Path, overrides: Iterable[str] = ()) -> Settings:
    """Settings from a TOML file and `key=value` words; what is said later wins."""
    try:
        raw = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SettingsError(
            f"no settings file {file}; those that come with shoal's source are in its folder experiments"
        ) from None
    except OSError as error:
        raise SettingsError(f"cannot read {file}: {error.strerror}; give a settings file in TOML") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"cannot read {file} as TOML: {error}; experiments/ has files that can be read") from None
    network = raw.get("network", {})
    said = {"graph": network} if isinstance(network, str) else network
    from shoal.network.graphs import is_file

    # A graph file is named from where the settings are.
    if isinstance(said, dict) and is_file(str(said.get("graph", ""))) and (file.parent / said["graph"]).is_file():
        raw["network"] = said | {"graph": str(file.parent / said["graph"])}
    return resolve(override(raw, overrides))


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
        *groups, last = name.split(".")
        if isinstance(result.get("network"), str):
            result["network"] = {"graph": result["network"]}
        if name == "network":  # short for its graph
            groups, last = ["network"], "graph"
        if [*groups, last] == ["network", "graph"] and isinstance(result.get("network"), dict):
            result["network"].pop("edges", None)  # they are another graph's
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


def shared(raw: dict[str, Any], groups: list[str], word: str) -> dict[str, Any]:
    """The [[sharing]] table that `sharing.KEY=VALUE` (if there is one) or `sharing.MODE.KEY=VALUE` means."""
    tables: list[dict[str, Any]] = [dict(table) for table in listing(raw.get("sharing", ()))]
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
