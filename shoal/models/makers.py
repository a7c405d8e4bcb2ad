"""What functions and classes that make nets of one's own ask for."""

import inspect
import sys
from collections.abc import Callable
from functools import partial, update_wrapper
from typing import Any

from shoal.settings.asking import asked, asking
from shoal.settings.groups import Net

SHAPE = "shape"  # the one argument that a net of one's own may need: the shape of what it reads


def makes_nets(thing: Any) -> bool:
    """Is this an `nn.Module` class, or a function that needs no arguments, or just `shape`? Torch is not imported to
    find out: whoever has such a class has done that."""
    torch = sys.modules.get("torch")
    if isinstance(thing, type):
        return torch is not None and issubclass(thing, torch.nn.Module)
    if not callable(thing) or (torch is not None and isinstance(thing, torch.nn.Module)):
        return False
    try:
        return set(needed(thing)) <= {SHAPE}
    except (TypeError, ValueError):  # functions of C say nothing of their arguments
        return False


def needed(make: Callable[..., Any]) -> list[str]:
    """The arguments that a function or a class cannot be called without."""
    free = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    found = inspect.signature(make).parameters.items()
    return [name for name, one in found if one.default is one.empty and one.kind not in free]


def own_settings(make: Callable[..., Any], base: type[Net]) -> type[Net]:
    """The settings of nets that somebody's function or class makes: those that it asks for by name, with a default, are
    its own, and make the shape of what agents share."""
    kind = asking((make,), base, SHAPE)
    if kind is not base and kind.shaped == base.shaped:
        kind.shaped = (*base.shaped, *(name for name in kind.model_fields if name not in base.model_fields))
    return kind


def bound(make: Callable[..., Any], net: Net) -> Callable[..., Any]:
    """What makes a net, with the settings of its own that it asks for."""
    own = {name: getattr(net, name) for name in asked(make, (*Net.model_fields, SHAPE)) if hasattr(net, name)}
    if not own:
        return make
    found: Any = partial(make, **own)
    update_wrapper(found, make, ("__module__", "__name__", "__qualname__"), ())
    del found.__wrapped__  # it is called with less
    made: Callable[..., Any] = found
    return made
