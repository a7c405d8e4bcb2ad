"""Datasets: banks, reading files, finding folders, downloads."""

import gzip
import hashlib
import http.server
import io
import os
import pickle
import struct
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal import data
from shoal.data import DATASETS, Bank, DataError, Dataset, cifar, digits, idx, join, store
from shoal.data.dataset import Content, Download, File


def md5(blob: bytes) -> str:
    return hashlib.md5(blob).hexdigest()


def as_idx(array: np.ndarray) -> bytes:
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def bank(name: str = "toy", count: int = 6, classes: int = 3) -> Bank:
    return Bank(
        name=name,
        images=np.full((count, 4, 4), 255, np.uint8),
        labels=np.arange(count) % classes,
        source=np.zeros(count, np.int64),
        test=np.arange(count) >= count // 2,
        peak=255,
        classes=tuple(f"{name}/{c}" for c in range(classes)),
        sources=(name,),
    )


# ------------------------------------------------------------------------------------------------------------- banks


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": np.zeros(5, np.int64)}, "labels must have one entry for each of the 6 rows"),
        ({"test": np.zeros((6, 1), np.bool_)}, "test must have one entry"),
        ({"labels": np.full(6, 3)}, r"labels must lie in 0\.\.2 .* got 3\.\.3"),
        ({"labels": np.full(6, -1)}, r"labels must lie in 0\.\.2"),
        ({"source": np.ones(6, np.int64)}, r"source must lie in 0\.\.0"),
        ({"labels": np.full(6, 0.5)}, "labels must be whole numbers"),
        ({"images": np.full((6, 4, 4), np.nan)}, "96 values that are not numbers, in 6 rows"),
        ({"images": np.zeros(6, np.uint8)}, r"the data must have a row for each example.* got shape \[6\]"),
        ({"peak": 0}, "peak must be 1 or more"),
        ({"classes": ("a", "b", "a")}, "must be different"),
    ],
)
def test_a_bank_that_contradicts_itself_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(bank(), **change)


def test_an_empty_bank_is_refused() -> None:
    with pytest.raises(ValueError, match="there are no rows"):
        bank(count=0)


def test_joined_banks_keep_their_classes_apart() -> None:
    both = join([bank("a"), bank("b", count=4, classes=2)], "ab")
    assert both.classes == ("a/0", "a/1", "a/2", "b/0", "b/1")
    assert both.sources == ("a", "b")
    assert both.labels.tolist() == [0, 1, 2, 0, 1, 2, 3, 4, 3, 4]
    assert both.source.tolist() == [0] * 6 + [1] * 4
    assert both.test.tolist() == [False] * 3 + [True] * 3 + [False] * 2 + [True] * 2
    assert len(both) == 10


def test_joining_joined_banks_moves_sources_too() -> None:
    pair = join([bank("a"), bank("b")], "ab")
    assert join([pair, bank("c")], "abc").source.tolist() == [0] * 6 + [1] * 6 + [2] * 6


def test_banks_that_do_not_fit_are_not_joined() -> None:
    with pytest.raises(ValueError, match=r"`b` have shape \[8, 8\], those of `a` \[4, 4\]"):
        join([bank("a"), replace(bank("b"), images=np.zeros((6, 8, 8), np.uint8))], "ab")
    with pytest.raises(ValueError, match="`b` has peak 16, `a` 255"):
        join([bank("a"), replace(bank("b"), peak=16)], "ab")
    with pytest.raises(ValueError, match="nothing to join"):
        join([], "ab")


# ------------------------------------------------------------------------------------------------------------- table


@pytest.mark.parametrize("name", DATASETS)
def test_every_dataset_says_what_it_is_and_where_it_comes_from(name: str) -> None:
    dataset = DATASETS[name]
    assert dataset.name == name
    assert dataset.about
    assert dataset.licence
    assert dataset.citation
    assert all(part in DATASETS for part in dataset.parts)
    assert all(host.endswith("/") for host in dataset.hosts)
    assert bool(dataset.hosts) == bool(dataset.downloads)
    assert dataset.downloads or dataset.shipped or dataset.carried or dataset.parts
    # Readers are given contents by file name, so names must not collide within a dataset.
    assert len({file.name for file in dataset.files}) == len(dataset.files)


