"""Data of somebody else is read, or refused in a sentence, within bounds that its headers are held against."""

import io
import json
import os
import struct
import subprocess
import sys
import zlib
from contextlib import suppress
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from bench import fuzz
from shoal.configure.reading import read as settings_of
from shoal.data import load, sizes
from shoal.data.dataset import DataError
from shoal.data.sources import read
from shoal.errors import SettingsError
from shoal.fleet.size import word
from shoal.runs.record import create
from tests.command import DIGITS, ROOT, TINY, Done, call, refused


def test_of_171_damaged_sources_none_is_a_traceback() -> None:
    counts, faults = fuzz.fuzz(60, 0, most=171, only=("data",))
    assert (faults, counts["data"]) == ([], 171)


@pytest.mark.parametrize("seed", [1])
def test_a_short_fuzz_finds_nothing(seed: int) -> None:
    counts, faults = fuzz.fuzz(20, seed, most=12)
    assert faults == []
    assert len(counts) == len(fuzz.SURFACES)


def test_a_fault_is_found_and_said(tmp_path: Path) -> None:
    assert "ZeroDivisionError" in fuzz.tried(lambda: 1 / 0, tmp_path)
    assert "writes" in fuzz.tried(lambda: (tmp_path.parent / "elsewhere").write_text(""), tmp_path)
    assert not fuzz.tried(lambda: (tmp_path / "inside").write_text(""), tmp_path)


def huge(path: Path) -> None:
    """A small file that says it is large."""
    if path.suffix == ".parquet":
        pl.DataFrame({"a": pl.zeros(3_000_000, eager=True), "y": pl.zeros(3_000_000, eager=True)}).write_parquet(path)
    elif path.suffix == ".npz":
        np.savez_compressed(path, x=np.zeros((3_000_000, 4)), y=np.arange(3_000_000) % 2)
    else:
        head = io.BytesIO()
        np.lib.format.write_array_header_1_0(head, {"descr": "<f8", "fortran_order": False, "shape": (10**9, 10)})
        path.write_bytes(head.getvalue())


@pytest.mark.parametrize("name", ["t.parquet", "t.npz"])
def test_what_would_take_too_much_memory_is_refused_before_it_is_read(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    huge(tmp_path / name)
    said = f"{name.partition('.')[2]}:{tmp_path}/{name}{'?label=y' * name.endswith('t')}"
    monkeypatch.setenv(sizes.LIMIT, "1e7")
    with pytest.raises(DataError, match=r"would take about .* set SHOAL_MEMORY="):
        read(said)
    monkeypatch.setenv(sizes.LIMIT, "many")
    with pytest.raises(DataError, match="SHOAL_MEMORY cannot be"):
        read(said)


def test_an_array_that_ends_before_its_header_says_is_refused(tmp_path: Path) -> None:
    huge(tmp_path / "a.npy")
    with pytest.raises(DataError, match="ends before"):
        sizes.of_npy(tmp_path / "a.npy")


def test_pictures_that_would_become_large_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("PIL")

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0))
    for at in range(4):
        place = tmp_path / str(at % 2) / f"{at}.png"
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(
            b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")
        )
    with pytest.raises(DataError, match=r"60,000 by 60,000 pixels|3600000000 pixels"):
        read(f"folder:{tmp_path}")
    with pytest.raises(DataError, match="4 pictures of 30000 by 30000"):
        read(f"folder:{tmp_path}?size=30000,30000")


def test_pipes_devices_and_names_that_none_can_have_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "t.csv")
    for name in (f"csv:{tmp_path}/t.csv?label=y", "npz:/dev/zero", "csv:~nobody/t.csv?label=y", "csv:/a\0b?label=y"):
        with pytest.raises(DataError, match="cannot read"):
            read(name)
    os.mkfifo(tmp_path / "fleet.toml")
    refused(call("check", tmp_path / "fleet.toml"), "no regular file")
    refused(call("check", "/dev/zero"), "no regular file")


