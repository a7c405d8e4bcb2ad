"""A letter on the wire: a few fixed bytes, a small JSON slip that says whose it is, and one safetensors body.

Everything about a frame is checked before any of it is used: lengths before memory is taken, types and ranges before
anything is looked up. What is wrong has a word, which goes back to its sender and into the receiver's notes.
"""

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from shoal.data.tasks import Lane
from shoal.letters.mail import Envelope, identify

MAGIC, VERSION = b"shoal", 1
HEAD = struct.Struct("!5sBHI")  # magic, version, bytes of the slip, bytes of the body
SLIP = 4096  # bytes of a slip, at most
NAMES = 64 * 1024  # bytes of the names, types and shapes of a body, at most
WORD, LONG = 200, 2**53  # letters of a word, and the largest whole number
WIDTHS = {
    "BOOL": 1, "U8": 1, "I8": 1, "I16": 2, "F16": 2, "BF16": 2, "I32": 4, "F32": 4, "I64": 8, "F64": 8,
}  # fmt: skip

# Why a frame is refused before anybody looks at what it holds.
NO_LETTER = "no letter"  # it is not of our form
OTHER_VERSION = "other version"
OTHER_RUN = "other run"
OTHER_SETTINGS = "other settings"
FALSE_NAME = "false name"  # its slip names another sender than the line that it came over, or another receiver
TOO_LONG = "too long"  # more than any letter of its mode and kind can have
NOT_KNOWN = "unknown mode"
REPEATED = "repeated"  # a letter of this number has come before
REASONS = (NO_LETTER, OTHER_VERSION, OTHER_RUN, OTHER_SETTINGS, FALSE_NAME, TOO_LONG, NOT_KNOWN, REPEATED)


class RefusedError(Exception):
    """A frame that is not taken, and why, in a word or two."""


class Turn(NamedTuple):
    """Where in its sender's stream a letter was written: in lock-step, everybody's turn is the same."""

    task: int
    epoch: int
    mode: int  # its place in the settings
    leg: int  # 0: what is asked, 1: what is answered or sent unasked


@dataclass(frozen=True)
class Slip:
    """What a letter says of itself. Without an envelope it only says that there is (no) more of a turn, or that a
    question has no answer."""

    run: str
    settings: str
    sender: int
    receiver: int
    number: int  # counts the letters of a directed link, from 1
    lamport: int
    turn: Turn
    part: int  # the so-many-th letter of the turn over this link, from 0,
    of: int  # of so many
    envelope: Envelope | None = None
    reply: str = ""  # the question that has no answer
    done: bool = False  # its sender has learned its whole stream

    def written(self) -> bytes:
        """As JSON."""
        said = {**vars(self), "turn": list(self.turn), "envelope": self.envelope and list(self.envelope)}
        return json.dumps(said, separators=(",", ":")).encode()


@dataclass(frozen=True)
class Terms:
    """What a receiver takes: the run, its place in it, and how long a letter of each mode and kind can be."""

    run: str
    settings: str
    seed: int
    me: int
    tasks: int
    epochs: int
    caps: Mapping[tuple[str, str], int]
    delays: bool = False  # may letters be due later than they come?

    @property
    def longest(self) -> int:
        """Bytes of the longest frame."""
        return HEAD.size + SLIP + max(self.caps.values(), default=0)


def sealed(slip: Slip, body: bytes = b"") -> bytes:
    """A frame."""
    written = slip.written()
    if len(written) > SLIP:
        raise ValueError(f"the slip of a letter has {len(written)} bytes, and at most {SLIP} are allowed")
    return HEAD.pack(MAGIC, VERSION, len(written), len(body)) + written + body


def opened(frame: bytes | memoryview, sender: int, terms: Terms) -> tuple[Slip, bytes]:
    """The slip and the body of a frame that came over the line of a sender; raise RefusedError if anything is wrong."""
    if len(frame) < HEAD.size:
        raise RefusedError(NO_LETTER)
    magic, version, slip_length, body_length = HEAD.unpack_from(frame)
    if magic != MAGIC:
        raise RefusedError(NO_LETTER)
    if version != VERSION:
        raise RefusedError(OTHER_VERSION)
    if slip_length > SLIP or len(frame) > terms.longest:
        raise RefusedError(TOO_LONG)
    if len(frame) != HEAD.size + slip_length + body_length:
        raise RefusedError(NO_LETTER)
    slip = read(bytes(frame[HEAD.size : HEAD.size + slip_length]), sender, terms)
    if slip.envelope is None:
        if body_length:
            raise RefusedError(NO_LETTER)
        return slip, b""
    name = slip.envelope.mode, slip.envelope.kind
    if name not in terms.caps:
        raise RefusedError(NOT_KNOWN)
    if body_length > terms.caps[name]:
        raise RefusedError(TOO_LONG)
    body = bytes(frame[HEAD.size + slip_length :])
    layout(body)
    return slip, body


