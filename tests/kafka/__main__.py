"""`python -m tests.kafka`: play scripts, of the seeds from `--seed` on, several at a time.

A difference names its seed, to be played alone. A script that the machine disturbed is played once more; the run fails
if more than MOST_DISTURBED of the scripts stay disturbed.
"""

import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import click

from sharequeue.stack.stack import temporary_stack
from tests.kafka.kafka import Kafka, Player, make
from tests.kafka.playing import DISTURBED, FAILED, Run
from tests.kafka.same_topic import same_topics
from tests.kafka.sharequeue import SETTINGS, Sharequeue
from tests.kafka.sides import Sides
from tests.kafka_log.brokers import Brokers

MOST_DISTURBED: Final = 0.05


@contextmanager
def topics_of_each(folder: Path, players: int) -> Iterator[list[Sides]]:
    """Both sides of each player, with topics of their own."""
    make()
    with (
        closing(Kafka(folder / "kafka")) as kafka,
        temporary_stack(folder / "stack", settings=SETTINGS) as stack,
    ):
        yield [Sides(Player(kafka.port), Sharequeue(stack.url)) for _ in range(players)]


@contextmanager
def topics_of_both(folder: Path, players: int) -> Iterator[list[Sides]]:
    """Both sides of each player, with the same topics: the record log is Kafka."""
    with closing(Brokers(folder / "brokers")) as brokers, same_topics(brokers, folder, players) as sides:
        yield sides


@click.command()
@click.option("--scripts", default=60, show_default=True, help="How many scripts to play.")
@click.option("--seed", default=1, show_default=True, help="The seed of the first one.")
@click.option("--players", default=16, show_default=True, help="How many scripts to play at a time.")
@click.option("--show", is_flag=True, help="Print the steps of each script.")
@click.option("--record-log", type=click.Choice(["postgres", "kafka"]), default="postgres", show_default=True)
def main(scripts: int, seed: int, players: int, show: bool, record_log: str) -> None:
    """Compare sharequeue with a Kafka broker."""
    players = min(players, scripts)
    topics = topics_of_each if record_log == "postgres" else topics_of_both
    with tempfile.TemporaryDirectory(prefix="sharequeue-kafka-") as folder:
        Path(folder).chmod(0o755)  # another user runs PostgreSQL there
        with topics(Path(folder), players) as sides, ThreadPoolExecutor(players) as pool:
            print(f"kafka-test: {scripts} scripts from seed {seed} on, {players} at a time", flush=True)
            run = Run(range(seed, seed + scripts), record_log, show)
            for _ in pool.map(run.play, sides):
                """A player has played all that it took."""
    run.show()
    disturbed = run.outcomes.count(DISTURBED)
    sys.exit(FAILED in run.outcomes or disturbed > MOST_DISTURBED * scripts)


if __name__ == "__main__":
    main()
