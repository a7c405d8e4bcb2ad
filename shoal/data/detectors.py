"""Detectors of drift: what says of a stream of numbers, one after the other, that it has changed."""

from typing import Any, Protocol

from shoal.doors import Table
from shoal.errors import SettingsError
from shoal.own_code import running

INSTALL = 'pip install "shoal[drift]"'


class Detector(Protocol):
    """What a detector is, as in the package river: it is told numbers, between 0 and 1 here, and says whether the last
    one has shown a change."""

    drift_detected: bool

    def update(self, x: float) -> Any: ...


def river(name: str, **said: Any) -> Detector:
    """A detector of the package river, by the name of its class."""
    try:
        from river import drift  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except Exception as error:  # river 0.26 fails with a TypeError in Python 3.11
        raise SettingsError(
            f"detectors of drift come with the package river, and it cannot be imported ({error}): {INSTALL}"
        ) from None
    made: Detector = getattr(drift, name)(**said)
    return made


def adwin() -> Detector:
    """Two windows of adaptive size whose means differ (ADWIN; Bifet & Gavaldà 2007)."""
    return river("ADWIN", clock=4)


class PageHinkley:
    """A sum of how far numbers lie above their mean has risen from its least (Page 1954; Hinkley 1971)."""

    def __init__(self, delta: float = 0.05, threshold: float = 5.0) -> None:
        self.delta, self.threshold = delta, threshold  # what is no change, and how much of more is one
        self.count, self.mean, self.sum, self.least, self.drift_detected = 0, 0.0, 0.0, 0.0, False

    def update(self, x: float) -> None:
        self.count += 1
        self.mean += (x - self.mean) / self.count
        self.sum += x - self.mean - self.delta
        self.least = min(self.least, self.sum)
        self.drift_detected = self.sum - self.least > self.threshold


def kswin() -> Detector:
    """The last 30 of 100 numbers are of another distribution (KSWIN; Raab et al. 2020)."""
    return river("KSWIN", alpha=0.0001, window_size=100, stat_size=30, seed=0)


DETECTORS: Table[Any] = Table(
    "detector", {"adwin": adwin, "page-hinkley": PageHinkley, "kswin": kswin}, "shoal.detectors", callable
)


def made(name: str) -> Detector:
    """A fresh detector, by its name."""
    make = DETECTORS.find(name)
    with running(make, f"the detector `{name}`"):
        found: Detector = make()
        if not hasattr(found, "update") or not hasattr(found, "drift_detected"):
            raise TypeError(f"it makes {found!r:.80}, and something with `update(x)` and `drift_detected` is needed")
    return found
