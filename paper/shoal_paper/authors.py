"""The draw `authors`: images and classes as the authors' code drew them, number by number (docs/protocol.md, section
1)."""

from collections.abc import Callable
from functools import cache

import numpy as np

from shoal.data.draws import Draw, Lot, Pool, source_of
from shoal.data.tasks import JOINT, Lane


def by_authors(pool: Pool) -> Callable[[Lane], Lot]:
    """One agent after the other from one stream of numbers, the common start's last."""

    @cache
    def seed_lots(seed: int) -> dict[Lane, Lot]:
        rng = np.random.RandomState(seed)
        last = [JOINT] if pool.tasks.common and len(pool.bank.sources) == 1 else []
        found = {}
        for lane in (Lane(seed, agent) for agent in [*range(pool.agents), *last]):
            train, validation = pool.cut(rng.permutation(pool.rows(source_of(pool.bank, lane))))
            found[lane] = Lot(train, validation, pool.classes(lane, rng))
        return found

    return lambda lane: seed_lots(lane.seed)[lane]


AUTHORS = Draw("as the authors' code drew them, number by number", by_authors, together=True)
