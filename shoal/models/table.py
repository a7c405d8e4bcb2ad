"""The table of models. It imports nothing heavy: a model is made when it is needed."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_type_hints

from shoal.doors import Table, is_door, line, where
from shoal.errors import SettingsError
from shoal.models.makers import makes_nets, own_settings
from shoal.models.nets import AdaptedNet, FactorNet, ModularAdaptedNet, ModularNet, OwnNet, PlainNet, RidgeNet
from shoal.settings.groups import Net

if TYPE_CHECKING:
    from torch import nn

    from shoal.data import Bank
    from shoal.models.contract import Model
    from shoal.settings.groups import Settings

DRAWN = "what is a task's own is drawn for all tasks at the start"
REPLAY, GROWTH, FROZEN, DECOMPOSED, CLOSED = "replay", "modular", "frozen", "decomposed", "ella"  # learners
ANALYTIC = "analytic"
MODULAR = "modular-"  # before the name of a block: the modular net that is made of it
# Before the name of a frozen net: with low-rank parts of an agent, of each of its tasks, or as modules.
ADAPTED, EACH, MODULES = "adapted-", "task-adapted-", "modular-adapted-"


@dataclass(frozen=True)
class Entry:
    """A model by name: how it is made for some settings and data, who usually teaches it, of what blocks it is, what it
    is in a line, the name that finds it again if it has one, and the settings of its nets."""

    make: "Callable[[Settings, Bank], Model]"
    learner: str = REPLAY
    block: str = ""
    about: str = ""
    door: str = ""
    fixed: str = ""  # why it cannot have more tasks than it began with, in words that can follow "because"
    settings: type[Net] = Net

    @property
    def name(self) -> str:
        """What it is called where nobody gives it a name."""
        return f"{MODULAR}{self.block}" if self.learner == GROWTH else self.block or "net"


def built(name: str, *said: Any) -> "Callable[[Settings, Bank], Model]":
    """What makes nets by a function of `shoal.models.building`, once one is needed: that waits for torch."""

    def make(settings: "Settings", bank: "Bank") -> "Model":
        from shoal.models import building

        model: Model = getattr(building, name)(settings, bank, *said)
        return model

    return make


def wrapped(make: "Callable[..., nn.Module]", own: bool = False) -> Entry:
    """A line of the table of models for any net: `MODELS.add("mine", wrapped(MyNet))`. With `own`, as with
    `net.replace_last`, the heads take the place of its last linear layer."""
    return Entry(built("wrapped", make, own), about=line(make), settings=own_settings(make, OwnNet))


def of_net(thing: Any) -> Any:
    """A line of the table for an `nn.Module` class, or for a function that makes such a net; anything else as it is."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(thing, torch.nn.Module):
        kind = type(thing).__name__
        raise SettingsError(
            f"the model is one {kind} that exists already, and every agent needs one of its own; give what makes it: "
            f"model={kind}, or model=lambda: {kind}(...)"
        )
    return wrapped(thing) if makes_nets(thing) else thing


def modular(block: Any) -> Entry:
    """The modular net of a block of one's own, for `Fleet(model=shoal.modular(Gate))` or `modular-package.module:Gate`.

    A block is an `nn.Module` class whose output has the shape of its input. Its copies are the modules that tasks
    compose and agents share. Rows come to it through the frozen random projection that `mlp` has, as `[B, net.width]`,
    or through its own `enter` (shoal/models/own.py).

    >>> import torch, shoal
    >>> class Gate(torch.nn.Module):
    ...     def __init__(self, width):
    ...         super().__init__()
    ...         self.value, self.gate = torch.nn.Linear(width, width), torch.nn.Linear(width, width)
    ...     def forward(self, h):
    ...         return torch.relu(self.value(h)) * torch.sigmoid(self.gate(h))
    >>> shoal.modular(Gate).learner
    'modular'
    """
    if not makes_nets(block):
        raise SettingsError(
            f"a block of a modular net is an nn.Module class whose output has the shape of its input, got {block!r}"
        )
    door = where(block)
    name, kind = door or getattr(block, "__name__", "block"), own_settings(block, ModularNet)
    about = f"modules that tasks compose: {line(block)}"
    made = built("modules_of", block)
    return Entry(made, GROWTH, name, about, f"{MODULAR}{door}" if door else "", settings=kind)


def adapted(net: Any, per: Literal["agent", "task", "module"] = "agent") -> Any:
    """A frozen net with low-rank parts that train (LoRA), for `Fleet(model=shoal.adapted(Net))`, or by name
    `adapted-package.module:Net`.

    `net` is an `nn.Module` class or a function that makes one, with the weights that it learned elsewhere. The parts
    are an agent's own (averaging shares them), each task's (`per="task"`, `task-adapted-...`), or modules that tasks
    compose and modmod shares (`per="module"`, `modular-adapted-...`). net.rank, net.alpha and net.factors say what
    they are like.

    >>> import torch, shoal
    >>> def learned():
    ...     return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 32), torch.nn.ReLU())
    >>> shoal.adapted(learned).learner, shoal.adapted(learned, per="task").learner
    ('replay', 'frozen')
    """
    if not makes_nets(net):
        raise SettingsError(
            f"what is adapted is an nn.Module class, or a function that makes one, got {net!r:.80}; give one"
        )
    door = where(net)
    name = door or getattr(net, "__name__", "net")
    prefix, learner = {"agent": (ADAPTED, REPLAY), "task": (EACH, FROZEN), "module": (MODULES, GROWTH)}[per]
    block = f"{prefix.removeprefix(MODULAR)}{name}"
    about = f"low-rank parts for every {per} of a frozen net: {line(net)}"
    kind = own_settings(net, ModularAdaptedNet if per == "module" else AdaptedNet)
    made, found = built("adapted", net, per, name), f"{prefix}{door}" if door else ""
    return Entry(made, learner, block, about, found, DRAWN if per == "task" else "", kind)


