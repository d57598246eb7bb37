"""The same topics read by native share groups and by ours. `python -m tests.kafka --record-log kafka` plays more."""

from collections.abc import Callable
from pathlib import Path

from tests.kafka.comparison import Comparison
from tests.kafka.same_topic import CRASHES, same_topics
from tests.kafka.scripts import Expire, Restart, draw
from tests.kafka_log.brokers import Brokers

SEEDS = (1, 2, 6, 14, 16)


def test_a_native_group_and_ours_deliver_the_same(
    kafka: Brokers, tmp_path: Path, database_url: str, new_redis: Callable[[], str]
) -> None:
    scripts = {seed: draw(seed, CRASHES) for seed in SEEDS}
    assert {Expire, Restart} <= {type(step) for script in scripts.values() for step in script.steps}
    with same_topics(kafka, tmp_path, postgres_url=database_url, redis_url=new_redis()) as (native, ours):
        for seed, script in scripts.items():
            comparison = Comparison(native, ours, script)
            comparison.play(seed)
            assert comparison.exact > 0
