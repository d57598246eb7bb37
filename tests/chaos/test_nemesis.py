"""A nemesis breaks one broker at a time."""

import asyncio
from typing import cast

from sharequeue.stack.stack import Stack
from tests.chaos.history import History
from tests.chaos.nemesis import BROKER, Nemesis, Step
from tests.kafka_log.brokers import Brokers


class Away(Brokers):
    """Brokers without processes. `most` is how many were away at once."""

    def __init__(self) -> None:
        self._away: set[int] = set()
        self.most = 0

    def pause(self, node: int) -> None:
        self._away.add(node)
        self.most = max(self.most, len(self._away))

    def resume(self, node: int) -> None:
        self._away.remove(node)

    def kill(self, node: int) -> None:
        self.pause(node)

    def start(self, node: int, wait: bool = True) -> None:
        self.resume(node)


def test_one_broker_is_away_at_a_time() -> None:
    """Also when one takes longer to start than planned: a majority of three serves."""
    brokers, history = Away(), History(limit=0, lock_s=0, groups=())
    steps = [Step(0, f"{BROKER}1", "kill", 0.01), Step(0, f"{BROKER}2", "pause", 0), Step(0, f"{BROKER}1", "pause", 0)]
    asyncio.run(Nemesis(cast("Stack", None), history, brokers).run(steps))
    assert (brokers.most, len(history.troubles)) == (1, 1)
