"""What a folder holds already: a run of the same settings."""

import tomllib
from pathlib import Path

from shoal.configure.reading import parsed
from shoal.runs.files import RecordError
from shoal.runs.record import Record, reopen
from shoal.settings.groups import Settings
from shoal.settings.part import flatten
from shoal.settings.writing import toml


def held(folder: Path, settings: Settings) -> Record | None:
    """The run of these settings that a folder holds; None, if it holds none yet. Another run is an error."""
    file = folder / "settings.toml"
    if not file.exists():
        return None
    here, there = (dict(flatten(raw)) for raw in (tomllib.loads(toml(settings)), parsed(file)))
    names = [name for name in {**here, **there} if not name.startswith("machine.")]
    differs = [name for name in names if here.get(name) != there.get(name)]
    try:
        same = reopen(folder, own=settings).settings.identity() == settings.identity()
    except RecordError:
        if not differs:
            raise
        same = False  # what it names may not be in this program
    if not same:
        name = differs[0]
        raise RecordError(
            f"{folder} holds another run: there, {name} is {there.get(name, 'not said')}, here it is "
            f"{here.get(name, 'not said')}; choose another folder as `out`, or remove that one"
        )
    return Record(folder, settings)
