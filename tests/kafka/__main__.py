"""`python -m tests.kafka`: play scripts, of the seeds from `--seed` on.
A difference names its seed, to be played alone."""

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import click

from sharequeue.stack.stack import temporary_stack
from tests.kafka.comparison import Comparison, Difference
from tests.kafka.kafka import Kafka, KafkaError, make
from tests.kafka.same_topic import CRASHES, same_topics
from tests.kafka.scripts import PRODUCERS, draw
from tests.kafka.sharequeue import SETTINGS, Sharequeue
from tests.kafka_log.brokers import Brokers

TOLD_EACH: Final = 50
"""Scripts between two lines that say how far it is."""


@contextmanager
def topics_of_each(folder: Path) -> Iterator[tuple[Kafka, Sharequeue]]:
    """Both sides, with topics of their own."""
    make()
    with (
        closing(Kafka(folder / "kafka")) as kafka,
        temporary_stack(folder / "stack", settings=SETTINGS) as stack,
        closing(Sharequeue(stack.url)) as sharequeue,
    ):
        yield kafka, sharequeue


@contextmanager
def topics_of_both(folder: Path) -> Iterator[tuple[Kafka, Sharequeue]]:
    """Both sides, with the same topics: the record log is Kafka."""
    with closing(Brokers(folder / "brokers")) as brokers, same_topics(brokers, folder) as sides:
        yield sides


@click.command()
@click.option("--scripts", default=60, show_default=True, help="How many scripts to play.")
@click.option("--seed", default=1, show_default=True, help="The seed of the first one.")
@click.option("--show", is_flag=True, help="Print the steps of each script.")
@click.option("--record-log", type=click.Choice(["postgres", "kafka"]), default="postgres", show_default=True)
def main(scripts: int, seed: int, show: bool, record_log: str) -> None:
    """Compare sharequeue with a Kafka broker."""
    began = time.monotonic()
    failed, totals = 0, [0] * 5
    sides, crashes = (topics_of_each, 0.0) if record_log == "postgres" else (topics_of_both, CRASHES)
    with tempfile.TemporaryDirectory(prefix="sharequeue-kafka-") as folder:
        Path(folder).chmod(0o755)  # another user runs PostgreSQL there
        with sides(Path(folder)) as (kafka, sharequeue):
            print(f"kafka-test: Kafka {kafka.version}, {scripts} scripts from seed {seed} on", flush=True)
            for number in range(seed, seed + scripts):
                script = draw(number, crashes)
                if show:
                    print(*script.steps, sep="\n", flush=True)
                comparison = Comparison(kafka, sharequeue, script)
                try:
                    comparison.play(number)
                except (Difference, KafkaError, AssertionError) as fault:
                    failed += 1
                    print(f"kafka-test: seed {number}: {fault}", flush=True)
                    for producer in PRODUCERS:  # end what is open
                        kafka.replace(producer)
                        sharequeue.replace(producer)
                parts = (
                    comparison.records,
                    comparison.deliveries,
                    comparison.exact,
                    comparison.open_lags,
                    comparison.expired,
                )
                totals = [total + part for total, part in zip(totals, parts, strict=True)]
                if (played := number - seed + 1) % TOLD_EACH == 0:
                    print(f"kafka-test: {played} scripts after {time.monotonic() - began:.0f} s", flush=True)
    records, deliveries, exact, open_lags, expired = totals
    print(
        f"{records} records, {deliveries} deliveries, {exact} equal lags, {open_lags} of them above 0, {expired} expired"
    )
    print(f"{time.monotonic() - began:.0f} s: {scripts - failed} passed, {failed} failed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
