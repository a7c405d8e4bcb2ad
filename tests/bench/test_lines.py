"""Lines of methods are counted without what only explains them."""

import sys
from pathlib import Path

import pytest

from bench.lines import common, lines, methods
from shoal.learners.table import LEARNERS
from shoal.sharing.modes import MODES

TEXT = '''"""A file."""

import os


class Base:
    """What it is."""

    name = "base"


class Mine(Base):
    # a comment

    def act(self):
        """It acts."""
        return helper(self.name)


def helper(name):
    return os.path.join(name, name)


def nobody_calls():
    return 1
'''


def test_a_method_is_its_class_and_all_in_its_file_that_it_uses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "some_method.py").write_text(TEXT)
    monkeypatch.syspath_prepend(tmp_path)
    import some_method  # type: ignore[import-not-found]

    assert lines(some_method.Mine) == 3 + 2 + 2
    assert lines(some_method.Base) == 2
    sys.modules.pop("some_method")


def test_all_methods_are_counted() -> None:
    found = methods()
    assert [set(one) for one in found.values()] == [set(LEARNERS), set(MODES)]
    assert all(count > 0 for one in found.values() for count in one.values())
    assert common() > max(found["sharing modes"][name] for name in ("fedavg", "fedprox", "fedcurv", "fedfish"))
