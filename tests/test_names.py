"""The public names."""

import types

import shoal


def test_the_package_lists_its_public_names_and_nothing_else() -> None:
    names = dir(shoal)
    assert {name for name in names if not name.startswith("__")} == set(shoal.__all__) - {"__version__"}
    assert {"__version__", "__doc__", "__file__", "__name__", "__path__"} <= set(names)
    for name in shoal.__all__:
        assert not isinstance(getattr(shoal, name), types.ModuleType)
