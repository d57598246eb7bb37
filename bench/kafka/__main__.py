"""`python -m bench.kafka`: W2 here beside a Kafka broker with its own producer and share consumer, in turns.

Both deliver and acknowledge records while they are produced, in polls of 100. Kafka's producer chooses its batches, and
its broker forces nothing to the disk; here each commit is on disk. Maven fetches Kafka, as for `make kafka-test`.
"""

import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Final

import click
import uvloop

from bench.queues import ShareQueue, new_name
from bench.workloads import Values, end_to_end, random_values
from sharequeue.stack.stack import temporary_stack
from tests.kafka import kafka

LENGTH: Final = 98
PROGRAM: Final = Path(__file__).with_name("ShareConsumers.java")
START: Final = {"share.auto.offset.reset": "earliest"}


def kafkas(broker: kafka.Kafka, records: int, commit: str, produced: str = "beside") -> tuple[float, float]:
    """Acknowledged records per second of Kafka's share consumer, and the CPU of its clients for a record, in µs.

    `produced`: as the program's last argument.
    """
    topic = new_name()
    broker.create_topic(topic, 1)
    broker.configure(topic, START)
    classes = f"{kafka.MADE}/lib/*"
    arguments = (broker.address, topic, str(records), str(LENGTH), commit, produced)
    options = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", classes, str(PROGRAM))
    done = subprocess.run(("java", *options, *arguments), check=True, text=True, stdout=subprocess.PIPE)
    rate, cpu_us = map(float, done.stdout.split())
    return rate, cpu_us


async def ours(url: str, values: Values, records: int) -> float:
    """W2."""
    name = new_name()
    await end_to_end(lambda: ShareQueue.connect(url, name), values, 500, batch=100)
    return await end_to_end(lambda: ShareQueue.connect(url, name), values, records, batch=100)


@click.command()
@click.option("--rounds", default=5, show_default=True)
@click.option("--records", default=100_000, show_default=True)
def main(rounds: int, records: int) -> None:
    """Print medians of acknowledged records per second, and the ratio of sharequeue to Kafka."""
    kafka.make()
    values = random_values(LENGTH)
    found: dict[str, list[float]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="sharequeue-bench-", dir="/var/tmp") as home,
        temporary_stack(Path(home) / "stack") as stack,
    ):
        broker = kafka.Kafka(Path(home) / "kafka")
        try:
            for number in range(rounds):
                rates = {"sharequeue": uvloop.run(ours(stack.url, values, records))}
                rates |= {f"Kafka, commit {commit}": kafkas(broker, records, commit)[0] for commit in ("sync", "async")}
                for name, rate in rates.items():
                    found.setdefault(name, []).append(rate)
                    click.echo(f"round {number + 1}: {name}: {rate:,.0f}/s", err=True)
        finally:
            broker.close()
    click.echo("| | records/s | sharequeue / Kafka |\n| --- | ---: | ---: |")
    medians = {name: statistics.median(rates) for name, rates in found.items()}
    for name, rate in medians.items():
        click.echo(f"| {name} | {rate:,.0f} | {medians['sharequeue'] / rate:.2f} |")


if __name__ == "__main__":
    main()
