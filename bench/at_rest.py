"""`python -m bench.at_rest`: the memory of `sharequeue up` at rest, and W2 beside an open transaction.

The memory is PSS: pages that several processes share are counted once. An open transaction keeps PostgreSQL from
removing what updates and deletes leave behind. W2 runs for a while without it, while it is open, and after its end.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import asyncpg
import click
import psutil
import uvloop

from bench.queues import ShareQueue, new_name
from bench.workloads import end_to_end, random_values
from sharequeue.stack.stack import temporary_stack

REST_S: Final = 20
VALUES: Final = random_values(98)
RECORDS: Final = 50_000
PORTS: Final = ("--gateway-port", "0", "--coordinator-port", "0", "--share-coordinator-port", "0")


def memory_at_rest(data_dir: Path) -> dict[str, float]:
    """MiB of PSS of the processes of one `sharequeue up`, by program."""
    command = [str(Path(sys.executable).with_name("sharequeue")), "up", "--data-dir", str(data_dir), *PORTS]
    found: dict[str, float] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as up:
        assert up.stdout is not None
        up.stdout.readline()  # it is ready
        time.sleep(REST_S)
        for process in (psutil.Process(up.pid), *psutil.Process(up.pid).children(recursive=True)):
            name = "services" if "sharequeue_all_in_one" in process.cmdline() else process.name()
            found[name] = found.get(name, 0.0) + process.memory_full_info().pss / (1 << 20)
        up.terminate()
    return found


async def rates(url: str, seconds: float) -> list[float]:
    """Records per second of W2, again and again for so long."""
    topic, until, found = new_name(), time.monotonic() + seconds, []
    while time.monotonic() < until:
        found.append(await end_to_end(lambda: ShareQueue.connect(url, topic), VALUES, RECORDS, batch=100))
    return found


async def beside_open_transaction(url: str, postgres_url: str, minutes: float) -> dict[str, float]:
    """Medians of W2's rate: for a minute before, for so many minutes while a transaction is open, and after it."""
    await rates(url, 20)
    found = {"before": await rates(url, 60)}
    connection = await asyncpg.connect(postgres_url)
    async with connection.transaction(isolation="repeatable_read"):
        await connection.fetchval("SELECT txid_current()")
        while_open = await rates(url, 60 * minutes)
    await connection.close()
    tenth = max(1, len(while_open) // 10)
    found |= {
        "while it is open": while_open,
        "the last tenth of that": while_open[-tenth:],
        "after": await rates(url, 60),
    }
    return {name: statistics.median(each) for name, each in found.items()}


@click.command()
@click.option("--minutes", default=10.0, show_default=True, help="of the open transaction; 0: memory alone")
def main(minutes: float) -> None:
    """Print the memory at rest, and W2 beside an open transaction."""
    with tempfile.TemporaryDirectory(prefix="sharequeue-bench-", dir="/var/tmp") as home:
        memory = memory_at_rest(Path(home) / "up")
        click.echo(
            " | ".join(f"{name} {mib:.0f}" for name, mib in {**memory, "together": sum(memory.values())}.items())
        )
        if minutes:
            with temporary_stack(Path(home) / "stack", one_process=True) as stack:
                assert stack.postgres is not None
                found = uvloop.run(beside_open_transaction(stack.url, stack.postgres.url, minutes))
            for name, rate in found.items():
                click.echo(f"{name}: {rate:,.0f}/s ({rate / found['before']:.2f})")


if __name__ == "__main__":
    main()
