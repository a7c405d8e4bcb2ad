"""How the paper counts what is sent (docs/protocol.md, section 5): in floats, pixels and weights alone, and every
answer as if it were full. It is computed afterwards, from settings and ledger; nothing that runs knows of it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shoal.models.families import block_of
from shoal.runs.counts import Count
from shoal.settings.groups import Settings

if TYPE_CHECKING:
    from shoal.agents.world import World
    from shoal.letters.ledger import Ledger
    from shoal.sharing.plan import Line

NEAREST = 5  # b images of Simp count as b/5 queries with 5 answers each, and the queries too
# Images of these datasets are larger or smaller than 28 by 28; it matters only if no image was ever posted.
SIZES = {"cifar100": 3 * 32 * 32, "digits": 8 * 8}
KERNELS = {"cnn": 3 * 3}  # weights between two channels of a module, if it is more than one

# What comes with every image in a message: its class, the number of its query.
BESIDE: dict[str, dict[str, Callable[[Any], int]]] = {
    "recv": {
        "question": lambda mode: int(mode.prefilter == "label"),
        "answer": lambda mode: 1 + int(mode.receive == "class"),
    },
    "simp": {"answer": lambda mode: 1},
    "uniform": {"images": lambda mode: 1},
}


class Posted(NamedTuple):
    """Messages of one mode and kind: numbers, or columns of them."""

    mode: Any  # its settings
    items: Any
    floats: Any
    asked: Any  # the items of the question that each replies to
    pixels: int  # of an image
    module: Any  # weights and biases of a module of the sender's


def as_sent(one: Posted) -> Any:
    return one.floats


def without_names(one: Posted) -> Any:
    """All numbers but one for each item: the label of an image, the place of a module."""
    return one.floats - one.items


RULES: dict[tuple[str, str], Callable[[Posted], Any]] = {
    ("recv", "question"): lambda one: one.items * one.pixels,
    ("recv", "answer"): lambda one: one.asked * one.mode.nearest * one.pixels,
    ("simp", "question"): lambda one: one.mode.images // NEAREST * one.pixels,
    ("simp", "answer"): lambda one: one.mode.images // NEAREST * NEAREST * one.pixels,
    ("uniform", "images"): without_names,
    ("fedavg", "model"): without_names,
    ("fedprox", "model"): without_names,
    ("fedcurv", "model"): without_names,
    ("fedfish", "model"): without_names,
    ("modmod", "question"): lambda one: 0,
    ("modmod", "modules"): lambda one: one.items * one.module,
}


def counted(settings: Settings, ledger: "Ledger") -> np.ndarray:
    """The floats of every message in a ledger by the paper's rule, int64. What the paper has no rule for counts as it
    is."""
    found = ledger.column("floats").copy()
    items, sender = ledger.column("items"), ledger.column("sender")
    module, size = modules(settings), image(settings, ledger)
    for mode in settings.sharing:
        for kind in (kind for name, kind in RULES if name == mode.mode):
            here = np.flatnonzero(ledger.among("mode", [mode.mode]) & ledger.among("kind", [kind]))
            if not len(here):
                continue
            asked = items[questions(ledger, mode.mode, here)] if (mode.mode, kind) == ("recv", "answer") else 0
            own = np.array([module[agent] for agent in sender[here].tolist()])
            found[here] = RULES[mode.mode, kind](Posted(mode, items[here], found[here], asked, size, own))
    return found


def quoted(world: "World", line: "Line") -> int:
    """The floats by the paper's rule of the largest message that a line of `shoal check` tells of."""
    from shoal.sharing.images import pixels

    mode: Any = next(one for one in world.settings.sharing if one.mode == line.mode)
    rule = RULES.get((line.mode, line.kind), as_sent)
    asked = mode.queries if line.mode == "recv" else 0
    sender, _ = line.edges.pairs[0]
    return int(rule(Posted(mode, line.items, line.floats, asked, pixels(world), modules(world.fleet)[sender])))


def modules(settings: Settings) -> dict[int, int]:
    """The weights and biases of a module of every agent."""
    found: dict[int, int] = {}
    for name, agents in settings.members().items():
        own = settings.of(name)
        size = own.net.width**2 * KERNELS.get(block_of(own), 1) + own.net.width
        found |= dict.fromkeys(agents, size)
    return found


def image(settings: Settings, ledger: "Ledger") -> int:
    """The pixels of an image, by the first message that has one."""
    some = ledger.column("items") > 0
    for mode in settings.sharing:
        for kind, beside in BESIDE.get(mode.mode, {}).items():
            here = np.flatnonzero(some & ledger.among("mode", [mode.mode]) & ledger.among("kind", [kind]))
            if len(here):
                return int(ledger.column("floats")[here[0]] // ledger.column("items")[here[0]]) - beside(mode)
    return SIZES.get(settings.dataset, 28 * 28)


def questions(ledger: "Ledger", mode: str, answers: np.ndarray) -> np.ndarray:
    """The row of the question that each answer replies to: the last one before it that was accepted on the edge in the
    other direction. (In the paper no mail is late.)"""
    from shoal.letters.mail import ACCEPTED

    arrived = ledger.among("mode", [mode]) & ledger.among("kind", ["question"]) & ledger.among("verdict", [ACCEPTED])
    asked = np.flatnonzero(arrived)
    seed, sender, receiver = (ledger.column(name) for name in ("seed", "sender", "receiver"))
    agents = 1 + max(int(sender.max()), int(receiver.max()))
    asking = ((seed * agents + sender) * agents + receiver)[asked]
    answering = ((seed * agents + receiver) * agents + sender)[answers]
    order = np.lexsort((asked, asking))
    places = (asking * len(ledger) + asked)[order]
    found: np.ndarray = asked[order][np.searchsorted(places, answering * len(ledger) + answers) - 1]
    return found


PAPER = Count("floats by the paper's rule", counted, quoted)
