"""A report of runs: run directories in, one HTML page and figures out. Needs no torch and no live run."""

from importlib.util import find_spec

from shoal.errors import UserError


def needs() -> None:
    """Raise if the packages that draw are not there: they are an extra."""
    missing = [name for name in ("altair", "vl_convert") if find_spec(name) is None]
    if missing:
        raise UserError(
            f"`shoal report` needs {' and '.join(missing).replace('vl_convert', 'vl-convert-python')}, which "
            f"{'is' if len(missing) == 1 else 'are'} not installed; install them with pip install 'shoal[report]'"
        )
