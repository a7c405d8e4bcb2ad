"""Errors that a user can mend."""

from collections.abc import Callable, Iterable
from difflib import get_close_matches


class UserError(ValueError):
    """What is wrong, which value, what is allowed, what to do: one sentence, and the command line's exit code 2."""


class SettingsError(UserError):
    """A setting that cannot be used, said in one sentence."""


class StaffError(UserError):
    """A run has no workers, or none any more, where it has begun; what was saved is whole. The message ends with what
    to do before the run is started again."""


class Stopped(Exception):  # noqa: N818 - not an error
    """The user asked to stop; the message says how to go on."""


class CodeError(SettingsError):
    """Code of the user's own, such as a mode or a net, has failed: a sentence that names it, the agent and the moment,
    and its traceback, which goes along where an exception's own cannot, from one process to another."""

    def __init__(self, sentence: str, trace: str = "", advice: str = "mend it, and run it again") -> None:
        super().__init__(sentence, trace, advice)
        self.sentence, self.trace, self.advice = sentence, trace, advice

    def __str__(self) -> str:
        return f"{self.sentence}; {self.advice}"

    def __reduce__(self) -> tuple[Callable[..., "CodeError"], tuple[str, ...]]:
        return arrived, (self.sentence, self.trace, self.advice)


def arrived(sentence: str, trace: str, advice: str) -> CodeError:
    """Such an error in another process, with its traceback as a note."""
    error = CodeError(sentence, trace, advice)
    if trace:
        error.add_note(trace)
    return error


def nearly(said: str, words: Iterable[str], mark: str = "`") -> str:
    """What somebody may have meant who said something else, as the beginning of a hint; empty: nobody knows."""
    close = get_close_matches(said, list(words), n=1)
    return f"did you mean {mark}{close[0]}{mark}? " if close else ""