def test_no_file_belongs_to_two_datasets() -> None:
    paths = [file.path for dataset in DATASETS.values() for file in dataset.files]
    assert len(set(paths)) == len(paths)


def test_listing_data_does_not_import_torch() -> None:
    code = "import sys, shoal.data; shoal.data.status(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_unknown_dataset_gets_the_list_and_a_guess() -> None:
    for use in (data.load, data.find, data.fetch):
        with pytest.raises(
            DataError, match=r"unknown dataset `mnits`; there are digits, mnist, .*did you mean `mnist`\?"
        ):
            use("mnits")


def test_digits_come_with_the_package() -> None:
    digits_bank = data.load("digits")
    assert digits_bank.images.shape == (1797, 8, 8)
    assert digits_bank.peak == 16
    assert digits_bank.test.sum() == 599
    assert not digits_bank.test[:2].any()
    assert digits_bank.test[2]
    assert np.bincount(digits_bank.labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert digits_bank.labels[:10].tolist() == list(range(10))
    assert "Creative Commons Attribution 4.0" in digits.PLACE.with_name("digits.txt").read_text()


def test_a_broken_package_is_said_to_be_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digits, "PLACE", tmp_path / "digits.npz")
    with pytest.raises(DataError, match=r"missing or damaged .* install shoal again"):
        data.load("digits")
    (tmp_path / "digits.npz").write_bytes(b"no zip file")
    with pytest.raises(DataError, match=r"missing or damaged .* install shoal again"):
        data.load("digits")


# ------------------------------------------------------------------------------------------------- a tiny stand-in

LABELS = {"train": np.array([0, 1, 2, 0], np.uint8), "t10k": np.array([2, 1], np.uint8)}


def tiny_files() -> dict[str, bytes]:
    files = {}
    for prefix, labels in LABELS.items():
        images = np.arange(len(labels) * 4, dtype=np.uint8).reshape(-1, 2, 2)
        files[f"{prefix}-images-idx3-ubyte"] = as_idx(images)
        files[f"{prefix}-labels-idx1-ubyte"] = as_idx(labels)
    return files


def tiny(hosts: tuple[str, ...] = ()) -> Dataset:
    """A dataset with the file layout of MNIST and six images."""
    downloads = []
    for name, blob in tiny_files().items():
        packed = gzip.compress(blob, mtime=0)
        file = File(f"Tiny/raw/{name}", len(blob), md5(blob))
        downloads.append(Download(f"{name}.gz", len(packed), md5(packed), (file,)))
    return Dataset(
        name="tiny",
        about="six images",
        licence="none",
        citation="none",
        read=partial(idx.read, classes=("a", "b", "c")),
        hosts=hosts,
        downloads=tuple(downloads),
    )


