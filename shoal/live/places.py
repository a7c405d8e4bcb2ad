"""The table `[live]` of a settings file: where agents are, and what they read there."""

import re
from typing import Any, NamedTuple

from shoal.errors import SettingsError

LOCAL = "127.0.0.1"
KEYS = ("addresses", "base", "data", "watch")


class Said(NamedTuple):
    """What the table says: an address for each agent, the data that each reads on its own host (empty: that of the
    fleet), and for how many seconds nothing must change there until what has come is learned (None: nothing comes)."""

    addresses: tuple[str, ...]
    data: str = ""
    watch: float | None = None


def said_by(table: Any, agents: int) -> Said:
    """The table `[live]`, checked."""
    from shoal.data.sources import is_source

    if isinstance(table, dict) and (strange := [name for name in table if name not in KEYS]):
        raise SettingsError(f"`live.{strange[0]}` is not known; allowed: {', '.join(KEYS)}")
    more = {name: table[name] for name in ("data", "watch") if name in table} if isinstance(table, dict) else {}
    if "data" in more and not (isinstance(more["data"], str) and is_source(more["data"])):
        raise SettingsError(
            f"live.data is {more['data']!r}; say what each agent reads on its host, from its folder, as in "
            '"csv:rows.csv?label=state&task=week"'
        )
    seconds = more.get("watch")
    if "watch" in more and (type(seconds) not in (int, float) or not 0 <= float(seconds or 0) <= 10**6):
        raise SettingsError(
            f"live.watch is {seconds!r}; say for how many seconds rows must not have changed until they are learned"
        )
    places = {name: one for name, one in table.items() if name not in more} if isinstance(table, dict) else table
    return Said(addresses_of(places, agents), **more)


def addresses_of(said: Any, agents: int) -> tuple[str, ...]:
    """An address for each agent, from the table `[live]`: a list, or the first one, from which ports are counted."""
    allowed = (
        f'`[live]` says addresses = ["host:port", ...], one for each of the {agents} agents, or base = "{LOCAL}:7500"'
    )
    if not isinstance(said, dict) or said.keys() - {"addresses", "base"} or len(said) != 1:
        raise SettingsError(f"the settings do not say where agents are; {allowed}")
    if "base" in said:
        host, port = split(said["base"], allowed)
        return tuple(joined(host, port + at) for at in range(agents))
    found = said["addresses"]
    if not isinstance(found, list) or len(found) != agents:
        raise SettingsError(f"live.addresses has {len(found) if isinstance(found, list) else found!r}; {allowed}")
    made = tuple(joined(*split(one, allowed)) for one in found)
    if len(set(made)) < agents:
        raise SettingsError(f"live.addresses names an address twice; {allowed}")
    return made


def split(address: Any, allowed: str) -> tuple[str, int]:
    """Host and port of an address."""
    found = re.fullmatch(r"\[?([A-Za-z0-9._:-]+?)\]?:(\d{1,5})", address) if isinstance(address, str) else None
    if not found or not 0 < int(found[2]) < 65536:
        raise SettingsError(f"{address!r} is no address; {allowed}")
    return found[1], int(found[2])


def joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def host_of(address: str) -> str:
    return split(address, "")[0]
