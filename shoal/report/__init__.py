"""A report of runs: run directories in, one HTML page and figures out. Needs no torch and no live run."""

from importlib.util import find_spec

from shoal.errors import UserError


def needs() -> None:
    """Raise if the packages that draw are not there: they are an extra."""
    missing = [name for name in ("altair", "vl_convert") if find_spec(name) is None]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise UserError(
            f"`shoal report` needs {' and '.join(missing)}, which {verb} not installed; "
            "say `pip install altair vl-convert-python`, or install shoal with its extra `report`"
        )
