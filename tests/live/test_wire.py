"""What is no letter of this run, from that neighbour, in that size, is refused before anything is made of it."""

import json
import pickle
import random
import struct
import tracemalloc
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save

from shoal.data.tasks import Lane
from shoal.letters.mail import Envelope, identify
from shoal.live.wire import (
    HEAD,
    MAGIC,
    NAMES,
    SLIP,
    VERSION,
    RefusedError,
    Slip,
    Terms,
    Turn,
    opened,
    sealed,
)

TERMS = Terms("cafe", "0123abcd", 0, 1, 3, 4, {("recv", "question"): 2000})
ENDS = Lane(0, 0), Lane(0, 1)
BODY = save({"images": torch.zeros(3, 8, 8, dtype=torch.uint8), "labels": torch.zeros(3, dtype=torch.int16)})


def envelope(**changes: Any) -> Envelope:
    said = {"mode": "recv", "kind": "question", "task": 1, "epoch": 2, **changes}
    name = identify(*ENDS, said["mode"], said["kind"], said["task"], said["epoch"])
    usual = {"sender": ENDS[0], "receiver": ENDS[1], "items": 3, "id": name, "reply": "", "due": 0}
    return Envelope(**{**usual, **said})


def slip(**changes: Any) -> Slip:
    usual = Slip("cafe", "0123abcd", 0, 1, 7, 9, Turn(1, 2, 0, 0), 0, 1, envelope())
    return replace(usual, **changes)


def why(frame: bytes, sender: int = 0, terms: Terms = TERMS) -> str:
    with pytest.raises(RefusedError) as error:
        opened(frame, sender, terms)
    return str(error.value)


def raw(said: object, body: bytes = BODY, version: int = VERSION, magic: bytes = MAGIC) -> bytes:
    written = json.dumps(said).encode()
    return HEAD.pack(magic, version, len(written), len(body)) + written + body


def test_a_letter_comes_as_it_was_sent() -> None:
    assert opened(sealed(slip(), BODY), 0, TERMS) == (slip(), BODY)
    nothing = slip(envelope=None, of=0, reply="x", done=True)
    assert opened(sealed(nothing), 0, TERMS) == (nothing, b"")


@pytest.mark.parametrize(
    ("frame", "word"),
    [
        (sealed(slip(run="beef"), BODY), "other run"),
        (sealed(slip(settings="ffffffff"), BODY), "other settings"),
        (raw({}, version=VERSION + 1), "other version"),
        (raw({}, magic=b"sheol"), "no letter"),
        (sealed(slip(sender=2), BODY), "false name"),
        (sealed(slip(receiver=2), BODY), "false name"),
        (sealed(slip(envelope=envelope(sender=Lane(0, 2))), BODY), "false name"),
        (sealed(slip(envelope=envelope(receiver=Lane(0, 2))), BODY), "false name"),
        (sealed(slip(envelope=envelope(sender=Lane(1, 0))), BODY), "false name"),
        (sealed(slip(envelope=envelope(id="0/2-1/recv/question/1.2")), BODY), "false name"),
        (sealed(slip(envelope=envelope(id=f"{envelope().id}.../../etc")), BODY), "false name"),
        (sealed(slip(envelope=envelope(mode="evil")), BODY), "unknown mode"),
        (sealed(slip(envelope=envelope(kind="answer")), BODY), "unknown mode"),
        (sealed(slip(envelope=envelope(task=3)), BODY), "no letter"),
        (sealed(slip(envelope=envelope(items=-1)), BODY), "no letter"),
        (sealed(slip(envelope=envelope(due=1)), BODY), "no letter"),
        (sealed(slip(envelope=envelope(reply="\n" * 10)), BODY), "no letter"),
        (sealed(slip(number=0), BODY), "no letter"),
        (sealed(slip(turn=Turn(9, 0, 0, 0)), BODY), "no letter"),
        (sealed(slip(), BODY)[:-1], "no letter"),
        (sealed(slip(), BODY) + b"!", "no letter"),
        (sealed(slip(envelope=None), BODY), "no letter"),
        (sealed(slip(), pickle.dumps({"x": 1})), "too long"),
        (sealed(slip(), b"\x80\x04\x95" + bytes(50)), "too long"),
        (sealed(slip(), BODY + bytes(3000)), "too long"),
        (HEAD.pack(MAGIC, VERSION, SLIP + 1, 0) + bytes(SLIP + 1), "too long"),
        (bytes(3), "no letter"),
    ],
)
def test_what_is_no_such_letter_is_refused_with_a_word(frame: bytes, word: str) -> None:
    assert why(frame) == word


@pytest.mark.parametrize("extra", ["path", "module", "setting", "code"])
def test_a_letter_names_no_path_code_or_setting(extra: str) -> None:
    said = {**json.loads(slip().written()), extra: "/etc/passwd"}
    assert why(raw(said)) == "no letter"
    assert why(raw([1, 2, 3])) == "no letter"
    assert why(raw({**json.loads(slip().written()), "number": True})) == "no letter"
    assert why(raw({**json.loads(slip().written()), "lamport": 2**60})) == "no letter"


def test_lengths_are_checked_before_memory_is_taken() -> None:
    huge = json.dumps({"x": {"dtype": "F32", "shape": [2**30, 2**10], "data_offsets": [0, 2**42]}}).encode()
    names = json.dumps({"x" * 60: {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}}).encode().ljust(NAMES + 1)
    wide = replace(TERMS, caps={("recv", "question"): 10**6})
    tracemalloc.start()
    for header in (huge, names, b"[" * 1000, b"{}x"):
        body = struct.pack("<Q", len(header)) + header
        assert why(sealed(slip(), body), terms=wide) in ("no letter", "too long")
    assert why(sealed(slip(), struct.pack("<Q", 2**63) + bytes(8)), terms=wide) == "too long"
    assert why(HEAD.pack(MAGIC, VERSION, 100, 2**32 - 1) + bytes(200)) == "no letter"
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 4 * 2**20


@given(st.integers(0, 10**9), st.integers(1, 8))
def test_a_frame_with_changed_bytes_is_read_or_refused(seed: int, count: int) -> None:
    rng, frame = random.Random(seed), bytearray(sealed(slip(), BODY))
    for _ in range(count):
        frame[rng.randrange(len(frame))] = rng.randrange(256)
    try:
        found, body = opened(bytes(frame), 0, TERMS)
    except RefusedError:
        return
    assert (found.sender, found.receiver, found.run) == (0, 1, "cafe")
    assert len(body) <= 2000
