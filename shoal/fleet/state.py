"""State by owner: what a learner, a memory, a buffer or a sharing mode keeps, as tensors with a row for every lane."""

from collections.abc import ItemsView, Iterator, Mapping, MutableMapping, Sequence, ValuesView
from contextlib import contextmanager
from threading import RLock
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from shoal.errors import SettingsError

if TYPE_CHECKING:
    from shoal.fleet.stack import Stack

GROWS = RLock()  # pieces of a stack learn side by side, and may give it a new name at the same time


class State(MutableMapping[str, Tensor]):
    """One owner's tensors by name, [L, ...] each. It knows nothing of what they mean.

    The state of a piece is a view: what is written to it is written to the stack that it was cut from, under new names
    too, where lanes of other pieces have zeros until they write.
    """

    def __init__(
        self,
        lanes: int,
        tensors: Mapping[str, Tensor] | None = None,
        whole: "State | None" = None,
        rows: slice = slice(None),
    ) -> None:
        self.lanes = lanes
        self.tensors = dict(tensors or {})
        self.whole, self.rows = whole, rows

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def __setitem__(self, name: str, tensor: Tensor) -> None:
        if self.whole is not None:
            tensor = self.whole.written(name, tensor, self.rows)
        self.tensors[name] = tensor

    def __delitem__(self, name: str) -> None:
        del self.tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def items(self) -> ItemsView[str, Tensor]:
        return self.tensors.items()  # much quicker than what a mapping has by itself

    def values(self) -> ValuesView[Tensor]:
        return self.tensors.values()

    def written(self, name: str, tensor: Tensor, rows: slice) -> Tensor:
        """A piece's tensor as it lies in some rows of the whole; where there was none, room is made for all."""
        with GROWS:
            old = self.tensors.get(name)
            if old is None or (old.shape[1:], old.dtype) != (tensor.shape[1:], tensor.dtype):
                self[name] = tensor.new_zeros(self.lanes, *tensor.shape[1:])
        found = rows_of(self[name], rows)
        found.copy_(tensor)
        return found

    def put(self, name: str, tensor: Tensor, rows: Sequence[int]) -> None:
        """Write a tensor of some lanes into their rows; where there was none, room is made for all."""
        old = self.tensors.get(name)
        if old is None or (old.shape[1:], old.dtype) != (tensor.shape[1:], tensor.dtype):
            self[name] = tensor.new_zeros(self.lanes, *tensor.shape[1:])
        self[name][torch.tensor(rows, device=tensor.device)] = tensor

    def cut(self, rows: slice) -> "State":
        """A view of some lanes that lie together, or equally far apart."""
        views = {name: rows_of(tensor, rows) for name, tensor in self.tensors.items()}
        return State(len(range(*rows.indices(self.lanes))), views, self, rows)

    def take(self, rows: Sequence[int]) -> "State":
        """A copy of some rows."""
        index = torch.tensor(rows, dtype=torch.int64)
        return State(len(rows), {name: tensor[index.to(tensor.device)] for name, tensor in self.tensors.items()})


def rows_of(tensor: Tensor, rows: slice) -> Tensor:
    """Some rows as `data`, because autograd would take what another thread writes to its rows for a change of these."""
    return tensor.data[rows]


@contextmanager
def guarded(stack: "Stack", who: str, owners: Sequence[str]) -> Iterator[None]:
    """Raise if anything is written inside but the state of `owners`. Every write counts a tensor's version up, or puts
    another tensor in its place."""

    def seen() -> dict[tuple[str, str], tuple[Tensor, int]]:
        return {
            (owner, name): (tensor, tensor._version)
            for owner, state in stack.states.items()
            if owner not in owners
            for name, tensor in state.items()
        }

    before = seen()
    yield
    after = seen()
    for owner, name in sorted(before.keys() | after.keys()):
        old, new = before.get((owner, name)), after.get((owner, name))
        if old is None or new is None or old[0] is not new[0] or old[1] != new[1]:
            raise SettingsError(
                f"{who} wrote `{name}` in the state of `{owner}`, which is not its own; keep state under its own name, "
                f'or list "{owner}" in its `writes` and write through the functions of that owner'
            )
