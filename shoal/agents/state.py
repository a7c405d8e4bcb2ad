"""State by owner: what a learner, a memory, a buffer or a sharing mode keeps, as tensors with a row for every lane."""

from collections.abc import ItemsView, Iterator, Mapping, MutableMapping, Sequence, ValuesView
from contextlib import contextmanager
from threading import RLock
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from shoal.errors import SettingsError

if TYPE_CHECKING:
    from shoal.agents.stack import Stack

GROWS = RLock()  # pieces of a stack learn side by side, and may give it a new name at the same time


class State(MutableMapping[str, Tensor]):
    """One owner's tensors by name, [L, ...] each. It knows nothing of what they mean.

    The state of a piece is a view: what is written to it is written to the stack that it was cut from, under new names
    too, where lanes of other pieces have zeros until they write. The view of a tensor is made when somebody asks for
    it, of the tensor that was there when the piece was cut.
    """

    def __init__(
        self,
        lanes: int,
        tensors: Mapping[str, Tensor] | None = None,
        whole: "State | None" = None,
        rows: slice = slice(None),
    ) -> None:
        self.lanes = lanes
        self.tensors = dict(tensors or {})  # of a piece, the views that there are
        self.whole, self.rows = whole, rows
        self.uncut: dict[str, Tensor] = {}  # of a piece, the tensors of the whole, in their order

    def __getitem__(self, name: str) -> Tensor:
        found = self.tensors.get(name)
        if found is None:
            found = self.tensors[name] = rows_of(self.uncut[name], self.rows)
        return found

    def __setitem__(self, name: str, tensor: Tensor) -> None:
        if self.whole is not None:
            tensor = self.whole.written(name, tensor, self.rows)
            self.uncut[name] = self.whole[name]
        self.tensors[name] = tensor

    def __delitem__(self, name: str) -> None:
        self.view_all()
        del self.tensors[name]
        self.uncut.pop(name, None)

    def __contains__(self, name: object) -> bool:
        return name in (self.tensors if self.whole is None else self.uncut)

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors if self.whole is None else self.uncut)

    def __len__(self) -> int:
        return len(self.tensors if self.whole is None else self.uncut)

    def items(self) -> ItemsView[str, Tensor]:
        self.view_all()
        return self.tensors.items()  # much quicker than what a mapping has by itself

    def values(self) -> ValuesView[Tensor]:
        self.view_all()
        return self.tensors.values()

    def view_all(self) -> None:
        """Make all views, in the order of the whole."""
        if self.whole is not None and [*self.tensors] != [*self.uncut]:
            self.tensors = {name: self[name] for name in self.uncut}

    def written(self, name: str, tensor: Tensor, rows: slice) -> Tensor:
        """A piece's tensor as it lies in some rows of the whole; where there was none, room is made for all."""
        with GROWS:
            old = self.get(name)
            if old is None or (old.shape[1:], old.dtype) != (tensor.shape[1:], tensor.dtype):
                self[name] = tensor.new_zeros(self.lanes, *tensor.shape[1:])
        found = rows_of(self[name], rows)
        found.copy_(tensor)
        return found

    def put(self, name: str, tensor: Tensor, rows: Sequence[int]) -> None:
        """Write a tensor of some lanes into their rows; where there was none, room is made for all."""
        old = self.get(name)
        if old is None or (old.shape[1:], old.dtype) != (tensor.shape[1:], tensor.dtype):
            self[name] = tensor.new_zeros(self.lanes, *tensor.shape[1:])
        self[name][torch.tensor(rows, device=tensor.device)] = tensor

    def cut(self, rows: slice, known: "State | None" = None) -> "State":
        """A view of some lanes that lie together, or equally far apart: one that is `known`, if it is still right."""
        now = dict(self.items())
        same = known is not None and known.whole is self and [*known.uncut] == [*now]
        if known is not None and same and all(known.uncut[name] is tensor for name, tensor in now.items()):
            return known
        found = State(len(range(*rows.indices(self.lanes))), whole=self, rows=rows)
        found.uncut = now
        return found

    def take(self, rows: Sequence[int]) -> "State":
        """A copy of some rows."""
        index = torch.tensor(rows, dtype=torch.int64)
        return State(len(rows), {name: tensor[index.to(tensor.device)] for name, tensor in self.items()})


def rows_of(tensor: Tensor, rows: slice) -> Tensor:
    """Some rows as `data`, because autograd would take what another thread writes to its rows for a change of these."""
    return tensor.data[rows]


@contextmanager
def guarded(stack: "Stack", who: str, owners: Sequence[str]) -> Iterator[None]:
    """Raise if anything is written inside but the state of `owners`. Every write counts a tensor's version up, or puts
    another tensor in its place; a view that was made inside, and not written, has none but the first."""

    def seen() -> dict[tuple[str, str], tuple[Tensor, int]]:
        return {
            (owner, name): (tensor, tensor._version)
            for owner, state in stack.states.items()
            if owner not in owners
            for name, tensor in state.tensors.items()
        }

    before, uncut = seen(), {owner: set(state) - state.tensors.keys() for owner, state in stack.states.items()}
    yield
    after = seen()
    for owner, name in sorted(before.keys() | after.keys()):
        old, new = before.get((owner, name)), after.get((owner, name))
        if old is None and new is not None and new[1] == 0 and name in uncut.get(owner, ()):
            continue
        if old is None or new is None or old[0] is not new[0] or old[1] != new[1]:
            raise SettingsError(
                f"{who} wrote `{name}` in the state of `{owner}`, which is not its own; keep state under its own name, "
                f'or list "{owner}" in its `writes` and write through the functions of that owner'
            )
