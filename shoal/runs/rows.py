"""Rows that no name can say, in the directory of a run that went on with others: they lie in no one place.

rows.safetensors      all rows that its agents have learned from
"""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.data.bank import Bank
from shoal.data.sources import bring_later
from shoal.data.sources.whole import packed, unpacked
from shoal.runs import files
from shoal.runs.files import RecordError, reason

if TYPE_CHECKING:
    from shoal.runs.record import Record

NAME = "rows.safetensors"


def keep(record: "Record", bank: Bank) -> None:
    """Write all rows into a run directory."""
    record.write(NAME, packed(bank))


def bring(folder: Path, name: str) -> None:
    """Let this program find, by the name that settings have for them, the rows that a run directory holds."""
    if (folder / NAME).exists():
        bring_later(name, partial(read, folder / NAME))


def read(place: Path) -> Bank:
    """The rows of a file, if they are as they were written."""
    try:
        return unpacked(files.read_whole(place, files.TABLE))
    except files.UNREADABLE as error:
        raise RecordError(f"cannot read {place}: {reason(error)}; restore it") from None
