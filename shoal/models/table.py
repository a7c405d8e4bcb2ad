"""The table of models. It imports nothing heavy: a model is made when it is needed."""

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, get_type_hints

from shoal.doors import Table, is_door, line, where
from shoal.errors import SettingsError
from shoal.models.makers import makes_nets, own_settings
from shoal.models.nets import AdaptedNet, FactorNet, ModularAdaptedNet, ModularNet, OwnNet, PlainNet, RidgeNet
from shoal.settings.groups import Net

if TYPE_CHECKING:
    from shoal.data import Bank
    from shoal.models.blocks import Block
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


def monolithic(block: str, about: str) -> Entry:
    """Nets that are one module after the other."""

    def make(settings: "Settings", bank: "Bank") -> "Model":
        from shoal.models import heads
        from shoal.models.blocks import BLOCKS
        from shoal.models.monolithic import Monolithic

        return Monolithic(BLOCKS[block](settings.net, bank), settings.net.depth, *heads.sizes(settings, bank))

    return Entry(make, REPLAY, block, about)


def modules_of(block: str, about: str) -> Entry:
    """Nets whose tasks compose modules."""

    def make(settings: "Settings", bank: "Bank") -> "Model":
        from shoal.models.blocks import BLOCKS

        return composing(BLOCKS[block](settings.net, bank), settings, bank)

    return Entry(make, GROWTH, block, about, settings=ModularNet)


def composing(block: "Block", settings: "Settings", bank: "Bank", depth: int | None = None) -> "Model":
    """The modular net of some blocks that the settings describe."""
    from shoal.models import heads
    from shoal.models.modular import Modular

    net: Any = settings.net
    tasks = settings.tasks
    spare = max((mode.spare for mode in settings.sharing), default=0)
    return Modular(
        block, depth or net.depth, *heads.sizes(settings, bank), net.basis, tasks.initial, net.dropout_basis,
        net.initial_structure, spare,
    )  # fmt: skip


def plain(about: str) -> Entry:
    """A net of layers alone, all of which train, the first one too."""

    def make(settings: "Settings", bank: "Bank") -> "Model":
        from torch import nn

        from shoal.models import heads
        from shoal.models.wrapped import Wrapped

        own: Any = settings.net
        xavier = own.weights == "xavier"

        def net(shape: tuple[int, ...]) -> nn.Module:
            sizes = [math.prod(shape), *[own.width] * own.depth]
            layers = [part for pair in pairwise(sizes) for part in (nn.Linear(*pair), nn.ReLU())]
            for layer in layers if xavier else ():
                if isinstance(layer, nn.Linear):
                    nn.init.xavier_uniform_(layer.weight, nn.init.calculate_gain("relu"))
                    nn.init.zeros_(layer.bias)
            return nn.Sequential(nn.Flatten(), *layers)

        return Wrapped(net, bank, *heads.sizes(settings, bank), name=settings.model, xavier=xavier)

    return Entry(make, about=about, settings=PlainNet)


def frozen(masked: bool, about: str) -> Entry:
    """Nets on a backbone that nobody trains."""

    def make(settings: "Settings", bank: "Bank") -> "Model":
        from shoal.models import heads
        from shoal.models.blocks import linear
        from shoal.models.frozen import Frozen

        return Frozen(linear(settings.net, bank), settings.net.depth, *heads.sizes(settings, bank), masked)

    return Entry(make, FROZEN, "masked-mlp" if masked else "frozen-mlp", about, fixed=DRAWN if masked else "")


def decomposed(about: str) -> Entry:
    """Nets whose weights are put together of a base and of parts."""

    def make(settings: "Settings", bank: "Bank") -> "Model":
        from shoal.models import heads
        from shoal.models.blocks import linear
        from shoal.models.decomposed import PEERS, Decomposed

        attended = 1 + min(PEERS, settings.agents - 1)
        return Decomposed(linear(settings.net, bank), settings.net.depth, *heads.sizes(settings, bank), attended)

    return Entry(make, DECOMPOSED, "decomposed-mlp", about, fixed=DRAWN)


def factored(about: str) -> Entry:
    """Predictors in a dictionary."""

    def make(settings: "Settings", bank: "Bank") -> "Model":
        from shoal.models import heads
        from shoal.models.factor import factor

        net: Any = settings.net
        return factor(net, bank, *heads.sizes(settings, bank))

    return Entry(make, CLOSED, "factor", about, settings=FactorNet)


