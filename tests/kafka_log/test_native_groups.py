"""The same topics read by native share groups and by ours. `python -m tests.kafka --record-log kafka` plays more."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.kafka.comparison import Taken
from tests.kafka.playing import FAILED, Run
from tests.kafka.same_topic import SameTopic, same_topics
from tests.kafka.scripts import Expire, Restart, draw
from tests.kafka_log.brokers import Brokers

SEEDS = (1, 2, 6, 12)


def test_a_count_that_does_not_rise_is_of_a_leader_that_lost_a_lock() -> None:
    taken = Taken(SameTopic("http://127.0.0.1:1"))
    counts = taken.counts["one"][0, 7, "value"]
    for count, lost in ((1, False), (2, False), (2, True)):
        counts.append(count)
        assert taken.lost_locks() is lost


def test_a_native_group_and_ours_deliver_the_same(
    kafka: Brokers, tmp_path: Path, database_url: str, new_redis: Callable[[], str]
) -> None:
    steps = {type(step) for seed in SEEDS for step in draw(seed, crashes=True).steps}
    assert {Expire, Restart} <= steps
    run = Run(SEEDS, "kafka")
    with (
        same_topics(kafka, tmp_path, len(SEEDS), postgres_url=database_url, redis_url=new_redis()) as sides,
        ThreadPoolExecutor(len(SEEDS)) as pool,
    ):
        list(pool.map(run.play, sides))
    assert len(run.outcomes) == len(SEEDS)
    assert FAILED not in run.outcomes
    assert sum(comparison.exact for comparison in run.played) > 0
