"""Ten million small records through a group and into an archive: memory is flat, and so is the cost.

`RECORDS=1000000 pytest -m soak tests/pipeline/test_flat_memory.py` runs it at another scale.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from deltalake import DeltaTable

from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway, good
from tests.pipeline.conftest import Pipeline, wait_for
from tests.pipeline.consumption import Processes, Sample, Step, complaints, middle, sampled, steps_of, table
from tests.pipeline.driver import TOO_BUSY
from tests.pipeline.jobs import Jobs

RECORDS = int(os.environ.get("RECORDS") or 10_000_000)
PARTITIONS = 4
REQUEST = 10_000


def produce(gateway: Gateway, topic: str, count: int) -> None:
    """Values of 100 bytes, as JSON, to all partitions."""

    def send(first: int) -> None:
        partition = first // REQUEST % PARTITIONS
        records = [{"value": f"{number:098d}", "partition": partition} for number in range(first, first + REQUEST)]
        good(gateway.http.post(f"/v1/topics/{topic}/records", json={"records": records}))

    gateway.create_topic(topic, PARTITIONS)
    with ThreadPoolExecutor(2) as executor:
        list(executor.map(send, range(0, count, REQUEST)))


def read(pipeline: Pipeline, stack: Stack, gateway: Gateway, topic: str, count: int) -> list[Sample]:
    """Read a topic for the group of its name."""
    rows = pipeline.stream(topics=topic, group=topic, maxRecordsPerTrigger=min(100_000, count // 50))
    writer = rows.writeStream.format("noop")
    writer = writer.option("checkpointLocation", str(pipeline.directory / topic)).trigger(availableNow=True)
    gateway.reset(topic, "earliest", topic)

    def accepted() -> int:
        return count - sum(lag for _, lag in gateway.offsets(topic).values())

    while True:
        with sampled(Processes(stack), accepted) as samples:
            query = pipeline.started(writer.start())
            wait_for(lambda query=query: not query.isActive, "the query ends", 7200)
            fault = query.exception()
            if fault is None:
                wait_for(lambda: accepted() == count, "the last batch is accepted")
        if fault is None:
            return samples
        assert TOO_BUSY in str(fault)
        assert not samples[-1].records, "it read something before Spark ended it"


def archive(jobs: Jobs, stack: Stack, topic: str, root: Path, count: int) -> list[Sample]:
    def archived() -> int:
        return DeltaTable(root).count() if DeltaTable.is_deltatable(str(root)) else 0

    with sampled(Processes(stack), archived) as samples:
        done = jobs.done("archive", topic, "--to", root, "--segment-records", min(100_000, count // 100))
    assert done["records"] == count
    return samples


@pytest.mark.soak
def test_the_last_of_many_records_cost_what_the_first_did(
    pipeline: Pipeline, stack: Stack, gateway: Gateway, jobs: Jobs, name: str, tmp_path: Path
) -> None:
    """A short run comes first: classes are loaded, and code is compiled, before anything is measured. A tenth of an
    archive takes 2 s, too short for one run: the speed of a machine changes by as much as a fifth in that time."""
    produce(gateway, f"{name}-first", 100_000)
    read(pipeline, stack, gateway, f"{name}-first", 100_000)
    produce(gateway, name, RECORDS)
    of_group = read(pipeline, stack, gateway, name, RECORDS)
    archives = [archive(jobs, stack, name, tmp_path / f"archive-{number}", RECORDS) for number in range(3)]
    steps = {
        "group": steps_of(of_group, RECORDS),
        "archive": middle([steps_of(samples, RECORDS) for samples in archives]),
    }
    for what, found in steps.items():
        print(table(what, RECORDS, found))
    assert {what: complaints(found) for what, found in steps.items()} == {"group": [], "archive": []}


def costs(tenths: Sequence[tuple[float, int]]) -> list[Step]:
    return [Step(1000, cpu, {"gateway": mib << 20}) for cpu, mib in tenths]


@pytest.mark.parametrize(
    ("tenths", "found"),
    [
        ([(10.0, 250)] * 10, []),
        ([(10.0, 100 + 50 * min(n, 3)) for n in range(10)], []),
        ([(10.0 + n * 0.1, 250) for n in range(10)], []),
        ([(12.0 if n in (2, 9) else 10.0, 250) for n in range(10)], []),
        (
            [(10.0 + n * 0.2, 250) for n in range(10)],
            ["CPU: one of the last tenths took 11.6 s, one of the first 10.2 s"],
        ),
        ([(10.0, 200 + 5 * n) for n in range(10)], ["gateway: 230 MiB at most before the last third, 245 in it"]),
    ],
    ids=["flat", "caches fill", "a little more CPU", "single tenths", "more CPU", "more memory"],
)
def test_what_is_flat(tenths: list[tuple[float, int]], found: list[str]) -> None:
    assert complaints(costs(tenths)) == found


def test_several_runs_count_as_the_middle_one_and_as_the_largest() -> None:
    runs = [costs([(cpu, 100 + number)] * 2) for number, cpu in enumerate((2.2, 1.8, 1.9))]
    assert middle(runs) == [Step(1000, 1.9, {"gateway": 102 << 20})] * 2


def test_the_cost_of_a_tenth_is_for_a_tenth() -> None:
    """Commits come in lumps of 150. The first tenth begins with the first commit; memory is the highest seen."""
    samples = [Sample(0, 5.0, {"Java": 9})]
    samples += [Sample(150 * (n // 2), 10.0 + n * 1.5, {"Java": n}) for n in range(2, 42)]
    steps = steps_of([*samples, Sample(3000, 99.0, {})], 3000)
    assert [step.records for step in steps] == [150, *[300] * 9]
    assert {round(step.cpu, 6) for step in steps} == {6.0}
    assert [step.memory["Java"] for step in steps] == [4 * n for n in range(1, 11)]
