"""Pages show the tables of the bench's CSVs, made when the site is built."""

import numpy as np

from bench import helps, pages, results
from shoal.runs.paired import SURE, Gain, holm
from tests.command import ROOT


def test_pages_of_the_site_show_the_tables_of_the_bench() -> None:
    files = [page for page in (ROOT / "docs").rglob("*.md") if not {"_build", "reference"} & set(page.parts)]
    named = [found for page in files for found in pages.SHOWN.finditer(page.read_text())]
    assert {link[1] for link in named} == set(pages.TABLES)
    for link in named:
        assert link[2] == pages.TABLES[link[1]].file, link[0]
        head, rule, *lines = pages.made(link[1]).splitlines()
        assert head.count("|") == rule.count("|") > 2
        assert lines
    page = pages.shown("Before.\n\n[bench peers](results/peers.csv)\n\nAfter.\n")
    assert page.startswith("Before.\n\n| peer |")
    assert page.endswith("|\n\n\nAfter.\n")


def test_what_is_said_of_accepting_what_helps_is_in_its_csv() -> None:
    text = (ROOT / "docs" / "guides" / "liars.md").read_text()
    rows = {
        (row["accept"], row["liars"]): row for row in results.read(results.ROOT / helps.FILE) if row["mode"] == "recv"
    }
    seeds = {key: np.array([float(one) for one in row["seeds"].split()]) for key, row in rows.items()}

    def gap(more: tuple[str, str], less: tuple[str, str]) -> Gain:
        each = seeds[more] - seeds[less]
        return Gain(float(each.mean()), float(each.std(ddof=1) / len(each) ** 0.5), len(each))

    harm, mended = gap(("all", "0"), ("all", "2")), gap(("helps", "2"), ("all", "2"))
    gain = gap(("all", "0"), ("", "0"))
    assert (
        f"take {harm.mean:.1f} ± {harm.error:.1f} points of the {gain.mean:.1f} that recv gains (p {harm.p:.3f})"
        in text
    )
    assert mended.sign == 0, "then it is shown, and the page says that it is not"
    assert f"ends {-mended.mean:.2f} ± {mended.error:.2f} points lower than who accepts all" in text
    taken = [round(100 * float(rows["helps", "2"][f"taken_{who}"])) for who in ("honest", "liars")]
    assert "takes {} % of the mails of honest agents and {} % of those of liars".format(*taken) in text


def test_what_is_said_of_late_joiners_is_in_its_csv() -> None:
    text = (ROOT / "docs" / "guides" / "time.md").read_text()
    seen: dict[tuple[str, int], dict[int, float]] = {}
    for row in results.read(results.ROOT / "docs" / "results" / "staggered.csv"):
        if row["agents"] == "late":
            seen.setdefault((row["sharing"], int(row["epoch"])), {})[int(row["seed"])] = float(row["accuracy"])
    gains: dict[tuple[str, int], Gain] = {}
    for (mode, epoch), own in seen.items():
        each = np.array([own[seed] - seen["alone", epoch][seed] for seed in sorted(own)])
        if mode != "alone":
            gains[mode, epoch] = Gain(float(each.mean()), float(each.std(ddof=1) / len(each) ** 0.5), len(each))
    chances = dict(zip(gains, holm([one.p or 0.0 for one in gains.values()]), strict=True))
    assert {key for key, p in chances.items() if p < SURE} == {("modmod", 0), ("modmod", 1)}
    first, second, slow = (gains[key] for key in (("modmod", 0), ("modmod", 1), ("fedavg", 11)))
    assert f"({first.mean:+.1f} ± {first.error:.1f} points, and {second.mean:+.1f} ± {second.error:.1f} after" in text
    both = [chances["modmod", epoch] for epoch in (0, 1)]
    assert "modules before training {:.3f} and after one epoch {:.3f};".format(*both) in text
    assert f"{slow.mean:.1f} ± {slow.error:.1f} points ahead, {chances['fedavg', 11]:.3f}" in text
