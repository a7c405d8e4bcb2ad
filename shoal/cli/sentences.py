"""Errors become a sentence and an exit code."""

import errno
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import NamedTemporaryFile
from traceback import format_exception

from shoal.console import say
from shoal.errors import CodeError, Stopped, UserError
from shoal.own_code import told_apart

# What is wrong with a place that the user has named, whoever meets it first.
PLACES = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR)


@contextmanager
def sentences() -> Iterator[None]:
    """Turn foreseen errors into a sentence and an exit code."""
    try:
        with told_apart():
            yield
    except KeyboardInterrupt as stop:
        say(" ".join(("stopped", *map(str, stop.args))))
        sys.exit(130)
    except Stopped as stop:
        say(str(stop))
        sys.exit(130)
    except SystemExit as end:
        if end.code == 130:  # what typer makes of Ctrl-C, without a word
            say("stopped before it was done; the same command begins again, or goes on from what was saved")
        raise
    except UserError as error:
        say(str(error), "error: ")
        for line in error.trace.splitlines() if isinstance(error, CodeError) else ():
            say(line)
        sys.exit(2)
    except Exception as error:
        if isinstance(error, MemoryError) or "can't allocate memory" in str(error):  # what torch says
            say("there is not enough memory here; `shoal check` says what a run needs, make it smaller", "error: ")
            sys.exit(2)
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            say(f"cannot write: {error.strerror}; make room there", "error: ")
            sys.exit(2)
        if isinstance(error, OSError) and error.errno in PLACES and error.filename is not None:
            say(f"cannot use {error.filename}: {error.strerror}; choose another place", "error: ")
            sys.exit(2)
        if os.environ.get("SHOAL_TRACEBACK"):
            raise
        say(unforeseen(error), "error: ")
        sys.exit(1)


def unforeseen(error: Exception) -> str:
    """A sentence about a mistake of ours, which says where its traceback is."""
    what = f"{type(error).__name__}: {error}".partition("\n")[0]
    try:
        with NamedTemporaryFile("w", prefix="shoal-", suffix=".txt", delete=False, encoding="utf-8") as file:
            file.write(f"{shlex.join(sys.argv)}\n\n{''.join(format_exception(error))}")
    except OSError:
        return f"a mistake in shoal, not in what you said ({what}); SHOAL_TRACEBACK=1 shows where"
    return f"a mistake in shoal, not in what you said ({what}); please report it with {file.name}"