def read(written: bytes, sender: int, terms: Terms) -> Slip:
    """A slip, if it is one of this run, from that sender to this receiver."""
    try:
        said = json.loads(written)
    except (ValueError, RecursionError):
        raise RefusedError(NO_LETTER) from None
    if not isinstance(said, dict) or said.keys() != set(Slip.__dataclass_fields__):
        raise RefusedError(NO_LETTER)
    if said["run"] != terms.run:
        raise RefusedError(OTHER_RUN)
    if said["settings"] != terms.settings:
        raise RefusedError(OTHER_SETTINGS)
    if said["sender"] != sender or said["receiver"] != terms.me or type(said["sender"]) is not int:
        raise RefusedError(FALSE_NAME)
    turn, done = said["turn"], said["done"]
    numbers = [said[name] for name in ("number", "lamport", "part", "of")]
    if not isinstance(turn, list) or len(turn) != len(Turn._fields) or not all(map(whole, [*turn, *numbers])):
        raise RefusedError(NO_LETTER)
    if not word(said["reply"]) or type(done) is not bool or said["number"] < 1 or said["part"] > said["of"]:
        raise RefusedError(NO_LETTER)
    if turn[0] > terms.tasks or turn[1] > terms.epochs:
        raise RefusedError(NO_LETTER)
    envelope = None if said["envelope"] is None else addressed(said["envelope"], sender, terms)
    return Slip(**{**said, "turn": Turn(*turn), "envelope": envelope})


def addressed(said: Any, sender: int, terms: Terms) -> Envelope:
    """An envelope, if it is from that sender to this receiver, and dated and named as the post does it."""
    if not isinstance(said, list) or len(said) != len(Envelope._fields):
        raise RefusedError(NO_LETTER)
    found = Envelope(*said)
    if said[:2] != [[terms.seed, sender], [terms.seed, terms.me]]:
        raise RefusedError(FALSE_NAME)
    ends = Lane(terms.seed, sender), Lane(terms.seed, terms.me)
    if not all(map(word, (found.mode, found.kind, found.id, found.reply))):
        raise RefusedError(NO_LETTER)
    if not all(map(whole, (found.items, found.task, found.epoch))) or type(found.due) not in (int, float):
        raise RefusedError(NO_LETTER)
    if found.task >= terms.tasks or found.epoch > terms.epochs:
        raise RefusedError(NO_LETTER)
    if not math.isfinite(found.due) or not 0 <= found.due <= terms.delays * 2 * (terms.tasks + 1) * terms.epochs:
        raise RefusedError(NO_LETTER)
    name, _, number = found.id.partition(identify(*ends, found.mode, found.kind, found.task, found.epoch))
    if name or not (not number or number[1:].replace(".", "").isdecimal()):
        raise RefusedError(FALSE_NAME)
    return found._replace(sender=ends[0], receiver=ends[1])


def whole(said: object) -> bool:
    """Is it a whole number that can be counted to?"""
    return type(said) is int and 0 <= said <= LONG


def word(said: object) -> bool:
    """Is it a word of some length, all of it printable?"""
    return type(said) is str and len(said) <= WORD and (not said or said.isprintable())


def layout(body: bytes) -> None:
    """Raise RefusedError unless a body is a safetensors file of plain tensors that fill it: nothing is made of it."""
    if len(body) < 8:
        raise RefusedError(NO_LETTER)
    (length,) = struct.unpack_from("<Q", body)
    if length > NAMES:
        raise RefusedError(TOO_LONG)
    if 8 + length > len(body):
        raise RefusedError(NO_LETTER)
    try:
        said = json.loads(body[8 : 8 + length])
    except (ValueError, RecursionError):
        raise RefusedError(NO_LETTER) from None
    if not isinstance(said, dict):
        raise RefusedError(NO_LETTER)
    spans = []
    for name, one in said.items():
        if not word(name) or not isinstance(one, dict) or one.keys() != {"dtype", "shape", "data_offsets"}:
            raise RefusedError(NO_LETTER)
        shape, span, dtype = one["shape"], one["data_offsets"], one["dtype"]
        if not isinstance(dtype, str) or dtype not in WIDTHS or not isinstance(shape, list) or len(shape) > 16:
            raise RefusedError(NO_LETTER)
        if not isinstance(span, list) or len(span) != 2 or not all(map(whole, [*shape, *span])):
            raise RefusedError(NO_LETTER)
        if span[1] - span[0] != math.prod(shape) * WIDTHS[dtype]:
            raise RefusedError(NO_LETTER)
        spans.append(tuple(span))
    end = 0
    for first, last in sorted(spans):
        if first != end:
            raise RefusedError(NO_LETTER)
        end = last
    if 8 + length + end != len(body):
        raise RefusedError(NO_LETTER)
