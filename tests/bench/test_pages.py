"""The pages have the numbers that the bench has written."""

from bench import attacks, nets, results, speed
from bench.peers import __main__ as peers
from tests.command import ROOT


def test_speed_and_safety_have_the_tables_of_their_csvs() -> None:
    docs = ROOT / "docs"
    for page, file, table in (
        ("speed", "speed.csv", speed.table),
        ("speed", "peers.csv", peers.table),
        ("speed", "nets.csv", nets.table),
        ("safety", "attacks.csv", attacks.table),
    ):
        text = (docs / f"{page}.md").read_text()
        for line in table(results.read(docs / "results" / file)).strip().splitlines():
            assert line in text, f"docs/{page}.md lacks a line of docs/results/{file}; write the table anew"
