"""The table of models. It imports nothing heavy: a model is made when it is needed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shoal.doors import Table

if TYPE_CHECKING:
    from shoal.data import Bank
    from shoal.models.contract import Model
    from shoal.settings.groups import Settings

REPLAY, GROWTH = "replay", "modular"  # learners


@dataclass(frozen=True)
class Entry:
    """A model by name: how it is made for some settings and data, who usually teaches it, and of what blocks it is."""

    make: "Callable[[Settings, Bank], Model]"
    learner: str = REPLAY
    block: str = ""


def monolithic(block: str) -> Entry:
    """Nets that are one module after the other."""

    def make(settings: "Settings", bank: "Bank") -> "Model":
        from shoal.models import heads
        from shoal.models.blocks import BLOCKS
        from shoal.models.monolithic import Monolithic

        return Monolithic(BLOCKS[block](settings.net, bank), settings.net.depth, *heads.sizes(settings, bank))

    return Entry(make, REPLAY, block)


def modular(block: str) -> Entry:
    """Nets whose tasks compose modules."""

    def make(settings: "Settings", bank: "Bank") -> "Model":
        from shoal.models import heads
        from shoal.models.blocks import BLOCKS
        from shoal.models.modular import Modular

        net, tasks = settings.net, settings.tasks
        spare = max((mode.spare for mode in settings.sharing), default=0)
        return Modular(
            BLOCKS[block](net, bank), net.depth, *heads.sizes(settings, bank), net.basis, tasks.initial,
            net.dropout_basis, net.initial_structure, spare,
        )  # fmt: skip

    return Entry(make, GROWTH, block)


BUILT_IN: dict[str, Entry | str] = {
    "mlp": monolithic("mlp"),
    "cnn": monolithic("cnn"),
    "modular-mlp": modular("mlp"),
    "modular-cnn": modular("cnn"),
}
MODELS: Table[Entry] = Table("model", BUILT_IN, "shoal.models", lambda entry: isinstance(entry, Entry))


def build(settings: "Settings", bank: "Bank") -> "Model":
    """The model that `settings` names, made for a bank."""
    return MODELS.find(settings.model).make(settings, bank)