def vet(raw: Mapping[str, Any]) -> None:
    """Raise if a model that settings name by a door says of itself neither that it is a net nor that it returns one:
    nothing is called to find out."""
    kinds = raw.get("kinds")
    tables = [raw, *(kinds if isinstance(kinds, list | tuple) else ())]
    for name in (table.get("model") for table in tables if isinstance(table, Mapping)):
        if not isinstance(name, str) or name in MODELS:
            continue
        doors = [name, *(name.removeprefix(word) for word in MODELS.ways if name.startswith(word))]
        if not (door := next((one for one in doors if is_door(one)), "")):
            continue
        thing = MODELS.led(door)
        if not declares(thing):
            raise SettingsError(
                f"`{name}` is no model, but {thing!r}; name an nn.Module class, or a function that says that it "
                "returns one, as in `def net() -> nn.Module`"
            )


def declares(thing: Any) -> bool:
    """Is this a line of the table, an `nn.Module` class, or a function that says that it returns one?"""
    if isinstance(thing, Entry):
        return True
    if not isinstance(thing, type):
        try:
            thing = get_type_hints(thing).get("return")
        except Exception:  # what it says may name anything
            return False
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(thing, type) and issubclass(thing, torch.nn.Module)


BUILT_IN: dict[str, Entry | str] = {
    "mlp": Entry(
        built("monolithic", "mlp"),
        block="mlp",
        about="net.depth (4) layers of net.width (64) units behind a frozen random projection of the input, of any "
        "shape",
    ),
    "cnn": Entry(
        built("monolithic", "cnn"),
        block="cnn",
        about="net.depth 3x3 convolutions of net.width channels, each with max-pooling, on square images; of 8 x 8 "
        "pixels, as the digits are, it needs net.depth=3; CIFAR-100's channel statistics are applied to colour images",
    ),
    "plain-mlp": Entry(
        built("plain"),
        about="net.depth layers of net.width units, all of which train: no projection; dropout acts on the last layer "
        "alone",
        settings=PlainNet,
    ),
    "masked-mlp": Entry(
        built("frozen", True),
        FROZEN,
        "masked-mlp",
        "the layers of mlp with random weights that nobody trains; every task learns which of them it uses; for few "
        "epochs (20) it learns better with learner.rate=0.1",
        fixed=DRAWN,
    ),
    "frozen-mlp": Entry(
        built("frozen", False),
        FROZEN,
        "frozen-mlp",
        "the layers of mlp with random weights that nobody trains; every task learns biases; better wide; for few "
        "epochs (20) it needs learner.rate=0.03",
    ),
    "decomposed-mlp": Entry(
        built("decomposed"),
        DECOMPOSED,
        "decomposed-mlp",
        "the layers of mlp, whose weights are put together for every task: of a base, a sparse part of its own and "
        "parts that others have sent; for few epochs (20) it needs learner.rate=0.01",
        fixed=DRAWN,
    ),
    "factor": Entry(
        built("factor"),
        CLOSED,
        "factor",
        "no net: linear predictors of numbers or logistic ones of classes, each a sum of some of net.basis atoms",
        settings=FactorNet,
    ),
    "ridge": Entry(
        built("ridge"),
        ANALYTIC,
        "ridge",
        "no net: linear predictors of a row, or of relu of net.projections random projections of it, solved for in one "
        "pass; with a backbone before them often as good as a net",
        settings=RidgeNet,
    ),
    "modular-mlp": Entry(
        built("modular", "mlp"),
        GROWTH,
        "mlp",
        "the layers of mlp as modules that every task composes in its own way, and adds to; for few epochs (20) it "
        "needs learner.rate=0.01",
        settings=ModularNet,
    ),
    "modular-cnn": Entry(
        built("modular", "cnn"),
        GROWTH,
        "cnn",
        "the layers of cnn as modules that every task composes in its own way, and adds to; of images of 8 x 8 pixels "
        "it needs net.depth=3",
        settings=ModularNet,
    ),
}
DOOR = "package.module:Net"
OWN: dict[str, type[Net]] = {  # what nets of one's own have, by how they are named
    DOOR: OwnNet,
    f"{ADAPTED}{DOOR}": AdaptedNet,
    f"{EACH}{DOOR}": AdaptedNet,
    f"{MODULES}{DOOR}": ModularAdaptedNet,
}
MODELS: Table[Entry] = Table(
    "model",
    BUILT_IN,
    "shoal.models",
    lambda entry: isinstance(entry, Entry),
    make=of_net,
    ways={
        MODULAR: modular,
        ADAPTED: adapted,
        EACH: partial(adapted, per="task"),
        MODULES: partial(adapted, per="module"),
    },
)


def named(model: Any) -> str:
    """The name by which settings find a model: of an `nn.Module` class, of a function that makes a net, of what
    `shoal.modular` gives, or the name itself."""
    return MODELS.named(model)


def modular_form(model: str) -> str:
    """What to say instead of a model whose tasks compose no modules, as TOML has it."""
    known = f"{MODULAR}{model}" in BUILT_IN
    return f'"{MODULAR}{model}"' if known else f'"modular-mlp" or "{MODULAR}package.module:Block" with a block of yours'


def build(settings: "Settings", bank: "Bank") -> "Model":
    """The model that `settings` names, made for a bank."""
    return MODELS.find(settings.model).make(settings, bank)