def test_a_saved_dataset_reads_files_of_its_own_folder_alone(tmp_path: Path) -> None:
    held = fuzz.sources(tmp_path)
    for name in ("h/data.arrow", "h/state.json", "h/dataset_info.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(held[name])
    assert len(read(f"hf:{tmp_path}/h?label=y").bank) == 40
    (tmp_path / "other.arrow").write_bytes(held["h/data.arrow"])
    (tmp_path / "h/data.arrow").unlink()
    (tmp_path / "h/data.arrow").symlink_to(tmp_path / "other.arrow")
    with pytest.raises(DataError, match="no other files are read"):
        read(f"hf:{tmp_path}/h?label=y&predict=classes")


def test_sizes_are_said_before_worlds_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.fleet.size.free", lambda: 10**15)
    refused(call("check", DIGITS, *TINY, "net.depth=1000000"), "net.depth = 1,000,000", "--yes")
    bank = load("digits")
    assert word(settings_of(DIGITS, ["agents=5000"]), bank).startswith("20,000 agents of all seeds are made first")
    assert word(settings_of(DIGITS, []), bank) == ""


@pytest.mark.parametrize("command", ["run", "check", "resume"])
def test_many_agents_get_their_word_before_worlds_are_made(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*given: object) -> None:
        raise SettingsError("worlds are made")

    monkeypatch.setattr("shoal.fleet.size.free", lambda: 10**15)
    monkeypatch.setattr("shoal.runs.prepare.worlds", none)
    words = {"run": [DIGITS, "agents=100000", "--out", tmp_path / "run"], "check": [DIGITS, "agents=100000"]}
    if command == "resume":
        create(tmp_path / "run", settings_of(DIGITS, ["agents=100000"]))
    done = call(command, *words.get(command, [tmp_path / "run"]))
    before, after = done.err.split("error: worlds are made")
    assert "400,000 agents of all seeds are made first, which takes about" in before
    assert "the run needs about" in before
    assert " GB of memory" in before
    assert (done.code, after) == (2, "\n")


# Small files that took gigabytes


def a_long_word(file: Path) -> str:
    """A table of 300,000 rows with one word of 16,000 letters, 4.8 GB as an array; the file has it once in a group."""
    frame = pl.select(pl.repeat("x" * 16_000, 300_000).alias("y"), pl.int_range(300_000).alias("a"))
    frame.write_parquet(file, row_group_size=10_000, statistics=False)
    return f"parquet:{file}?label=y"


def many_zeros(file: Path) -> str:
    """An array of 2.7 GB of zeros, in a stream that has one flushed block again and again."""
    head, press = io.BytesIO(), zlib.compressobj(9, zlib.DEFLATED, -15)
    block, times = 2_700_000, 1000
    shape = {"descr": "<f8", "fortran_order": False, "shape": (block * times // 80, 10)}
    np.lib.format.write_array_header_1_0(head, shape)
    content = press.compress(head.getvalue()) + press.flush(zlib.Z_FULL_FLUSH)
    content += (press.compress(bytes(block)) + press.flush(zlib.Z_FULL_FLUSH)) * times + press.flush()
    size, name = len(head.getvalue()) + block * times, b"x.npy"
    said = struct.pack("<HHHHIIIHH", 20, 0, 8, 0, 0, len(content), size, len(name), 0)
    said = said[:8] + struct.pack("<HIIIHH", 33, 0, len(content), size, len(name), 0)
    local = b"PK\3\4" + said + name + content
    central = b"PK\1\2" + struct.pack("<H", 20) + said + struct.pack("<HHHII", 0, 0, 0, 0, 0) + name
    end = b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(central), len(local), 0)
    file.write_bytes(local + central + end)
    return f"npz:{file}"


def large_pictures(folder: Path) -> str:
    image = pytest.importorskip("PIL.Image")
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)
        image.new("RGB", (8, 8)).save(folder / name / "one.png")
    return f"folder:{folder}?size=30000,30000"


def test_small_files_that_took_gigabytes_are_refused_without_the_memory(tmp_path: Path) -> None:
    names = [a_long_word(tmp_path / "t.parquet"), many_zeros(tmp_path / "t.npz"), large_pictures(tmp_path / "f")]
    assert max(file.stat().st_size for file in (tmp_path / "t.parquet", tmp_path / "t.npz")) < 4_000_000
    child = (
        "import json, resource, sys; from tests.command import call; "
        "resource.setrlimit(resource.RLIMIT_DATA, (1_200_000_000,) * 2); "
        "print(json.dumps([call('check', name, '--trust') for name in sys.argv[1:]]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", child, *names, "/dev/zero"], capture_output=True, text=True, check=True, timeout=100,
        cwd=ROOT, env={**os.environ, "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")},
    )  # fmt: skip
    found = [Done(*one) for one in json.loads(done.stdout)]
    for one, part in zip(found, ("`y` of `t`, 300,000 rows of up to 16,000", "t.npz", "30000 by 30000"), strict=False):
        refused(one, part, "would take about", "set SHOAL_MEMORY=")
    refused(found[3], "no regular file")


def test_a_footer_that_is_damaged_is_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "t.parquet"
    pl.DataFrame({"a": [1.0, 2.0], "y": ["u", "v"]}).write_parquet(file)
    whole = file.read_bytes()
    length = int.from_bytes(whole[-8:-4], "little")
    assert sizes.of_parquet(file) > 2 * 2 * 8
    for at in range(0, length, 7):
        for value in (0x19, 0xFF):
            place = len(whole) - 8 - length + at
            file.write_bytes(whole[:place] + bytes([value]) + whole[place + 1 :])
            with suppress(DataError):
                sizes.of_parquet(file)
    file.write_bytes(whole[:-8] + struct.pack("<I4s", 2**31, b"PAR1"))
    with pytest.raises(DataError, match="its footer is damaged"):
        sizes.of_parquet(file)


def test_a_graph_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "graph.txt").open("wb") as file:
        file.truncate(10**12)  # it has a hole, and no blocks
    refused(
        call("check", DIGITS, f"network.graph={tmp_path}/graph.txt", "--trust"), "1,000,000,000,000 bytes, and a graph"
    )
