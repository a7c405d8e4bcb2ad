"""Names of sites in settings: where an agent's number can stand, the name of its site can, and becomes the number."""

from collections.abc import Mapping, Sequence
from typing import Any

from shoal.errors import SettingsError, nearly
from shoal.settings.part import spoken

LISTS = ("agents", "to")  # settings that list agents
ENDS = ("sender", "receiver")  # settings that name one agent
GROUPS: Mapping[str, tuple[str, ...]] = {"presence": ("absent", "joins", "leaves"), "network": ("edges", "changes")}
NAMED = 8  # sites that a sentence lists


def numbered(raw: dict[str, Any], kinds: Any) -> tuple[dict[str, Any], Any]:
    """What is said of agents, with numbers in the place of names: `raw` settings with the data's own word of agents,
    and what is said of kinds."""
    found = dict(raw)
    for group, keys in GROUPS.items():
        if isinstance(table := raw.get(group), dict):
            found[group] = table | {key: several(raw, table[key], f"{group}.{key}") for key in keys if key in table}
    for name in ("policy", "faulty"):
        if name in raw:
            found[name] = several(raw, raw[name], name)
    return found, several(raw, kinds, "kinds")


def several(raw: dict[str, Any], value: Any, where: str) -> Any:
    """A table, or a list of tables, of which each may name agents; what is something else is refused elsewhere."""
    if isinstance(value, (list, tuple)):
        return type(value)(several(raw, one, f"{where}[{at}]") for at, one in enumerate(value))
    table = spoken(value)
    if not isinstance(table, dict) or not words(table):
        return value
    found = dict(table)
    for key in LISTS:
        if key in table:
            listed = table[key] if isinstance(table[key], (list, tuple)) else [table[key]]
            numbers = [who for one in listed for who in at_site(raw, one, f"{where}.{key}")]
            found[key] = list(dict.fromkeys(numbers))
    for key in ENDS:
        if isinstance(site := table.get(key), str):
            found[key], *others = at_site(raw, site, f"{where}.{key}")
            if others:
                agents = ", ".join(map(str, (found[key], *others)))
                raise SettingsError(
                    f"`{where}.{key}` is {site!r}, and that site has the agents {agents}; say one of these numbers"
                )
    if "edges" in table:
        found["edges"] = several(raw, table["edges"], f"{where}.edges")
    return found


def words(table: dict[str, Any]) -> bool:
    """Does a table name agents by words?"""
    named = [one for key in LISTS for one in (table.get(key, ()) if is_list(table.get(key)) else [table.get(key)])]
    return any(isinstance(one, str) for one in [*named, *(table.get(key) for key in ENDS)]) or "edges" in table


def is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def at_site(raw: dict[str, Any], said: Any, where: str) -> list[Any]:
    """The numbers of the agents at a site; what is no word is left as it is."""
    if not isinstance(said, str):
        return [said]
    sites, agents = sites_of(raw), raw.get("agents")
    if len(sites) < 2:
        raise SettingsError(
            f"`{where}` names {said!r}, but the data names no sites; name agents by their numbers, counted from 0"
        )
    if said not in sites:
        hint = nearly(said, sites, "'")
        more = f" and {len(sites) - NAMED} more" * (len(sites) > NAMED)
        raise SettingsError(
            f"`{where}` names {said!r}, which is no site of the data; {hint}allowed: {', '.join(sites[:NAMED])}{more}"
        )
    count = agents if isinstance(agents, int) else len(sites)
    found = list(range(sites.index(said), count, len(sites)))
    if not found:
        raise SettingsError(
            f"`{where}` names {said!r}, and with agents = {count} nobody is there; say agents={len(sites)}"
        )
    return found


def sites_of(raw: dict[str, Any]) -> Sequence[str]:
    """The names of the sites of the user's own data, in the order of agents; none where there are no names."""
    from shoal.data.sources import is_source, read

    name = raw.get("dataset")
    return read(name).bank.sources if isinstance(name, str) and is_source(name) else ()
