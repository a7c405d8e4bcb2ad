"""The report in a real browser."""

import json
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shoal.report import compare, page
from shoal.runs import read
from tests.browser import MISSING, drawn, many, start, wait
from tests.report.test_report import spoil

pytest.importorskip("selenium", reason="selenium is not installed")

PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
pytestmark = [
    pytest.mark.browser,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # sockets of the driver
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    found = start()
    if not found:
        pytest.skip(MISSING)
    yield found
    found.quit()


@pytest.fixture(scope="module")
def file(shown: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report on disk."""
    runs, notes = read.gather([shown])
    path = tmp_path_factory.mktemp("page") / "report.html"
    page.save(path, page.page(compare.groups(runs), notes))
    return path


@pytest.fixture
def opened(browser: Any, file: Path) -> Any:
    """The report, freshly opened in a wide, light window."""
    look(browser, "light")
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.get(file.as_uri())
    browser.execute_script("localStorage.clear()")
    browser.get(file.as_uri())
    return browser


def look(browser: Any, scheme: str) -> None:
    """What the system says about light and dark; without motion, so that a click meets what it was meant for."""
    features = [
        {"name": "prefers-color-scheme", "value": scheme},
        {"name": "prefers-reduced-motion", "value": "reduce"},
    ]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def draw_all(browser: Any) -> int:
    """Go to each chart, as a reader does, until it is drawn; the number of charts."""
    ids = browser.execute_script("return [...document.querySelectorAll('figure[id]')].map((one) => one.id)")
    for ident in ids:
        drawn(browser, ident)
    return len(ids)


def errors(browser: Any) -> list[Any]:
    return [entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


def marks(browser: Any, ident: str, kind: str) -> int:
    """How many marks of a kind a chart shows."""
    shapes = ", ".join(f"#{ident} .mark-{kind}.role-mark {shape}" for shape in ("path", "line", "text"))
    return int(browser.execute_script("return document.querySelectorAll(arguments[0]).length", shapes))


def choose(browser: Any, ident: str, field: str, value: str) -> None:
    """Choose from a list and wait until the chart has followed."""
    before = drawn(browser, ident)
    select = browser.find_element("id", f"{ident}-{field}")
    select.find_element("css selector", f"option[value='{value}']").click()
    wait(lambda: drawn(browser, ident) > before, "the switch")


def colour(browser: Any, selector: str, name: str) -> str:
    script = "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]"
    return str(browser.execute_script(script, selector, name))


def test_the_page_loads_without_a_word_in_the_console(opened: Any) -> None:
    assert draw_all(opened) == 6
    assert opened.execute_script("return document.querySelectorAll('.plot svg').length") == 6
    assert not opened.execute_script("return document.querySelectorAll('.plot.error').length")
    assert errors(opened) == []
    assert marks(opened, "g0-learning-curves", "line") == 3
    assert marks(opened, "g0-accuracy-matrix", "rect") == 21
    assert marks(opened, "g0-accuracy-matrix", "text") == 21
    assert marks(opened, "g0-network", "rule") == 2


def test_the_page_asks_no_one_for_anything(opened: Any) -> None:
    draw_all(opened)
    assert opened.execute_script("return performance.getEntriesByType('resource').map((one) => one.name)") == []


def test_a_run_can_be_switched_off_and_on(opened: Any) -> None:
    ident = "g0-learning-curves"
    before = drawn(opened, ident)
    box = opened.find_element("css selector", f"#{ident} input[value='recv']")
    box.click()
    wait(lambda: drawn(opened, ident) > before, "the switch")
    assert marks(opened, ident, "line") == 2
    plot = opened.find_element("css selector", f"#{ident} .plot")
    assert plot.get_attribute("aria-label").startswith("Learning curves: shares nothing, fedavg, all agents")
    box.send_keys(" ")  # by keyboard
    wait(lambda: marks(opened, ident, "line") == 3, "the switch")
    assert errors(opened) == []


def test_agent_and_task_can_be_chosen(opened: Any) -> None:
    ident = "g0-learning-curves"
    line = "return document.querySelector(`#${arguments[0]} .mark-line path`).getAttribute('d')"
    drawn(opened, ident)
    paths = {opened.execute_script(line, ident)}
    for field, value in (("agent", "1"), ("task", "5"), ("agent", "all")):
        choose(opened, ident, field, value)
        paths.add(opened.execute_script(line, ident))
    assert len(paths) == 4
    assert errors(opened) == []


def test_the_matrix_and_the_network_follow_the_run(opened: Any) -> None:
    cells = "#g0-accuracy-matrix .mark-text.role-mark text"
    texts = f"return [...document.querySelectorAll('{cells}')].map((one) => one.textContent)"
    drawn(opened, "g0-accuracy-matrix")
    before = opened.execute_script(texts)
    choose(opened, "g0-accuracy-matrix", "run", "fedavg")
    accuracies = opened.execute_script(texts)
    assert accuracies != before
    choose(opened, "g0-accuracy-matrix", "show", "gain over the baseline")
    gains = opened.execute_script(texts)
    assert len(gains) == len(accuracies) == 21
    assert all(gain[0] in "+\N{MINUS SIGN}" for gain in gains)
    tint = "return document.querySelector('#g0-network .mark-rule line').getAttribute('stroke')"
    choose(opened, "g0-network", "run", "recv")
    assert opened.execute_script(tint) == "var(--good)"
    choose(opened, "g0-network", "run", "fedavg")
    assert opened.execute_script(tint) == "var(--given)"  # mail was refused on it
    assert errors(opened) == []


def test_the_numbers_of_a_chart_can_be_read(opened: Any) -> None:
    ident = "g0-learning-curves"
    drawn(opened, ident)
    opened.find_element("css selector", f"#{ident} .numbers summary").click()
    rows = f"return document.querySelectorAll('#{ident} .numbers tbody tr').length"
    wait(lambda: opened.execute_script(rows) == 9, "the table")  # 3 runs, 3 epochs
    opened.find_element("css selector", f"#{ident} input[value='recv']").click()
    wait(lambda: opened.execute_script(rows) == 6, "the switch")


def test_light_and_dark_follow_the_system_and_the_switch(opened: Any) -> None:
    drawn(opened, "g0-learning-curves")

    def shades() -> tuple[str, ...]:
        places = (
            ("body", "backgroundColor"),
            ("body", "color"),
            ("#g0-learning-curves .mark-line path", "stroke"),
            ("#g0-learning-curves .role-axis-label text", "fill"),
        )
        return tuple(colour(opened, selector, name) for selector, name in places)

    light = shades()
    assert light == ("rgb(255, 255, 255)", "rgb(27, 31, 39)", "rgb(0, 0, 0)", "rgb(27, 31, 39)")
    look(opened, "dark")
    dark = shades()
    assert dark == ("rgb(18, 21, 27)", "rgb(232, 234, 239)", "rgb(255, 255, 255)", "rgb(232, 234, 239)")
    button = opened.find_element("css selector", "button.theme")
    wait(lambda: button.text == "Light colours", "the button to follow the system")
    button.click()
    assert shades() == light
    assert button.text == "Dark colours"
    opened.refresh()  # the choice stays
    drawn(opened, "g0-learning-curves")
    assert shades() == light
    look(opened, "light")
    opened.find_element("css selector", "button.theme").click()
    assert shades() == dark


def test_a_phone_needs_no_sideways_scrolling(opened: Any) -> None:
    opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    opened.refresh()
    draw_all(opened)
    assert opened.execute_script("return [document.documentElement.scrollWidth, innerWidth]") == [390, 390]
    wide = "return [...document.querySelectorAll('.plot svg')].map((one) => one.getBoundingClientRect().width)"
    assert all(200 < width <= 366 for width in opened.execute_script(wide))
    assert errors(opened) == []


def test_everything_can_be_reached_by_keyboard(opened: Any) -> None:
    opened.find_element("css selector", "body").send_keys("\ue004")  # tab
    active = "return document.activeElement.className"
    assert opened.execute_script(active) == "skip"
    assert opened.execute_script("return document.activeElement.getBoundingClientRect().left") == 0
    opened.switch_to.active_element.send_keys("\ue007")  # enter
    assert opened.execute_script("return location.hash") == "#main"
    controls = "[...document.querySelectorAll('main select:not([hidden]), main input, main summary')]"
    seen = set()
    for _ in range(80):
        opened.switch_to.active_element.send_keys("\ue004")
        seen.add(opened.execute_script(f"return {controls}.indexOf(document.activeElement)"))
        ring = opened.execute_script(
            "const one = document.activeElement; return one === document.body || getComputedStyle(one).outlineStyle"
        )
        assert ring in (True, "solid"), ring
    assert seen - {-1} == set(range(opened.execute_script(f"return {controls}.length")))


def test_names_are_text_in_the_browser_too(browser: Any, shown: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(shown, tmp_path / "runs"))
    evil = "</script><script>document.title='caught'</script>\"'><img src=x onerror=\"document.title='caught'\">"
    settings = folder / "recv" / "settings.toml"
    settings.write_text(settings.read_text().replace('mode = "recv"', f"mode = {json.dumps(evil)}"))
    (settings.parent / "manifest.json").unlink()  # nobody who writes such names leaves a checksum that tells
    spoil(folder / "fedavg", "truncated accuracy")
    runs, notes = read.gather([folder])
    page.save(tmp_path / "page.html", page.page(compare.groups(runs), notes))
    browser.get((tmp_path / "page.html").as_uri())
    draw_all(browser)
    assert browser.title.startswith("shoal report")
    assert evil in browser.find_element("css selector", "#g0-learning-curves .switches").text
    assert "1 folder left out" in browser.find_element("css selector", ".notes").text
    assert errors(browser) == []


def test_a_large_page_works(browser: Any, tmp_path: Path) -> None:
    """15 methods of 64 lanes; how fast it opens is the bench's matter."""
    many(tmp_path / "runs", methods=15, agents=8, seeds=8, tasks=10)
    page.save(tmp_path / "page.html", page.page(compare.groups(read.gather([tmp_path / "runs"])[0]), []))
    browser.get((tmp_path / "page.html").as_uri())
    draw_all(browser)
    drawn(browser, "g0-learning-curves")
    assert marks(browser, "g0-learning-curves", "line") == 15
    button = browser.find_element("css selector", "#g0-learning-curves .every")
    hidden = "return document.querySelector('#g0-learning-curves .plot').classList.contains('empty')"

    def shows(empty: bool) -> bool:
        return bool(browser.execute_script(hidden)) is empty

    for name, empty in (("none", True), ("all", False)):
        assert button.text == name
        button.click()
        wait(partial(shows, empty), "the button")
    assert marks(browser, "g0-learning-curves", "line") == 15
    assert errors(browser) == []


def test_one_of_many_agents_is_found_by_typing(browser: Any, tmp_path: Path) -> None:
    many(tmp_path / "runs", methods=1, agents=150, seeds=2, tasks=5)
    groups = compare.groups(read.gather([tmp_path / "runs"])[0])
    file = tmp_path / "report.html"
    page.save(file, page.page(groups, []))
    look(browser, "light")
    browser.get(file.as_uri())
    ident = "g0-learning-curves"
    first = drawn(browser, ident)
    search = browser.find_element("id", f"{ident}-agent")
    plot = browser.find_element("css selector", f"#{ident} .plot")
    for said, found in (("149", "agent 149"), ("nobody", "agent all"), ("", "agent all")):
        search.clear()
        search.send_keys(said, "\ue007")  # enter
        wait(partial(lambda words: words in plot.get_attribute("aria-label"), found), "the search")
        assert search.get_attribute("aria-invalid") == ("true" if said == "nobody" else "false")
    assert drawn(browser, ident) > first
    assert drawn(browser, "g0-network")
    assert errors(browser) == []
