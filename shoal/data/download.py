"""Downloads that resume, are checked, and never leave half a file under a final name."""

import gzip
import hashlib
import http
import http.client
import os
import shutil
import tarfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from shoal.data import store
from shoal.data.dataset import DataError, Dataset, Download, File
from shoal.files import beside, fresh, settle

Progress = Callable[[str, int, int], None]
"""Called with the file's name, the bytes there are, and the bytes there will be."""

CHUNK = 1 << 18
PATIENCE = 30.0  # seconds without a byte before a host counts as gone
BREAKS = 5  # how often a host may break off before the next one is tried


class Readable(Protocol):
    """What gzip and tar give us to read from."""

    def read(self, size: int = -1, /) -> bytes: ...


class HostError(Exception):
    """One host did not deliver; another may."""


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a failure to write (a full disk, a folder without permission) into one clear sentence."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"cannot write {path}: {error.strerror or error}; free some space or name another folder with --data "
            "(what has been downloaded so far is kept and continued)"
        ) from error


def ask(url: str, start: int) -> http.client.HTTPResponse:
    """An open response that begins at byte `start`, if the host can do that, or at 0."""
    # The file's own bytes are asked for: a transparently compressed reply has another length and cannot be resumed.
    headers = {"User-Agent": "shoal", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=PATIENCE)
    assert isinstance(response, http.client.HTTPResponse)
    return response


def begin(response: http.client.HTTPResponse, start: int, size: int) -> int:
    """The offset at which the reply begins; raises HostError when it cannot be the wanted file."""
    if response.status == http.HTTPStatus.PARTIAL_CONTENT:
        # "bytes 500-999/1000"
        span = response.headers.get("Content-Range", "").removeprefix("bytes ").split("/")[0]
        if span.split("-")[0] != str(start):
            raise HostError(f"asked to continue at byte {start}, but it sent {span or 'no range'}")
        return start
    length = response.headers.get("Content-Length")
    # A login page of a hotel network also answers with 200.
    if length is not None and length.strip() != str(size):
        raise HostError(f"it sent another file, of {length} bytes instead of {size}")
    return 0


def receive(url: str, part: Path, download: Download, progress: Progress) -> None:
    """One request: add to `part` what the host sends until it is complete or the host breaks off."""
    with writing(part):
        start = part.lstat().st_size if part.exists() and not part.is_symlink() else 0
        if start > download.size or part.is_symlink():  # what a link leads to is not ours to write
            part.unlink()
            start = 0
    if start == download.size:
        return
    try:
        with ask(url, start) as response:
            done = begin(response, start, download.size)
            with writing(part), part.open("r+b" if part.exists() else "wb") as file:
                file.truncate(done)
                file.seek(done)
                progress(download.name, done, download.size)
                while done <= download.size:
                    chunk = read(response)
                    if not chunk:
                        break
                    file.write(chunk)
                    done += len(chunk)
                    progress(download.name, min(done, download.size), download.size)
    except urllib.error.HTTPError as error:
        error.close()
        # The host's file is shorter than what is here: that is no beginning of it, and would never be continued.
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            with writing(part):
                part.unlink(missing_ok=True)
        raise HostError(f"it answered {error.code} {error.reason}") from error
    except urllib.error.URLError as error:
        raise HostError(str(error.reason)) from error
    except (OSError, http.client.HTTPException) as error:
        raise HostError(str(error) or type(error).__name__) from error


def read(response: http.client.HTTPResponse) -> bytes:
    """The next bytes of a reply; nothing when the host has broken off, which the caller sees from the length."""
    try:
        return response.read(CHUNK)
    except http.client.IncompleteRead as error:
        return error.partial
    except (OSError, http.client.HTTPException):
        return b""


def deliver(url: str, part: Path, download: Download, progress: Progress) -> None:
    """Complete `part` from one host and check it; raises HostError when that host cannot."""
    for _ in range(BREAKS):
        before = part.stat().st_size if part.exists() else 0
        receive(url, part, download, progress)
        after = part.stat().st_size
        if after >= download.size:
            break
        if after <= before:
            raise HostError(f"it broke off at byte {after} of {download.size}")
    else:
        raise HostError(f"it broke off {BREAKS} times, last at byte {after} of {download.size}")
    with part.open("rb") as file:
        md5 = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if after != download.size or md5 != download.md5:
        with writing(part):
            part.unlink()
        raise HostError(
            f"what it sent was wrong and has been removed (expected {download.size} bytes with md5 {download.md5}, "
            f"got {after} with md5 {md5})"
        )


def unpack(part: Path, download: Download, folder: Path) -> None:
    """Write the known files of a checked download below the folder; nothing else in it is touched."""
    if download.name.endswith(".tar.gz"):
        members = {file.path: file for file in download.files}
        with tarfile.open(part, "r:gz") as archive:
            for member in archive:
                # Only names from our own table become paths, so an archive cannot choose where to write.
                known = members.pop(member.name, None)
                source = archive.extractfile(member) if known else None
                if known and source:
                    put(source, known, folder)
        if members:
            raise DataError(f"{download.name} from its host lacks {', '.join(members)}; please report this")
    else:
        with gzip.open(part) as stream:
            put(stream, download.files[0], folder)


def put(stream: Readable, file: File, folder: Path) -> None:
    """Write one unpacked file beside its final name, check it, then move it there in one step."""
    path = folder / file.path
    part = beside(path)
    with writing(part):
        path.parent.mkdir(parents=True, exist_ok=True)
        with fresh(part) as target:
            shutil.copyfileobj(stream, target, CHUNK)
            target.flush()
            # Without this a power failure could leave the final name on a file whose bytes never reached the disk.
            os.fsync(target.fileno())
    wrong = store.differs(part.read_bytes(), file)
    if wrong:
        with writing(part):
            part.unlink()
        raise DataError(
            f"{path} unpacked to {wrong[1]} instead of {wrong[0]}; check the disk and run the command again"
        )
    with writing(path):
        settle(part, path)


def complete(dataset: Dataset, download: Download, folder: Path) -> bool:
    """Whether all files of the download are below the folder and undamaged."""
    try:
        for file in download.files:
            store.content(dataset, file, folder)
    except DataError:
        return False
    return True


def fetch(dataset: Dataset, folder: Path, progress: Progress) -> None:
    """Bring all files of the dataset below the folder; those that are there and undamaged are left alone."""
    for download in dataset.downloads:
        if complete(dataset, download, folder):
            progress(download.name, download.size, download.size)
            continue
        # Beside its final place, because datasets have files of the same name.
        part = (folder / download.files[0].path).with_name(f"{download.name}.part")
        with writing(part):
            part.parent.mkdir(parents=True, exist_ok=True)
        failures = []
        for host in dataset.hosts:
            try:
                deliver(host + download.name, part, download, progress)
                unpack(part, download, folder)
            except HostError as error:
                failures.append(f"{urlsplit(host).netloc}: {error}")
            else:
                with writing(part):
                    part.unlink()
                break
        else:
            raise DataError(
                f"cannot download {download.name} of `{dataset.name}` ({'; '.join(failures) or 'no host is known'}); "
                "check the network and run the command again (a download that broke off is continued), "
                f"or get the files elsewhere and {store.wanted(dataset, folder)}"
            )
