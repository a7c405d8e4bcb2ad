"""Scaling: what an agent's own training rows say, and nothing else."""

import numpy as np
import pytest

import shoal
from shoal.agents.worlds import worlds
from shoal.data.scaling import scaling
from shoal.data.sources import bring
from shoal.errors import UserError
from shoal.settings.groups import Settings

AGENT = np.arange(120) % 2
X = np.random.default_rng(0).normal(size=(120, 3)) * [1, 10, 0] + 100 * AGENT[:, None]


def test_columns_get_mean_zero_and_spread_one_over_the_training_rows_of_an_agent() -> None:
    found = shoal.Data.from_arrays(X, np.arange(120) // 2 % 2, agent=AGENT)
    settings = Settings(dataset=bring(found))
    (world,) = worlds(settings, found.bank)
    for stream, scale in zip(world.streams, world.scales, strict=True):
        assert scale is not None
        rows = np.concatenate([task.train for task in stream])
        seen = scale.apply(found.bank.images[rows])
        np.testing.assert_allclose(seen.mean(0), 0, atol=1e-5)
        np.testing.assert_allclose(seen.std(0), [1, 1, 0], atol=1e-5)
        assert scale.about()["rows"] == len(rows)
        assert len(scale.about()["mean"]) == 3


def test_test_rows_have_no_say() -> None:
    bank = shoal.Data.from_arrays(X, AGENT).bank
    with pytest.raises(UserError, match="test rows must not say how data is scaled"):
        scaling(bank, np.arange(len(bank)))
    rows = np.flatnonzero(~bank.test)
    changed = shoal.Data.from_arrays(np.where(bank.test[:, None], 1e6, X), AGENT, test=bank.test).bank
    assert scaling(bank, rows).about() == scaling(changed, rows).about()


def test_series_are_scaled_by_channel_and_bytes_stay_as_they_are() -> None:
    series = np.random.default_rng(0).normal(size=(60, 2, 9)) * 3 + 1
    bank = shoal.Data.from_arrays(series, np.arange(60) % 2).bank
    rows = np.flatnonzero(~bank.test)
    seen = scaling(bank, rows).apply(bank.images[rows])
    np.testing.assert_allclose(seen.mean((0, 2)), 0, atol=1e-5)
    pictures = shoal.Data.from_arrays(np.full((60, 4, 4), 7, np.uint8), np.arange(60) % 2).bank
    same = scaling(pictures, rows)
    assert same.about() == {"scale": "peak"}
    assert same.apply(pictures.images) is pictures.images
