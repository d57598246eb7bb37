"""Records of an Arrow stream: the bytes that the same records have in JSON, and what is refused."""

import os
import struct
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sharequeue_gateway.producing import arrow_columns
from sharequeue_gateway.producing.arrow_tails import ArrowRecords, arrow_records, text_json
from sharequeue_gateway.producing.partitioner import key_hash
from sharequeue_gateway.producing.producer import choose
from sharequeue_gateway.producing.record_tails import record_tails

from sharequeue.protocol.messages.records import ProduceRequest
from sharequeue_http.forms.errors import ApiError, InvalidRequest
from tests.examples import examples

NOW_MS = 1_800_000_000_000
DEPTH = 64
SCHEMA = pa.schema(
    {
        "key": pa.string(),
        "value": pa.string(),
        "value_is_json": pa.bool_(),
        "headers": pa.map_(pa.string(), pa.string()),
        "partition": pa.int32(),
        "timestamp_ms": pa.int64(),
    }
)


def stream(*batches: pa.RecordBatch, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    written: bytes = sink.getvalue().to_pybytes()
    return written


def body(**columns: Any) -> bytes:
    return stream(pa.record_batch({name: pa.array(*each) for name, each in columns.items()}))


def values(*texts: str) -> bytes:
    return body(value=(texts, pa.string()))


def read(body: bytes) -> ArrowRecords:
    return arrow_records(arrow_columns.look_at(body), NOW_MS, DEPTH)


def refused(body: bytes, status: int, words: str) -> ApiError:
    with pytest.raises(ApiError) as found:
        read(body)
    assert found.value.status == status, found.value
    assert words in str(found.value)
    return found.value


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ["plain", '"', "\\", "\x1f", "\x7f", "ä😀"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=4,
)


COMPRESSION = st.sampled_from([None, "lz4"])


@st.composite
def rows(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """The bodies of produceArrow, in batches, and of produceRecords with the same records."""
    count = draw(st.integers(1, 6))

    def column(entries: Any) -> list[Any]:
        return draw(st.lists(entries, min_size=count, max_size=count))

    columns: dict[str, Any] = {}
    records: list[dict[str, Any]] = [{} for _ in range(count)]
    text_keys, text_values = draw(st.booleans()), draw(st.booleans())
    simple = draw(st.booleans())
    if draw(st.booleans()):
        keys = column((st.just("k") | TEXTS) if simple else (st.none() | TEXTS))
        columns["key"] = pa.array([None if key is None else key.encode() for key in keys], pa.binary())
        if text_keys:
            columns["key"] = columns["key"].cast(draw(st.sampled_from([pa.string(), pa.large_string()])))
        for record, key in zip(records, keys, strict=True):
            if key is not None:
                record["key" if text_keys else "key_base64"] = key if text_keys else key.encode()
    flags = [False] * count if simple else column(st.booleans())
    if any(flags) or draw(st.booleans()):
        columns["value_is_json"] = pa.array(flags, pa.bool_())
    given_values: list[bytes | None] = []
    for record, flag in zip(records, flags, strict=True):
        value = draw(JSON if flag else TEXTS if simple else st.none() | TEXTS)
        if flag:
            text = msgspec.json.encode(value)
            given_values.append(draw(st.sampled_from([b"", b" ", b"\n"])) + text + draw(st.sampled_from([b"", b"\t "])))
            record["value"] = msgspec.Raw(text)
        elif value is None:
            given_values.append(None)
            record["tombstone"] = True
        else:
            given_values.append(value.encode())
            record["value" if text_values else "value_base64"] = value if text_values else value.encode()
    columns["value"] = pa.array(given_values, pa.binary()).cast(pa.string() if text_values else pa.large_binary())
    if not simple and draw(st.booleans()):
        headers = column(st.none() | st.dictionaries(TEXTS, TEXTS, max_size=2))
        columns["headers"] = pa.array(
            [None if each is None else list(each.items()) for each in headers], SCHEMA.field("headers").type
        )
        for record, each in zip(records, headers, strict=True):
            if each:
                record["headers"] = each
    for name, kind, most in (("partition", pa.int16(), 5), ("timestamp_ms", pa.int64(), NOW_MS)):
        if draw(st.booleans()):
            numbers = column(st.none() | st.integers(0, most))
            columns[name] = pa.array(numbers, kind)
            for record, number in zip(records, numbers, strict=True):
                if number is not None:
                    record[name] = number
    table = pa.table(columns)
    batches = table.to_batches(max_chunksize=draw(st.integers(1, 6)))
    return stream(*batches, compression=draw(COMPRESSION)), msgspec.json.encode({"records": records})


@given(rows())
@settings(max_examples=examples(400), deadline=None)
def test_records_are_those_of_the_same_json(pair: tuple[bytes, bytes]) -> None:
    as_arrow, as_json = pair
    records = msgspec.json.decode(as_json, type=ProduceRequest).records
    expected, _ = record_tails(records, NOW_MS)
    found = read(as_arrow)
    assert found.tails == expected
    assert (found.partitions or [None] * len(records)) == [record.partition for record in records]
    assert (found.timestamps or [None] * len(records)) == [record.timestamp_ms for record in records]


@given(st.text(max_size=40), st.sampled_from([0, 30_000, 70_000]))
@example('\x00\x1f\x7f"\\/\u2028😀', 70_000)
@settings(deadline=None)
def test_a_text_of_any_length_has_one_json(text: str, more: int) -> None:
    text = text.encode(errors="replace").decode() + "é" * more
    assert text_json(text.encode()) == msgspec.json.encode(text)


def test_keys_choose_partitions_as_in_json() -> None:
    keys: list[bytes | None] = [b"%d" % number for number in range(100)]
    keys[7] = None
    expected = [3 if key is None else key_hash(key) % 6 for key in keys]
    assert choose([None] * 100, keys, 6, 3) == expected
    assert choose([5, *[None] * 99], keys, 6, 3) == [5, *expected[1:]]


def test_plain_texts_take_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def one_by_one(*_: Any) -> None:
        raise AssertionError("the records were made one by one")

    monkeypatch.setattr("sharequeue_gateway.producing.arrow_tails._each", one_by_one)
    plain = {"key": (["k", "ä"], pa.string()), "value": (["v", "😀"], pa.string()), "timestamp_ms": ([5, None],)}
    assert len(read(body(**plain)).tails) == 2
    for odd in ('"', "\\", "\n"):
        with pytest.raises(AssertionError, match="one by one"):
            read(values("v", odd))


def test_columns_larger_than_a_piece_give_the_same_records(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"{number}ä" * 9 for number in range(50)]
    times = [None if number % 3 else number for number in range(50)]
    plain = body(key=(texts, pa.string()), value=(texts, pa.string()), timestamp_ms=(times, pa.int64()))
    odd = [values(*texts[:place], '"', *texts[place:]) for place in range(51)]
    whole = read(plain).tails, [read(each).tails for each in odd]
    monkeypatch.setattr("sharequeue_gateway.producing.arrow_tails.JOINED_BYTES", 64)
    assert (read(plain).tails, [read(each).tails for each in odd]) == whole
    assert len(whole[0]) == 50


# Refused


@pytest.mark.parametrize("deep", ["[" * 65 + "]" * 65, '{"a":' * 5000 + "1" + "}" * 5000])
def test_a_value_nests_as_deep_as_in_json(deep: str) -> None:
    flags = ([True, True], pa.bool_())
    assert len(read(body(value=(["1", "[" * 64 + "]" * 64],), value_is_json=flags)).tails) == 2
    fault = refused(body(value=(["1", deep],), value_is_json=flags), 422, "max_value_depth")
    assert fault.pointers == (("/records/1/value", "nested deeper than 64 levels (max_value_depth)"),)


@pytest.mark.parametrize("text", [b"", b"1,2", b"nul", b'{"a":', b'"\x01"', b'"\xff"', b"1}", b"[1] [2]"])
def test_a_value_that_is_not_json_is_refused(text: bytes) -> None:
    columns = {"value": ([b"1", text], pa.binary()), "value_is_json": ([True, True],)}
    refused(body(**columns), 422, "/records/1/value: value_is_json is true, and the value is not JSON")


def test_text_that_is_not_utf8_is_refused() -> None:
    split = pa.array([b"\xc3", b"\xa4"], pa.binary()).view(pa.string())  # together they are one character
    refused(stream(pa.record_batch({"value": split})), 400, "not an Arrow stream of records")


def test_columns_that_do_not_fit_are_refused() -> None:
    refused(body(key=(["a"],)), 422, "one is value")
    refused(body(value=(["a"],), other=([1],)), 422, "the column 'other' is unknown")
    refused(body(value=([1],)), 422, "the column value must be string or binary, not int64")
    refused(body(value=(["a"], pa.dictionary(pa.int8(), pa.string()))), 422, "must be string or binary")
    refused(body(value=(["a"],), headers=(["a"],)), 422, "the column headers must be map of string to string")
    refused(body(value=(["a"],), value_is_json=([None], pa.bool_())), 422, "value_is_json has a null")
    refused(body(value=(["a"],), partition=([-1],)), 422, "the column partition has -1")
    refused(body(value=(["a"],), partition=([2**31],)), 422, "the column partition has 2147483648")
    refused(body(value=(["a"],), timestamp_ms=([2**64 - 1], pa.uint64())), 422, "the column timestamp_ms has 184")
    batch = pa.record_batch([pa.array(["a"]), pa.array(["b"])], names=["value", "value"])
    refused(stream(batch), 422, "different names")


def test_counts_are_bounded() -> None:
    none = pa.record_batch({"value": pa.array([], pa.string())})
    refused(stream(none), 422, "this one has none")
    assert len(read(stream(none, pa.record_batch({"value": pa.array(["a"] * 10_000)}))).tails) == 10_000
    refused(values(*["a"] * 10_001), 422, "more than 10000 entries")
    refused(stream(*[none] * 1001), 422, "more than 1000 record batches")
    kind = SCHEMA.field("headers").type
    many = [(f"{number}", "") for number in range(1001)]
    refused(
        body(value=(["a", "b"],), headers=([[], many], kind)), 422, "`/records/1/headers` has more than 1000 entries"
    )
    large = [("h", "x" * (256 * 1024))]
    refused(body(value=(["a"],), headers=([large], kind)), 422, "more than 262144 bytes")
    refused(body(value=(["a"],), headers=([[("h", None)]], kind)), 422, "a header is null")


def sizes_of_buffers(batch: pa.RecordBatch) -> int:
    return sum(each.size for column in batch.columns for each in column.buffers() if each is not None)


def test_the_bytes_that_compressed_buffers_become_are_counted_before_they_grow() -> None:
    large = pa.record_batch({"key": pa.array(["k", None]), "value": pa.array(["x" * 1_000_000, "y"])})
    small = large.slice(1)
    compressed = stream(large, small, compression="lz4")
    assert len(compressed) < 10_000
    grown_bytes = arrow_columns.look_at(compressed).grown_bytes
    assert 1_000_000 < sizes_of_buffers(large) <= grown_bytes < 1_000_200
    assert read(compressed).tails == read(stream(large, small)).tails
    assert arrow_columns.look_at(stream(large, small)).grown_bytes == 0


@pytest.mark.parametrize("text", [os.urandom(500_000).hex(), "x" * 500_000], ids=["random", "equal"])
def test_a_buffer_that_says_another_size_is_refused(text: str) -> None:
    """A larger size is counted, so a request that grows too much is refused before it is read."""
    compressed = stream(pa.record_batch({"value": pa.array([text])}), compression="lz4")

    def saying(size: int) -> bytes:
        before, found, after = compressed.rpartition(struct.pack("<q", len(text)))
        assert found
        return before + struct.pack("<q", size) + after

    for other in (len(text) - 1, len(text) + 1, 0, 50_000_000):
        assert abs(arrow_columns.look_at(saying(other)).grown_bytes - other) < 200
        refused(saying(other), 400, "not an Arrow stream")
    for impossible in (-2, -(2**63)):
        refused(saying(impossible), 400, "says that it becomes")
    assert arrow_columns.look_at(saying(2**63 - 1)).grown_bytes > 2**62


def test_buffers_that_are_compressed_otherwise_are_refused() -> None:
    batch = pa.record_batch({"value": pa.array(["x" * 1_000_000])})
    refused(stream(batch, compression="zstd"), 400, "another codec than LZ4")


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_stream_that_hides_its_compression_is_refused(codec: str) -> None:
    """Before Arrow 1.0, metadata named the codec. Arrow still reads that, and nothing in the batch tells the size."""
    batch = pa.record_batch({"value": pa.array(["x" * 1_000_000])})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(metadata_version=pa.ipc.MetadataVersion.V4, compression=codec)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch, custom_metadata={"ARROW:experimental_compression": codec})
    hiding = bytearray(sink.getvalue())
    messages = pa.ipc.MessageReader.open_stream(bytes(hiding))
    messages.read_next_message()
    metadata = messages.read_next_message().metadata.to_pybytes()
    (root,) = struct.unpack_from("<I", metadata)
    header = arrow_columns._child(metadata, root, 2)
    (back,) = struct.unpack_from("<i", metadata, header)
    entry = hiding.index(metadata) + header - back + 10
    hiding[entry : entry + 2] = b"\0\0"
    assert pa.ipc.open_stream(bytes(hiding)).read_all().to_pydict() == batch.to_pydict()
    assert len(hiding) < 10_000
    refused(bytes(hiding), 400, "a format before Arrow 1.0")


def test_only_a_whole_stream_is_read() -> None:
    whole = values("a", "b")
    refused(b"", 400, "it is empty")
    refused(whole + whole, 400, "bytes behind its end")
    refused(whole + b"\0", 400, "bytes behind its end")
    refused(whole[: -len(arrow_columns.END)], 400, "has no end")
    file = pa.BufferOutputStream()
    with pa.ipc.new_file(file, pa.schema({"value": pa.string()})) as writer:
        writer.write_batch(pa.record_batch({"value": pa.array(["a"])}))
    refused(file.getvalue().to_pybytes(), 400, "not an Arrow stream")


@given(st.data())
@settings(max_examples=examples(1500), deadline=None)
def test_damaged_bytes_are_refused_or_read(data: st.DataObject) -> None:
    """Any bytes give records that can be stored, or a refusal, and no other exception."""
    whole = bytearray(
        stream(
            pa.record_batch(
                {
                    "key": pa.array(["k1", None, "k3"]),
                    "value": pa.array(["a", "b" * 20, None]),
                    "headers": pa.array([[("h", "x")], [], None], SCHEMA.field("headers").type),
                    "partition": pa.array([1, None, 2], pa.int32()),
                }
            ),
            compression=data.draw(COMPRESSION),
        )
    )
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(whole) - 1))
        if data.draw(st.booleans()):
            whole[place] = data.draw(st.integers(0, 255))
        else:
            word = struct.pack("<i", data.draw(st.sampled_from([-1, 0, 1, 2**31 - 1, -(2**31), 4096])))
            whole[place : place + 4] = word[: len(whole) - place]
    try:
        looked_at = arrow_columns.look_at(bytes(whole))
        if looked_at.grown_bytes > 10 * 1024 * 1024:
            return  # it is refused without being read
        found = arrow_records(looked_at, NOW_MS, DEPTH)
    except InvalidRequest:
        return
    for tail in found.tails:
        msgspec.json.decode(b'{"offset":0' + tail)
