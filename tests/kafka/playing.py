"""Several players take the scripts of a run, one after another, and say what differed."""

import time
from collections.abc import Sequence
from contextlib import closing
from typing import Final

import httpx

from tests.kafka.comparison import Comparison, Difference, Disturbed
from tests.kafka.kafka import KafkaError
from tests.kafka.scripts import PRODUCERS, draw
from tests.kafka.sides import Sides

TOLD_EACH: Final = 20
"""Scripts between two lines that say how far it is."""
PASSED, FAILED, DISTURBED = "passed", "failed", "disturbed"
FAULTS: Final = (Difference, KafkaError, AssertionError, httpx.HTTPError)


class Run:
    """The scripts of `seeds`, which players take one after another."""

    def __init__(self, seeds: Sequence[int], record_log: str, show: bool = False) -> None:
        self.outcomes: list[str] = []
        self.played: list[Comparison] = []
        """With those that were disturbed and played again."""
        self._seeds = iter(seeds)
        self._record_log = record_log
        self._show = show
        self._began = time.monotonic()

    def play(self, sides: Sides) -> None:
        """Be one of the players, until no script is left."""
        with closing(sides):
            for seed in self._seeds:
                outcome = self._play(sides, seed, f"script-{seed}")
                if outcome == DISTURBED:
                    outcome = self._play(sides, seed, f"script-{seed}-again")
                self.outcomes.append(outcome)
                if len(self.outcomes) % TOLD_EACH == 0:
                    self._tell(f"{len(self.outcomes)} scripts")

    def _play(self, sides: Sides, seed: int, name: str) -> str:
        script = draw(seed, crashes=self._record_log == "kafka")
        if self._show:
            print(*script.steps, sep="\n", flush=True)
        comparison = Comparison(*sides, script)
        outcome = PASSED
        try:
            comparison.play(name)
        except Disturbed as fault:
            outcome = DISTURBED
            self._tell(f"seed {seed} was disturbed: {fault}")
        except FAULTS as fault:
            outcome = FAILED
            alone = f"python -m tests.kafka --record-log {self._record_log} --scripts 1 --seed {seed}"
            self._tell(f"seed {seed}: {fault}; alone: {alone}")
        self.played.append(comparison)
        if outcome != PASSED:
            for producer in PRODUCERS:  # end what is open
                for side in sides:
                    side.replace(producer)
        return outcome

    def _tell(self, what: str) -> None:
        print(f"kafka-test: after {time.monotonic() - self._began:.0f} s: {what}", flush=True)

    def show(self) -> None:
        """Print what was compared."""
        records, deliveries, exact, open_lags, expired = (
            sum(getattr(comparison, name) for comparison in self.played)
            for name in ("records", "deliveries", "exact", "open_lags", "expired")
        )
        print(
            f"{records} records, {deliveries} deliveries, {exact} equal lags, {open_lags} of them above 0, {expired} expired"
        )
        counts = ", ".join(f"{self.outcomes.count(outcome)} {outcome}" for outcome in (PASSED, FAILED, DISTURBED))
        self._tell(counts)