def solved(about: str) -> Entry:
    """Linear predictors that are solved for."""

    def make(settings: "Settings", bank: "Bank") -> "Model":
        from shoal.models import heads
        from shoal.models.ridge import ridge

        net: Any = settings.net
        return ridge(net, bank, *heads.sizes(settings, bank))

    return Entry(make, ANALYTIC, "ridge", about, settings=RidgeNet)


def of_net(thing: Any) -> Any:
    """A line of the table for an `nn.Module` class, or for a function that makes such a net; anything else as it is."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(thing, torch.nn.Module):
        kind = type(thing).__name__
        raise SettingsError(
            f"the model is one {kind} that exists already, and every agent needs one of its own; give what makes it: "
            f"model={kind}, or model=lambda: {kind}(...)"
        )
    if not makes_nets(thing):
        return thing

    def make(settings: "Settings", bank: "Bank") -> "Model":
        from shoal.models.wrapped import wrapped

        return wrapped(thing).make(settings, bank)

    return Entry(make, about=line(thing), settings=own_settings(thing, OwnNet))


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

    def make(settings: "Settings", bank: "Bank") -> "Model":
        from shoal.models.own import Own

        return composing(Own(block, settings.net, bank, settings.model), settings, bank)

    name, kind = door or getattr(block, "__name__", "block"), own_settings(block, ModularNet)
    about = f"modules that tasks compose: {line(block)}"
    return Entry(make, GROWTH, name, about, f"{MODULAR}{door}" if door else "", settings=kind)


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

    def make(settings: "Settings", bank: "Bank") -> "Model":
        from shoal.models import heads
        from shoal.models.adapted import Adapted
        from shoal.models.parts import Parts
        from shoal.models.wrapped import as_said, mappable

        own: Any = settings.net
        if per != "module":
            sizes = heads.sizes(settings, bank)
            return as_said(Adapted(net, own, bank, *sizes, settings.model, each=per == "task"), settings)
        model = composing(Parts(net, own, bank, settings.model), settings, bank, depth=1)
        mappable(model, settings, f"the net `{name}`")
        return model

    prefix, learner = {"agent": (ADAPTED, REPLAY), "task": (EACH, FROZEN), "module": (MODULES, GROWTH)}[per]
    block = f"{prefix.removeprefix(MODULAR)}{name}"
    about = f"low-rank parts for every {per} of a frozen net: {line(net)}"
    kind = own_settings(net, ModularAdaptedNet if per == "module" else AdaptedNet)
    return Entry(make, learner, block, about, f"{prefix}{door}" if door else "", DRAWN if per == "task" else "", kind)


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
    "mlp": monolithic(
        "mlp",
        "net.depth (4) layers of net.width (64) units behind a frozen random projection of the input, of any shape",
    ),
    "cnn": monolithic(
        "cnn",
        "net.depth 3x3 convolutions of net.width channels, each with max-pooling, on square images; of 8 x 8 pixels, "
        "as the digits are, it needs net.depth=3; CIFAR-100's channel statistics are applied to colour images",
    ),
    "plain-mlp": plain(
        "net.depth layers of net.width units, all of which train: no projection; dropout acts on the last layer alone"
    ),
    "masked-mlp": frozen(
        True,
        "the layers of mlp with random weights that nobody trains; every task learns which of them it uses; for few "
        "epochs (20) it learns better with learner.rate=0.1",
    ),
    "frozen-mlp": frozen(
        False,
        "the layers of mlp with random weights that nobody trains; every task learns biases; better wide; for few "
        "epochs (20) it needs learner.rate=0.03",
    ),
    "decomposed-mlp": decomposed(
        "the layers of mlp, whose weights are put together for every task: of a base, a sparse part of its own and "
        "parts that others have sent; for few epochs (20) it needs learner.rate=0.01"
    ),
    "factor": factored(
        "no net: linear predictors of numbers or logistic ones of classes, each a sum of some of net.basis atoms"
    ),
    "ridge": solved(
        "no net: linear predictors of a row, or of relu of net.projections random projections of it, solved for in one "
        "pass; with a backbone before them often as good as a net"
    ),
    "modular-mlp": modules_of(
        "mlp",
        "the layers of mlp as modules that every task composes in its own way, and adds to; for few epochs (20) it "
        "needs learner.rate=0.01",
    ),
    "modular-cnn": modules_of(
        "cnn",
        "the layers of cnn as modules that every task composes in its own way, and adds to; of images of 8 x 8 pixels "
        "it needs net.depth=3",
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
