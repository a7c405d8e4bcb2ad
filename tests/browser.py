"""A real browser for reports, Debian's chromium without a window, driven through its driver; and large runs to show."""

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import shoal

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WORDS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1200,900")
MISSING = "there is no chromium with a driver; on Debian: apt-get install chromium chromium-driver"


def start() -> Any | None:
    """A browser that tells what its console says, if there is one."""
    from selenium import webdriver

    binary = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if not binary or not driver:
        return None
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for word in WORDS:
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))


def wait(done: Callable[[], Any], what: str, seconds: float = 60) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := done():
            return found
        time.sleep(0.02)
    raise AssertionError(f"waited {seconds} s for {what}")


def drawn(browser: Any, ident: str) -> int:
    """How often a chart was drawn, at least once."""
    browser.execute_script("document.getElementById(arguments[0]).scrollIntoView()", ident)
    script = "return Number(document.getElementById(arguments[0]).dataset.drawn ?? 0)"
    return int(wait(lambda: browser.execute_script(script, ident), f"the chart {ident}"))


def many(folder: Path, methods: int, agents: int, seeds: int, tasks: int) -> None:
    """Made-up runs of the paper's size: what a report must be able to hold."""
    generator = np.random.default_rng(0)
    epochs = np.array([0, *range(1, 101, 10), 101])
    lanes = [(seed, agent) for seed in range(seeds) for agent in range(agents)]
    seed, agent = np.array(lanes).T
    grids = np.array([(t, e, u) for t in range(tasks) for e in epochs for u in range(t + 1)])
    for at in range(methods):
        place = folder / f"run{at}"
        place.mkdir(parents=True)
        values = generator.uniform(0.6, 1, (len(lanes), len(grids))).astype(np.float32)
        pl.DataFrame(
            {
                "seed": np.repeat(seed, len(grids)),
                "agent": np.repeat(agent, len(grids)),
                "task": np.tile(grids[:, 0], len(lanes)),
                "epoch": np.tile(grids[:, 1], len(lanes)),
                "tested": np.tile(grids[:, 2], len(lanes)),
                "accuracy": values.reshape(-1),
            }
        ).write_parquet(place / "accuracy.parquet")
        pairs = [(s, a, b) for s in range(seeds) for a in range(agents) for b in range(agents) if a != b]
        s, a, b = np.array(pairs).T
        pl.DataFrame(
            {"seed": s, "task": 4, "sender": a, "receiver": b, "bytes": generator.integers(1, 10**6, len(pairs))}
        ).with_columns(verdict=pl.lit("accepted")).write_parquet(place / "ledger.parquet")
        trials = [(s, a, t) for s, a in lanes for t in range(4, tasks)]
        s, a, t = np.array(trials).T
        pl.DataFrame({"seed": s, "agent": a, "task": t, "kept": generator.random(len(t)) < 0.5}).write_parquet(
            place / "growth.parquet"
        )
        (place / "about.json").write_text(json.dumps({"shoal": shoal.__version__, "format": 2}))
        (place / "settings.toml").write_text(
            f'dataset = "mnist"\nmodel = "modular-mlp"\nprotocol = "fair"\nagents = {agents}\nseeds = {seeds}\n'
            f'[tasks]\ncount = {tasks}\ninitial = 4\n[learner]\nepochs = 100\n[network]\ngraph = "complete"\n'
            f'[[sharing]]\nmode = "mode{at}"\n'
        )
