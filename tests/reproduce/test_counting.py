"""The paper's counting rule, from settings and ledger alone, is that of the mail itself."""

from collections.abc import Callable
from typing import Any

import pytest

from shoal.data.tasks import Lane
from shoal.fleet.run import simulate
from shoal.letters.mail import ACCEPTED, Mail
from shoal.sharing.plan import plan
from shoal_paper.counting import RULES, SIZES, counted, image, quoted
from tests.fleets import MODULE, PIXELS, entries, exchanges, fleet, model_of, models_of, ready, tables_of
from tests.sharing.test_sharing import small


def by_hand(mail: Mail, asked: dict[str, Mail], modes: dict[str, Any], pixels: int, module: int) -> Any:
    """Pixels and weights, as the mail itself tells."""
    mode = modes[mail.mode]
    if mail.mode == "recv":
        return (mail.items if mail.kind == "question" else asked[mail.reply].items * mode.nearest) * pixels
    if mail.mode == "simp":
        return mode.images // 5 * (1 if mail.kind == "question" else 5) * pixels
    if mail.mode == "modmod":
        return mail.items * module if mail.kind == "modules" else 0
    names = ("images", "module.weight", "module.bias", "fisher.module.weight", "fisher.module.bias")
    return sum(tensor.numel() for name, tensor in mail.payload.items() if name in names)


COUNTED = tuple(dict.fromkeys(mode for mode, _ in RULES))  # the modes that the paper has a rule for
THEIRS = ("mlp", "cnn", "modular-mlp", "modular-cnn")  # the paper's nets
CASES: list[tuple[str, str, dict[str, Any]]] = [
    *((model, mode, {}) for mode in COUNTED for model in models_of(mode) if model in THEIRS),
    *(
        (model_of(mode), mode, {"graph": "ring", "budget": budget, "every": every})
        for mode in (*COUNTED, "recv+fedavg", "recv+modmod+fedavg")
        for budget, every in ((700, 2), (40, 1))
    ),
]


@pytest.mark.parametrize(("model", "mode", "network"), CASES)
def test_the_ledger_tells_what_the_paper_would_have_counted(model: str, mode: str, network: dict[str, Any]) -> None:
    changes = {"network": network} if network else {}
    world, stack = ready(model, tables_of(mode, 1), agents=4, **changes)
    seen: list[Mail] = []
    exchanges(world, stack, tasks=2, observe=lambda mail, verdict: seen.append(mail))
    base = model.removeprefix("modular-")
    asked, modes = {mail.id: mail for mail in seen}, {one.mode: one for one in world.settings.sharing}
    found = counted(world.settings, stack.ledger)
    assert len(found) == len(seen) > 0
    assert found.tolist() == [by_hand(mail, asked, modes, PIXELS[base], MODULE[base]) for mail in seen]
    most = {(line.mode, line.kind): quoted(world, line) for line in plan([world])}
    for mail, price, verdict in zip(seen, found.tolist(), stack.ledger.column("verdict"), strict=True):
        assert verdict != ACCEPTED or price <= most[mail.mode, mail.kind]


def test_where_no_image_was_ever_posted_its_size_is_that_of_the_dataset() -> None:
    world, stack = ready("mlp", tables_of("simp", 1), network={"graph": "complete", "budget": 0})
    exchanges(world, stack)
    assert set(stack.ledger.column("kind").tolist()) == {"question"}
    assert image(world.settings, stack.ledger) == SIZES["digits"] == PIXELS["mlp"]
    assert set(counted(world.settings, stack.ledger).tolist()) == {10 // 5 * PIXELS["mlp"]}


def test_modules_count_as_large_as_their_senders_are() -> None:
    wide = fleet("modular-mlp", net={"width": 24}, sharing=tables_of("modmod", 1))
    lines = [quoted(wide, line) for line in plan([wide]) if line.kind == "modules"]
    assert lines == [24 * 24 + 24]


# What the paper counts for each directed edge and exchange

MODULES = {"mlp": 4, "modular-mlp": 4, "cnn": 3, "modular-cnn": 4}  # layers, or the basis
PAPER: dict[str, Callable[[int, int], int]] = {  # of the floats of an image, and of all that is averaged
    "recv": lambda size, whole: 6 * (3 + 1) * size,  # q (k + 1) H W C
    "simp": lambda size, whole: 10 // 5 * 6 * size,  # as recv, with q = b/5 and k = 5
    "uniform": lambda size, whole: 10 * size,
    "fedavg": lambda size, whole: whole,
    "fedprox": lambda size, whole: whole,
    "fedcurv": lambda size, whole: 2 * whole,
    "fedfish": lambda size, whole: whole,
}


@pytest.mark.parametrize("mode", PAPER)
@pytest.mark.parametrize("model", MODULES)
def test_the_ledger_has_the_papers_price_of_every_edge_and_exchange(model: str, mode: str) -> None:
    made = small(model, mode)
    stack, base = simulate(made), model.removeprefix("modular-")
    price = PAPER[mode](PIXELS[base], MODULES[model] * MODULE[base])
    (shared,) = made.settings.sharing
    assert shared.every != "task"
    epochs = [0, shared.every] if shared.when == "before" else [shared.every, 2 * shared.every]
    want = {(*edge, task, epoch): price for edge in made.edges for task in (1, 2) for epoch in epochs}
    found: dict[tuple[Any, ...], int] = {}
    for row, paid in zip(entries(stack.ledger), counted(made.settings, stack.ledger).tolist(), strict=True):
        ends = Lane(row["seed"], row["sender"]), Lane(row["seed"], row["receiver"])
        at = (*ends, row["task"], row["epoch"])
        found[at] = found.get(at, 0) + paid
    assert found == want
