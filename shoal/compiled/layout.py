"""The structures that the kernel reads, field by field as in steps.c; their sizes are compared when it is loaded."""

import ctypes

from shoal.models import heads
from shoal.models.params import MODULE, STRUCTURE

WEIGHT, BIAS = MODULE
HEAD, HEAD_BIAS = heads.NAMES
TENSORS = (WEIGHT, BIAS, STRUCTURE, HEAD, HEAD_BIAS)
DEEPEST = 8  # layers of a chain, each of which has a weight and a bias of its own, behind these
PARTS = 3  # in which images to learn from may lie
# What the kernel is told of a question, as `Question` in steps.c: numbers and addresses, all of eight bytes.
FIELDS = (
    *("x", "rows", "count", "width", "depth", "modules", "classes", "side", "channels", "bytes", "scaling"),
    *("weight", "bias", "share", "head", "head_bias", "out"),
)
SEARCH = 7  # numbers and addresses of a `Search`
# And of recurrent layers, as `Gru` in recurrent.h.
GRU = (
    *("lanes", "steps", "batch", "inputs", "width", "x_lane", "x_step", "x_row", "x"),
    *("enter", "enter_bias", "pass", "pass_bias", "states", "kept", "slope"),
    *("to_x", "to_enter", "to_enter_bias", "to_pass", "to_pass_bias"),
)

Int, Float, Pointer = ctypes.c_int64, ctypes.c_double, ctypes.c_void_p
Ints, Pointers = Int * (len(TENSORS) + 2 * DEEPEST), Pointer * (len(TENSORS) + 2 * DEEPEST)


class Net(ctypes.Structure):
    """The nets of a stack, as `Net` in steps.c."""

    _fields_ = (
        *(
            (name, Int)
            for name in (
                *("lanes", "apart", "width", "depth", "batch", "classes", "tasks", "initial", "basis", "read"),
                *("side", "channels", "bytes", "chain"),
            )
        ),
        *(("wide", Int * (DEEPEST + 1)), ("bends", Int * DEEPEST)),
        ("scaling", Pointer),
        *((name, Float) for name in ("rate", "beta1", "beta2", "epsilon")),
        *((name, Pointers) for name in ("value", "mean", "var", "steps")),
        *((name, Ints) for name in ("units", "size")),
    )


class Images(ctypes.Structure):
    """Images that lie together, as `Images` in steps.c."""

    _fields_ = (
        *((name, Pointer) for name in ("x", "y", "task", "rows")),
        *((name, Int) for name in ("x_lane", "y_lane", "task_lane", "rows_lane", "last")),
    )


class Step(ctypes.Structure):
    """One step of all lanes, as `Step` in steps.c."""

    _fields_ = (
        ("images", Images * PARTS),
        *((name, Pointer) for name in ("index", "weight")),
        *((name, Int) for name in ("index_lane", "weight_lane")),
        *((name, Int) for name in ("numbers", "whole", "mixes", "modules", "counted")),
        *((name, Pointer) for name in ("choice", "place", "takes", "shows", "known")),
        *(
            (name, Int)
            for name in ("choice_lane", "place_lane", "takes_lane", "shows_lane", "known_lane", "known_task")
        ),
        ("first", Ints),
        ("last", Ints),
        ("across", Int),
        ("active", Pointers),
        ("active_lane", Ints),
        *((name, Int) for name in ("present", "drops", "plain", "own")),
        ("dropout", Float),
        *((name, Pointer) for name in ("key", "further")),
        *((name, Int) for name in ("word", "further_word")),
        *((name, Pointer) for name in ("off", "masks", "masks_lane")),
        ("gradient", Pointers),
    )


# The sizes in bytes, in the order of `shoal_size` in steps.c.
STRUCTURES = {
    "Net": ctypes.sizeof(Net),
    "Images": ctypes.sizeof(Images),
    "Step": ctypes.sizeof(Step),
    "Question": 8 * len(FIELDS),
    "Search": 8 * SEARCH,
    "Gru": 8 * len(GRU),
}
