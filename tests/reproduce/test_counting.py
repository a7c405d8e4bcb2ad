"""The paper's counting rule, from settings and ledger alone, is that of the mail itself."""

from typing import Any

import pytest

from shoal.mail.mail import ACCEPTED, Mail
from shoal.reproduce.counting import SIZES, counted, image, quoted
from shoal.sharing.modes import MODES
from shoal.sharing.plan import plan
from tests.fleets import fleet
from tests.sharing.test_sharing import MODELS, MODULE, PIXELS, exchanges, model_of, ready, suited, tables_of


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


CASES: list[tuple[str, str, dict[str, Any]]] = [
    (model, mode, {}) for model in MODELS for mode in MODES if suited(model, mode)
] + [
    (model_of(mode), mode, {"graph": "ring", "budget": budget, "every": every})
    for mode in (*MODES, "recv+fedavg", "recv+modmod+fedavg")
    for budget, every in ((700, 2), (40, 1))
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
