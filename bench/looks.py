"""How pages look: `python -m bench.looks PAGE ... --out FOLDER`.

Each page, a report or one of the site's, is opened in chromium and photographed wide, on a phone, in the dark and as it
would be printed: FOLDER/NAME-wide.png and so on, whole pages. `--top` keeps the part above the fold alone;
docs/figures/report.png is `python -m bench.looks runs/demo/report.html --ways wide --top --out docs/figures`.
"""

import argparse
import base64
import time
from pathlib import Path
from typing import Any

from tests.browser import MISSING, start

WAYS: dict[str, tuple[int, int, dict[str, str]]] = {  # width, height, and what the page is told
    "wide": (1200, 900, {"prefers-color-scheme": "light"}),
    "phone": (390, 844, {"prefers-color-scheme": "light"}),
    "dark": (1200, 900, {"prefers-color-scheme": "dark"}),
    "print": (794, 1123, {"prefers-color-scheme": "light"}),
}
TALLEST = 16_000  # pixels of a picture


def photographs(page: Path, out: Path, ways: list[str], top: bool) -> list[Path]:
    """Pictures of a page, one for each way."""
    browser: Any = start()
    if browser is None:
        raise SystemExit(MISSING)
    out.mkdir(parents=True, exist_ok=True)
    made = []
    try:
        for way in ways:
            width, height, told = WAYS[way]
            say = browser.execute_cdp_cmd
            say("Emulation.setDeviceMetricsOverride",
                {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": way == "phone"})  # fmt: skip
            features = [{"name": name, "value": value} for name, value in told.items()]
            say("Emulation.setEmulatedMedia", {"media": "print" if way == "print" else "screen", "features": features})
            browser.get(page.resolve().as_uri())
            whole = height if top else scrolled(browser)
            say("Emulation.setDeviceMetricsOverride",
                {"width": width, "height": whole, "deviceScaleFactor": 1, "mobile": way == "phone"})  # fmt: skip
            time.sleep(1)
            seen = browser.execute_script("return document.documentElement.scrollWidth")
            if seen > width:
                print(f"{page.name}, {way}: {seen} pixels wide where {width} are seen")
            picture = say("Page.captureScreenshot", {"format": "png"})["data"]
            made.append(out / f"{page.stem}-{way}.png" if len(ways) > 1 else out / f"{page.stem}.png")
            made[-1].write_bytes(base64.b64decode(picture))
    finally:
        browser.quit()
    return made


def scrolled(browser: Any) -> int:
    """How tall a page is once everything on it has been seen, and so been drawn."""
    tall = int(browser.execute_script("return document.documentElement.scrollHeight"))
    for at in range(0, tall, 600):
        browser.execute_script(f"window.scrollTo(0, {at})")
        time.sleep(0.1)
    browser.execute_script("window.scrollTo(0, 0)")
    return min(int(browser.execute_script("return document.documentElement.scrollHeight")), TALLEST)


def main() -> None:
    words = argparse.ArgumentParser(prog="python -m bench.looks", description=__doc__)
    words.add_argument("pages", nargs="+", type=Path, metavar="PAGE")
    words.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    words.add_argument("--ways", nargs="+", choices=tuple(WAYS), default=list(WAYS))
    words.add_argument("--top", action="store_true", help="only what is seen first")
    given = words.parse_args()
    for page in given.pages:
        for file in photographs(page, given.out, given.ways, given.top):
            print(file)


if __name__ == "__main__":
    main()
