"""A journal that is pruned keeps who wrote what when, and replay begins from the checkpoint that is kept."""

from pathlib import Path

import pytest

from shoal.errors import UserError
from shoal.live.life import Life
from shoal.live.pruning import Pruned, prune
from shoal.live.replaying import replay
from shoal.live.store import Store
from tests.live.houses import FREE, built, lived, small


@pytest.mark.parametrize("clock", [FREE, {}], ids=["free", "lock-step"])
def test_an_agent_that_is_pruned_at_work_goes_on_and_can_be_replayed(tmp_path: Path, clock: dict[str, object]) -> None:
    homes = built(small("recv", "fedavg", clock=clock), tmp_path)
    pruned: list[Pruned] = []
    crashed: set[tuple[int, int]] = set()

    def watch(life: Life) -> bool:
        """Prune agent 0 after each of its tasks; then it crashes."""
        point = life.stack.task, life.stack.epoch
        if life.home.agent or point[1] != 2 or point in crashed:
            return False
        life.save([life.stack])
        pruned.append(prune(life.home.folder))
        crashed.add(point)
        return True

    lived(homes, crash=watch)
    assert len(pruned) == 3
    assert sum(one.letters for one in pruned) > 5
    assert sum(one.bytes for one in pruned) > 1000
    store = Store(homes[0].letters)
    empty = store.rows("SELECT COUNT(*) FROM inbox WHERE body = x''")[0][0]
    assert len(store.slips()) > empty >= sum(one.letters for one in pruned)
    store.close()
    again = replay(homes[0].folder)
    assert again.begins == pruned[-1][:2]
    assert sum(again.letters.values()) > 0
    assert sum(replay(homes[1].folder).letters.values()) > sum(again.letters.values())


def test_who_has_saved_nothing_is_not_pruned(tmp_path: Path) -> None:
    home = built(small("recv"), tmp_path)[0]
    with pytest.raises(UserError, match="no checkpoint yet"):
        prune(home.folder)