def lay(folder: Path, pack: bool = False) -> Path:
    """Write the tiny dataset below a folder, gzipped or not; returns the folder of the files."""
    raw = folder / "Tiny" / "raw"
    raw.mkdir(parents=True)
    for name, blob in tiny_files().items():
        # Level 1 gives other bytes than the published .gz: what counts is what is inside.
        (raw / (f"{name}.gz" if pack else name)).write_bytes(gzip.compress(blob, 1) if pack else blob)
    return raw


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty user cache, no $SHOAL_DATA, no proxy, and the dataset `tiny` in the table."""
    folder = tmp_path / "cache"
    monkeypatch.setattr(store, "cache", lambda: folder)
    monkeypatch.delenv("SHOAL_DATA", raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setitem(DATASETS.entries, "tiny", tiny())
    return folder


# ------------------------------------------------------------------------------------------------ finding and reading


@pytest.mark.parametrize("pack", [False, True])
def test_files_are_read_with_or_without_gz(cache: Path, tmp_path: Path, pack: bool) -> None:
    lay(tmp_path, pack)
    loaded = data.load("tiny", tmp_path)
    assert loaded.images.shape == (6, 2, 2)
    assert loaded.images[1].tolist() == [[4, 5], [6, 7]]
    assert loaded.labels.tolist() == [0, 1, 2, 0, 2, 1]
    assert loaded.test.tolist() == [False] * 4 + [True] * 2
    assert loaded.peak == 15
    assert loaded.classes == ("tiny/a", "tiny/b", "tiny/c")


def test_the_named_folder_comes_before_the_variable_and_that_before_the_cache(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named, variable = tmp_path / "named", tmp_path / "variable"
    named.mkdir()
    assert data.find("tiny", named) is None
    lay(cache)
    assert data.find("tiny", named) == cache
    monkeypatch.setenv("SHOAL_DATA", str(variable))
    assert data.find("tiny", named) == cache
    lay(variable)
    assert data.find("tiny", named) == variable
    assert data.find("tiny") == variable
    (lay(named) / "t10k-labels-idx1-ubyte").unlink()
    assert data.find("tiny", named) == variable, "a folder with some of the files does not hold the dataset"


@pytest.mark.parametrize(
    ("platform", "variable", "expected"),
    [
        ("linux", "XDG_CACHE_HOME", "X/shoal"),
        ("linux", None, "H/.cache/shoal"),
        ("darwin", None, "H/Library/Caches/shoal"),
        ("win32", "LOCALAPPDATA", "X/shoal"),
        ("win32", None, "H/AppData/Local/shoal"),
    ],
)
def test_the_cache_is_where_the_system_wants_it(
    platform: str, variable: str | None, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "H")
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(variable, str(tmp_path / "X"))
    assert store.cache() == tmp_path / expected


def test_a_relative_xdg_folder_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "somewhere")
    assert store.cache() == Path.home() / ".cache" / "shoal"


def test_a_missing_dataset_says_where_it_looked_and_what_to_do(cache: Path, tmp_path: Path) -> None:
    named = tmp_path / "named"
    with pytest.raises(DataError) as caught:
        data.load("tiny", named)
    message = str(caught.value)
    assert f"the given folder {named}: no such folder" in message
    assert f"the user cache {cache}: no such folder" in message
    assert "shoal data get tiny" in message
    assert f"into {named / 'Tiny' / 'raw'}" in message
    assert "put train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte" in message
    (lay(named) / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(DataError, match="only in part, missing Tiny/raw/t10k-labels-idx1-ubyte"):
        data.load("tiny", named)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def flip(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")


def scribble(path: Path) -> None:
    path.write_bytes(b"<html>Please log in</html>")


def lengthen(path: Path) -> None:
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()) + b"more"))


def shorten(path: Path) -> None:
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:-3]))


@pytest.mark.parametrize(
    ("pack", "harm", "message"),
    [
        (False, cut, "expected 32 bytes, found 29 bytes"),
        (False, flip, "expected md5 [0-9a-f]{32}, found md5 [0-9a-f]{32}"),
        (False, scribble, "expected 32 bytes, found 26 bytes"),
        (True, cut, "expected gzip of 32 bytes, found a broken file"),
        (True, scribble, "expected gzip of 32 bytes, found a broken file"),
        (True, lengthen, "expected 32 bytes when unpacked, found more"),
        (True, shorten, "expected 32 bytes, found 29 bytes"),
    ],
)
def test_a_damaged_file_is_named_and_never_used(
    cache: Path, tmp_path: Path, pack: bool, harm: Callable[[Path], None], message: str
) -> None:
    path = lay(tmp_path, pack) / ("train-images-idx3-ubyte" + (".gz" if pack else ""))
    harm(path)
    with pytest.raises(DataError, match=f"{path} is damaged: {message}.*shoal data get tiny"):
        data.load("tiny", tmp_path)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="only an ordinary user can be refused")
def test_an_unreadable_file_is_named(cache: Path, tmp_path: Path) -> None:
    path = lay(tmp_path) / "train-images-idx3-ubyte"
    path.chmod(0)
    with pytest.raises(DataError, match=f"cannot read {path}: Permission denied"):
        data.load("tiny", tmp_path)


@pytest.mark.parametrize(
    ("blob", "message"),
    [
        (b"", "must start with 00000803, but starts with nothing"),
        (b"\x00\x00\x0d\x03" + bytes(12), "must start with 00000803, but starts with 00000d03"),
        (b"\x00\x00\x08\x01" + bytes(4), "must start with 00000803, but starts with 00000801"),
        (b"\x00\x00\x08\x03" + bytes(5), "its header must have 16 bytes, but it ends after 9"),
        (as_idx(np.zeros((2, 3, 3), np.uint8))[:-1], r"promises \[2, 3, 3\], that is 34 bytes, but it has 33"),
        (as_idx(np.zeros((2, 3, 3), np.uint8)) + b"x", r"promises \[2, 3, 3\], that is 34 bytes, but it has 35"),
        (b"\x00\x00\x08\x03" + b"\xff" * 12, "but it has 16"),
    ],
)
def test_an_idx_file_that_lies_is_refused(blob: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        idx.parse(Content(Path("f"), blob), 3)


def test_images_without_labels_are_refused() -> None:
    contents = {name: Content(Path("d") / name, blob) for name, blob in tiny_files().items()}
    contents["t10k-labels-idx1-ubyte"] = Content(Path("d"), as_idx(np.zeros(3, np.uint8)))
    with pytest.raises(DataError, match="d has 2 t10k images but 3 t10k labels"):
        idx.read("tiny", contents, ("a", "b", "c"))


def test_status_tells_present_partial_damaged_and_absent_apart(cache: Path, tmp_path: Path) -> None:
    def row() -> data.Status:
        return next(row for row in data.status(tmp_path) if row.name == "tiny")

    assert row() == data.Status("tiny", False, None, 0, "not found: shoal data get tiny")
    raw = lay(tmp_path)
    size = sum(len(blob) for blob in tiny_files().values())
    assert row() == data.Status("tiny", True, tmp_path, size, "six images")
    cut(raw / "t10k-images-idx3-ubyte")
    assert not row().present
    assert "damaged" in row().note
    (raw / "t10k-images-idx3-ubyte").unlink()
    assert not row().present
    assert "lacks Tiny/raw/t10k-images-idx3-ubyte" in row().note
    assert [row.name for row in data.status()] == list(DATASETS)


# ----------------------------------------------------------------------------------------------------------- pickles


def python2(entries: Mapping[str, object]) -> bytes:
    """A pickle as Python 2 wrote it: text and pixels as byte strings, numpy under its old names."""

    def text(value: bytes) -> bytes:
        return b"T" + struct.pack("<i", len(value)) + value

    def write(value: object) -> bytes:
        if isinstance(value, str):
            return text(value.encode())
        if isinstance(value, int):
            return b"J" + struct.pack("<i", value)
        if isinstance(value, list):
            return b"](" + b"".join(map(write, value)) + b"e"
        assert isinstance(value, np.ndarray)
        kind = f"{value.dtype.kind}{value.dtype.itemsize}"
        dtype = (
            b"cnumpy\ndtype\n(" + write(kind) + b"K\x00K\x01tR(K\x03" + text(b"|") + b"NNN" + write(-1) * 2 + b"K\x00tb"
        )
        empty = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00t" + text(b"b") + b"tR"
        shape = b"(" + b"".join(map(write, value.shape)) + b"t"
        return empty + b"(K\x01" + shape + dtype + b"\x89" + text(value.tobytes()) + b"tb"

    return b"\x80\x02}(" + b"".join(write(key) + write(value) for key, value in entries.items()) + b"u."


def cifar_files() -> dict[str, bytes]:
    def half(labels: list[int]) -> bytes:
        pixels = np.arange(len(labels) * 3072).astype(np.uint8).reshape(-1, 3072)
        return python2({"fine_labels": labels, "data": pixels, "batch_label": "a batch"})

    return {
        "train": half([2, 0, 1]),
        "test": half([1, 2]),
        "meta": python2({"fine_label_names": ["apple", "bear", "cup"], "coarse_label_names": ["thing"]}),
    }


def contents(files: Mapping[str, bytes]) -> dict[str, Content]:
    return {name: Content(Path("c") / name, blob) for name, blob in files.items()}


def test_python_2_pickles_become_a_bank() -> None:
    loaded = cifar.read("cifar100", contents(cifar_files()))
    assert loaded.images.shape == (5, 3, 32, 32)
    assert loaded.images[0, 1, 0, 0] == 1024 % 256, "channels come first, as published"
    assert loaded.images[0, 0, 0, 5] == 5
    assert loaded.labels.tolist() == [2, 0, 1, 1, 2]
    assert loaded.classes == ("cifar100/apple", "cifar100/bear", "cifar100/cup")


@pytest.mark.parametrize(
    "blob",
    [
        b"cos\nsystem\n(S'touch HARM'\ntR.",
        b"cposix\nsystem\n(S'touch HARM'\ntR.",
        b'cbuiltins\neval\n(S\'open("HARM", "w")\'\ntR.',
        b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x0atouch HARM\x85R.",
        b"(S'touch HARM'\nios\nsystem\n.",
        b"cnumpy\nload\n(S'HARM'\ntR.",
        b"cnumpy.core.multiarray\nfromfile\n.",
        pickle.dumps(Path("HARM")),
    ],
)
def test_a_pickle_that_names_a_function_is_refused(
    blob: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="which is not allowed; replace it"):
        cifar.parse(Content(Path("train"), blob))
    assert not (tmp_path / "HARM").exists()


@pytest.mark.parametrize(
    ("blob", "message"),
    [
        (b"", "not a file of CIFAR-100"),
        (b"\x80\x02}(", "not a file of CIFAR-100"),
        (cifar_files()["train"][:-100], "not a file of CIFAR-100"),
        (b"].", "must hold a dictionary, but holds a list"),
        (python2({"data": np.zeros(3, np.float64)}), "only bytes"),
    ],
)
def test_a_broken_pickle_is_refused(blob: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        cifar.parse(Content(Path("train"), blob))


def test_pickles_with_other_entries_are_refused() -> None:
    files = cifar_files()
    with pytest.raises(DataError, match=r"has no entry `fine_labels`, it has \['data', 'labels'\].*not CIFAR-10"):
        cifar.read("x", contents(files | {"train": python2({"data": np.zeros((1, 3072), np.uint8), "labels": [1]})}))
    bad = python2({"data": np.zeros((1, 3072), np.uint8), "fine_labels": [1, 2]})
    with pytest.raises(DataError, match=r"one row of 3072 pixels for each of its 2 labels, but holds \(1, 3072\)"):
        cifar.read("x", contents(files | {"train": bad}))


# --------------------------------------------------------------------------------------------------------- downloads


@dataclass
class Host:
    """A web server on this machine: what it serves, how it misbehaves, and what it was asked."""

    files: dict[str, bytes]
    url: str = ""
    ranges: bool = True
    breaks: int = 0  # how many more replies to break off in the middle
    chunked: bool = False
    length: str = ""  # what it says of a reply's length, if not the truth
    asked: list[tuple[str, str | None]] = field(default_factory=list)


class Handler(http.server.BaseHTTPRequestHandler):
    host: Host

    def do_GET(self) -> None:
        host, name, span = self.host, self.path.removeprefix("/"), self.headers.get("Range")
        host.asked.append((name, span))
        if name not in host.files:
            self.send_error(404)
            return
        blob, start = host.files[name], 0
        if span and host.ranges:
            start = int(span.removeprefix("bytes=").removesuffix("-"))
            if start >= len(blob):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(blob) - 1}/{len(blob)}")
        else:
            self.send_response(200)
        if not host.chunked:
            self.send_header("Content-Length", host.length or str(len(blob) - start))
        self.end_headers()
        rest = blob[start:]
        if host.breaks and len(rest) > 1:
            host.breaks -= 1
            rest = rest[: len(rest) // 2]
        self.wfile.write(rest)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the parent names it so)
        pass


@pytest.fixture
def serve() -> Iterator[Callable[[dict[str, bytes]], Host]]:
    """Start web servers; they end with the test."""
    servers = []

    def start(files: dict[str, bytes]) -> Host:
        host = Host(files)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"host": host}))
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        servers.append(server)
        host.url = f"http://127.0.0.1:{server.server_port}/"
        return host

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


Serve = Callable[[dict[str, bytes]], Host]


def packed() -> dict[str, bytes]:
    return {f"{name}.gz": gzip.compress(blob, mtime=0) for name, blob in tiny_files().items()}


def use(monkeypatch: pytest.MonkeyPatch, *hosts: str) -> None:
    monkeypatch.setitem(DATASETS.entries, "tiny", tiny(hosts))


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()}


def test_a_download_can_be_loaded_and_leaves_nothing_else(
    cache: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = serve(packed())
    use(monkeypatch, host.url)
    seen: list[tuple[str, int, int]] = []
    assert data.fetch("tiny", progress=lambda *step: seen.append(step)) == cache
    assert data.load("tiny").labels.tolist() == [0, 1, 2, 0, 2, 1]
    assert names(cache) == set(tiny_files())
    for name, blob in packed().items():
        steps = [(done, total) for file, done, total in seen if file == name]
        assert steps == sorted(steps)
        assert steps[-1] == (len(blob), len(blob))
    assert len(host.asked) == 4
    data.fetch("tiny")
    assert len(host.asked) == 4, "what is there is not downloaded again"


def test_a_download_goes_to_the_named_folder_first(
    cache: Path, serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, serve(packed()).url)
    monkeypatch.setenv("SHOAL_DATA", str(tmp_path / "variable"))
    assert data.fetch("tiny") == tmp_path / "variable"
    assert data.fetch("tiny", tmp_path / "named") == tmp_path / "named"
    assert data.find("tiny", tmp_path / "named") == tmp_path / "named"
    assert not cache.exists()


def test_a_host_that_breaks_off_is_asked_for_the_rest(
    cache: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = serve(packed())
    host.breaks = 2
    use(monkeypatch, host.url)
    data.fetch("tiny")
    assert data.load("tiny")
    first = [span for name, span in host.asked if name == "train-images-idx3-ubyte.gz"]
    size = len(packed()["train-images-idx3-ubyte.gz"])
    assert first == [None, f"bytes={size // 2}-", f"bytes={size // 2 + (size - size // 2) // 2}-"]


def test_a_download_that_was_killed_is_continued(cache: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    host = serve(packed())
    use(monkeypatch, host.url)

    def kill(name: str, done: int, total: int) -> None:
        if done == total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        data.fetch("tiny", progress=kill)
    assert names(cache) == {"train-images-idx3-ubyte.gz.part"}
    part = cache / "Tiny" / "raw" / "train-images-idx3-ubyte.gz.part"
    part.write_bytes(packed()["train-images-idx3-ubyte.gz"][:7])
    data.fetch("tiny")
    assert ("train-images-idx3-ubyte.gz", "bytes=7-") in host.asked
    assert names(cache) == set(tiny_files())


def test_a_host_without_ranges_starts_over(cache: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    host = serve(packed())
    host.ranges, host.breaks = False, 1
    use(monkeypatch, host.url)
    data.fetch("tiny")
    assert data.load("tiny")


def test_a_host_that_always_breaks_off_is_named_and_the_part_kept(
    cache: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = serve(packed())
    host.breaks = 10**6
    use(monkeypatch, host.url)
    with pytest.raises(DataError, match=r"127\.0\.0\.1:\d+: it broke off 5 times, last at byte \d+ of \d+"):
        data.fetch("tiny")
    assert names(cache) == {"train-images-idx3-ubyte.gz.part"}
    host.breaks = 0
    data.fetch("tiny")
    assert data.load("tiny")


@pytest.mark.parametrize("chunked", [False, True])
def test_a_wrong_file_is_removed_and_the_next_host_tried(
    cache: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch, chunked: bool
) -> None:
    wrong = serve({name: blob[:-1] + b"!" for name, blob in packed().items()})
    right = serve(packed())
    wrong.chunked = chunked
    use(monkeypatch, wrong.url)
    with pytest.raises(DataError, match=r"what it sent was wrong and has been removed .*expected .* md5"):
        data.fetch("tiny")
    assert names(cache) == set()
    use(monkeypatch, wrong.url, right.url)
    data.fetch("tiny")
    assert data.load("tiny")


def test_a_page_instead_of_a_file_is_refused(cache: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, serve(dict.fromkeys(packed(), b"<html>Please log in</html>")).url)
    with pytest.raises(DataError, match="it sent another file, of 26 bytes instead of"):
        data.fetch("tiny")
    assert names(cache) == set()


def test_a_length_that_is_no_number_is_refused(cache: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    host = serve(packed())
    host.length = "abc"
    use(monkeypatch, host.url)
    with pytest.raises(DataError, match="it sent another file, of abc bytes instead of"):
        data.fetch("tiny")
    assert names(cache) == set()


def test_a_part_that_is_a_link_is_never_followed(
    cache: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use(monkeypatch, serve(packed()).url)
    victim = tmp_path / "victim"
    victim.write_text("precious", encoding="utf-8")
    folder = cache / "Tiny" / "raw"
    folder.mkdir(parents=True)
    for name in tiny_files():
        (folder / f"{name}.gz.part").symlink_to(victim)
        (folder / f"{name}.part").symlink_to(victim)
    data.fetch("tiny")
    assert victim.read_text(encoding="utf-8") == "precious"
    assert data.load("tiny")


def test_a_part_that_cannot_be_removed_is_one_sentence(
    cache: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, serve(packed()).url)
    (cache / "Tiny" / "raw" / "train-images-idx3-ubyte.gz.part" / "inner").mkdir(parents=True)
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte\.gz\.part"):
        data.fetch("tiny")


def test_a_file_with_the_right_md5_and_another_sha_is_damaged() -> None:
    file = File("x", 3, md5(b"abc"), hashlib.sha256(b"abd").hexdigest())
    assert store.differs(b"abc", file) == (
        f"SHA-256 {file.sha256}",
        f"SHA-256 {hashlib.sha256(b'abc').hexdigest()}",
    )
    assert store.differs(b"abc", File("x", 3, md5(b"abc"), hashlib.sha256(b"abc").hexdigest())) is None


def test_every_file_has_a_sha_and_every_host_is_asked_by_https_first() -> None:
    for dataset in data.DATASETS.values():
        assert all(len(file.sha256) == 64 for file in dataset.files), dataset.name
        assert all(host.startswith("https://") for host in dataset.hosts[:1]), dataset.name


def test_a_host_that_sends_without_end_is_stopped(cache: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    host = serve(dict.fromkeys(packed(), bytes(1 << 22)))
    host.chunked = True
    use(monkeypatch, host.url)
    seen = []
    with pytest.raises(DataError, match="what it sent was wrong"):
        data.fetch("tiny", progress=lambda name, done, total: seen.append(done))
    assert len(seen) < 5


def test_a_part_that_no_host_can_continue_is_dropped(
    cache: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = packed()
    host = serve(files | {"train-images-idx3-ubyte.gz": b"short"})
    use(monkeypatch, host.url)
    part = cache / "Tiny" / "raw" / "train-images-idx3-ubyte.gz.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"other bytes")
    with pytest.raises(DataError, match="it answered 416"):
        data.fetch("tiny")
    assert not part.exists()
    part.write_bytes(bytes(10**4))  # longer than the file can be
    host.files = files
    data.fetch("tiny")
    assert data.load("tiny")


def test_without_network_it_says_which_files_to_put_where(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Port 9 of this machine, where nobody listens, and a name that the standards keep unused.
    use(monkeypatch, "http://127.0.0.1:9/", "http://host.invalid/")
    with pytest.raises(DataError) as caught:
        data.fetch("tiny")
    message = str(caught.value)
    assert "cannot download train-images-idx3-ubyte.gz of `tiny`" in message
    assert "127.0.0.1:9: [Errno" in message
    assert "host.invalid: " in message
    assert "check the network" in message
    assert f"into {cache / 'Tiny' / 'raw'}" in message
    for name in tiny_files():
        assert name in message
    assert "\n" not in message
    assert names(cache) == set()


def test_a_missing_page_is_reported(cache: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, serve({}).url)
    with pytest.raises(DataError, match="it answered 404 Not Found"):
        data.fetch("tiny")


def test_damaged_files_are_replaced_and_good_ones_left_alone(
    cache: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = serve(packed())
    use(monkeypatch, host.url)
    flip(lay(cache) / "t10k-images-idx3-ubyte")
    data.fetch("tiny")
    assert [name for name, _ in host.asked] == ["t10k-images-idx3-ubyte.gz"]
    assert data.load("tiny")


def test_a_damaged_gz_is_replaced_too(cache: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, serve(packed()).url)
    cut(lay(cache, pack=True) / "t10k-images-idx3-ubyte.gz")
    data.fetch("tiny")
    assert data.load("tiny")


def test_a_folder_that_cannot_be_written_is_named(
    cache: Path, serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, serve(packed()).url)
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(DataError, match=f"cannot write {tmp_path / 'file'}.*name another folder with --data"):
        data.fetch("tiny", tmp_path / "file")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_said_to_be_full(cache: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, serve(packed()).url)
    # The unpacked file, because only that is opened afresh; the first write beyond a buffer meets the full device.
    monkeypatch.setattr("shoal.data.download.fresh", lambda part: Path("/dev/full").open("wb"))  # noqa: SIM115
    with pytest.raises(DataError, match=r"cannot write .*: No space left on device; free some space"):
        data.fetch("tiny")
    assert "train-images-idx3-ubyte" not in names(cache)


def test_an_archive_gives_its_known_members_and_nothing_else(
    cache: Path, serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        evil = {"../evil": b"x", "/evil": b"x", "cifar-100-python/../../evil": b"x", "cifar-100-python/file.txt~": b"x"}
        for name, blob in (evil | {f"cifar-100-python/{n}": b for n, b in cifar_files().items()}).items():
            member = tarfile.TarInfo(name)
            member.size = len(blob)
            archive.addfile(member, io.BytesIO(blob))
    blob = stream.getvalue()
    files = tuple(File(f"cifar-100-python/{n}", len(b), md5(b)) for n, b in cifar_files().items())
    host = serve({"cifar-100-python.tar.gz": blob})
    host.breaks = 1
    small = replace(
        DATASETS["cifar100"],
        hosts=(host.url,),
        downloads=(Download("cifar-100-python.tar.gz", len(blob), md5(blob), files),),
    )
    monkeypatch.setitem(DATASETS.entries, "cifar100", small)
    data.fetch("cifar100")
    assert names(tmp_path) == {"train", "test", "meta"}
    assert data.load("cifar100").labels.tolist() == [2, 0, 1, 1, 2]


def test_getting_a_joined_dataset_gets_its_parts(cache: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, serve(packed()).url)
    pair = Dataset("pair", "two", "none", "none", parts=("tiny", "digits"))
    monkeypatch.setitem(DATASETS.entries, "pair", pair)
    assert data.find("pair") is None
    row = next(row for row in data.status() if row.name == "pair")
    assert (row.present, row.note) == (False, "needs tiny")
    assert data.fetch("pair") == cache
    assert data.find("pair") == cache
    assert next(row for row in data.status() if row.name == "pair").present


# --------------------------------------------------------------------------------------------------------- real data


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "shape", "train", "first", "first_test"),
    [
        ("mnist", (70000, 28, 28), 60000, [5, 0, 4, 1, 9], [7, 2, 1, 0, 4]),
        ("kmnist", (70000, 28, 28), 60000, [8, 7, 0, 1, 4], [2, 9, 3, 8, 3]),
        ("fashionmnist", (70000, 28, 28), 60000, [9, 0, 0, 3, 0], [9, 2, 1, 1, 6]),
        ("cifar100", (60000, 3, 32, 32), 50000, [19, 29, 0, 11, 1], [49, 33, 72, 51, 71]),
    ],
)
def test_real_data_is_what_the_authors_published(
    real_data: Path, name: str, shape: tuple[int, ...], train: int, first: list[int], first_test: list[int]
) -> None:
    loaded = data.load(name, real_data)
    assert loaded.images.shape == shape
    assert (~loaded.test).sum() == train
    assert not loaded.test[:train].any()
    assert loaded.peak == 255
    assert loaded.labels[:5].tolist() == first
    assert loaded.labels[train : train + 5].tolist() == first_test
    assert set(loaded.labels.tolist()) == set(range(len(loaded.classes)))


@pytest.mark.data
def test_combined_has_thirty_classes_of_three_sources(real_data: Path) -> None:
    loaded = data.load("combined", real_data)
    assert loaded.sources == ("mnist", "kmnist", "fashionmnist")
    assert len(loaded.classes) == 30
    assert (loaded.labels // 10 == loaded.source).all()
    assert loaded.classes[13] == "kmnist/tsu"
    assert loaded.test.sum() == 30000
