"""What features cost: of every backbone that is installed, CPU time of a row when it is computed, and of all rows when
they are read from the cache, for which the backbone is made anew.

`python -m bench.features` reads rows of noise and writes docs/results/features.csv.
"""

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

import shoal
from bench import results
from bench.race import cpu
from shoal.backbones import BACKBONES
from shoal.data.bank import Numbers
from shoal.errors import UserError

FILE = Path(__file__).parents[1] / "docs" / "results" / "features.csv"
PICTURES, OTHERS, WORDS = 512, 64, 60


def rows() -> dict[str, Numbers]:
    """Rows that each backbone reads: small pictures, texts of sixty words, a second of sound."""
    rng = np.random.default_rng(0)
    said = [" ".join(rng.choice(["fish", "shoal", "river", "asks", "its", "own"], WORDS)) for _ in range(OTHERS)]
    return {
        "efficientnet-lite0": rng.integers(0, 256, (PICTURES, 3, 32, 32)).astype(np.uint8),
        "minilm-int8": shoal.texts(said),
        "openwakeword": rng.normal(0, 0.1, (OTHERS, 16_000)).astype(np.float32),
    }


def timed(name: str, given: Numbers) -> float:
    """Milliseconds of CPU for all rows."""
    watch = cpu()
    shoal.features(name, given, 255 if name == "efficientnet-lite0" else 1)
    return 1e3 * watch()


def main() -> None:
    found = []
    with tempfile.TemporaryDirectory() as place:
        os.environ["XDG_CACHE_HOME"] = place
        for name, given in rows().items():
            with suppress(UserError):  # it is not installed
                timed(name, given[:1])  # what is made once
                row: dict[str, Any] = {
                    "backbone": name,
                    "rows": len(given),
                    "ms_each": f"{timed(name, given) / len(given):.3g}",
                }
                row |= {"ms_kept": round(timed(name, given)), "licence": BACKBONES[name].licence}
                print(*row.values(), sep=",", flush=True)
                found.append(row | results.stamp())
    results.write(FILE, found)


if __name__ == "__main__":
    main()
