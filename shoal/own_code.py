"""Errors of code that shoal was given: a mode, a learner, a net, a metric of the user's own.

Such code is no mail. Mail may be hostile, and what is wrong with it is a verdict; what code raises ends the run, with a
sentence that names the code, the agent and the moment, and with its own traceback. Once it is mended, the run goes on.
"""

import sys
import sysconfig
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from traceback import StackSummary, format_list, walk_tb
from types import FrameType

from shoal.errors import CodeError, Stopped, UserError

OURS = ("shoal", "shoal_paper")
HERE = str(Path(__file__).parent)
LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")})
BROUGHT: set[str] = set()  # packages that a door has led to; they may be installed beside libraries
MOST = 12  # frames of a traceback that are shown, the innermost ones


def is_ours(thing: object) -> bool:
    """Is a class, a function or an object of a class shoal's own?"""
    return str(getattr(thing, "__module__", "")).partition(".")[0] in OURS


def is_theirs(frame: FrameType) -> bool | None:
    """Does a frame run code of the user's own? None: that of a library, which others call."""
    name, file = str(frame.f_globals.get("__name__", "")).partition(".")[0], frame.f_code.co_filename
    if name in OURS or file.startswith(HERE):
        return False
    if name in BROUGHT:
        return True
    installed = "site-packages" in Path(file).parts  # of any environment that is on the path
    return None if installed or file.startswith((*LIBRARIES, "<frozen")) else True


def own_frames(error: BaseException, last: bool = True) -> StackSummary:
    """The frames of a traceback from the first on that runs code of the user's own; none, if the `last` one that is no
    library's is shoal's."""
    frames = list(walk_tb(error.__traceback__))
    whose = [is_theirs(frame) for frame, _ in frames]
    if next((one for one in reversed(whose) if one is not None), False) or (True in whose and not last):
        return StackSummary.extract(iter(frames[whose.index(True) :]))
    return StackSummary()


def in_gradient(error: BaseException) -> bool:
    """Does torch say that it cannot follow what was computed back?"""
    *_, (frame, _) = walk_tb(error.__traceback__)
    return str(frame.f_globals.get("__name__", "")).startswith(("torch.autograd", "torch._functorch"))


def failed(error: BaseException, what: str, where: str = "", fails: str = "fails") -> CodeError:
    """What is said of code that has failed."""
    frames = own_frames(error, last=False)
    why = f"{type(error).__name__}: {error}".partition("\n")[0].rstrip(".;: ")
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if len(frames) == 1 else ""
    return CodeError(f"{what} {fails}{where}: {why}{place}", "".join(format_list(frames[-MOST:])).rstrip())


@contextmanager
def running(thing: object, what: str, where: Callable[[], str] = str, fails: str = "fails") -> Iterator[None]:
    """What goes wrong inside goes wrong in a `thing` that shoal was given, and is said of it. Who stops a run by hand
    while its code runs is told that it did; what is shoal's own raises what it raises."""
    try:
        yield
    except (UserError, Stopped, MemoryError):
        raise
    except KeyboardInterrupt as stop:
        if is_ours(thing) or stop.args:
            raise
        raise KeyboardInterrupt(f"in {what}{where()}{line_of(stop)}") from None
    except (Exception, SystemExit) as error:
        if is_ours(thing) and not own_frames(error):
            raise
        raise failed(error, what, where(), fails) from error


@contextmanager
def told_apart(but: Collection[BaseException] = ()) -> Iterator[None]:
    """What the user's own code raises inside, wherever it was called, is said of it, `but` for some; all else is as it
    was."""
    try:
        yield
    except (UserError, Stopped, MemoryError):
        raise
    except (Exception, SystemExit) as error:
        if error in but or not (frames := own_frames(error)):
            raise
        raise failed(error, f"`{frames[0].name}` in {frames[0].filename}") from error


@contextmanager
def at_moment(where: Callable[[], str]) -> Iterator[None]:
    """Code that fails inside a step does not know for whom and when: that is added to what is said of it."""
    try:
        yield
    except CodeError as error:
        what, colon, why = error.sentence.partition(": ")
        if " in task " not in what:
            error.sentence = f"{what}{where()}{colon}{why}"
            error.args = (error.sentence, *error.args[1:])
        raise


def line_of(error: BaseException) -> str:
    """Where in the user's own code an exception came, in words; empty: it did not."""
    frames = [frame for frame in walk_tb(error.__traceback__) if is_theirs(frame[0])]
    return f", {frames[-1][0].f_code.co_filename}, line {frames[-1][1]}" if frames else ""


def for_whom(lanes: Sequence[tuple[int, int]], task: int, epoch: int) -> str:
    """For whom and when, in words: lanes are agents of seeds; task and epoch are those of their clock."""
    seeds, agents = ({lane[at] for lane in lanes} for at in (0, 1))
    who = f"agent {next(iter(agents))}" if len(agents) == 1 else f"one of {len(agents)} agents"
    if agents == {-1}:
        who = "the common start"
    of = f" of seed {next(iter(seeds))}" if len(seeds) == 1 else ""
    return f" for {who}{of} in task {task + 1}, after {epoch} epoch{'s' * (epoch != 1)}"


def brought(module: str) -> None:
    """Remember that a door has led to a module."""
    name = module.partition(".")[0]
    if name not in OURS and name not in sys.stdlib_module_names:
        BROUGHT.add(name)
