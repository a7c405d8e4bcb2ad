"""The public names teach: each has an example, and it works."""

import doctest

import pytest

import shoal

NAMES = [name for name in shoal.__all__ if name != "__version__"]


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_has_an_example_that_works(name: str) -> None:
    finder, runner = doctest.DocTestFinder(recurse=isinstance(getattr(shoal, name), type)), doctest.DocTestRunner()
    found = [test for test in finder.find(getattr(shoal, name), name, globs={}) if test.examples]
    assert any(test.name == name for test in found), f"shoal.{name} has no example in its docstring"
    for test in found:
        said: list[str] = []
        runner.run(test, out=said.append)
        assert runner.summarize(verbose=False).failed == 0, "".join(said)


def test_a_public_name_says_in_a_sentence_what_it_is() -> None:
    for name in NAMES:
        first = (getattr(shoal, name).__doc__ or "").split("\n\n")[0]
        assert first[:1].isupper() or first[:1] == "`", name
        assert first.rstrip().endswith((".", ":")), name
