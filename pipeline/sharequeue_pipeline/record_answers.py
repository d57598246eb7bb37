"""Answers of readRecords as Arrow columns (`sharequeue.arrow_records`), whichever form the gateway sent.

A gateway sends the records as it has stored them, each a JSON object: `sharequeue.protocol.record_runs`. An earlier one
sends Arrow. The places of keys and values in stored records are computed for all records of an answer together, without
a look at the bytes of values, and each column is copied once. An answer that has a record of another shape than

    {"offset":N,"timestamp_ms":1700000000000,"key":"…","value":…}

(headers, bytes in base64, an escape in a key, a time before 2001) is decoded record by record.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sharequeue.arrow_records import SCHEMA, columns_of
from sharequeue.protocol.batch_layout import MOST_RATIO
from sharequeue.protocol.record_runs import PackedRun, Run, bounds_of, run_of, runs_of

_LZ4: Final = pa.Codec("lz4_raw")
_HEAD: Final = np.frombuffer(b'{"offset":', np.uint8)
_TIME: Final = np.frombuffer(b',"timestamp_ms":', np.uint8)
_KEY: Final = np.frombuffer(b',"key":', np.uint8)
_DIGITS: Final = 13
"""Of a time in ms from 2001 to 2286."""
_SHAPE: Final = len(_TIME) + _DIGITS + len(_KEY) + 1
_POWERS: Final = 10 ** np.arange(1, 19, dtype=np.int64)
_PLACES: Final = 10 ** np.arange(_DIGITS - 1, -1, -1, dtype=np.int64)
_VALUE: Final = b',"value'
_VALUE_BYTES: Final = np.frombuffer(_VALUE, np.uint8)
_NEAR: Final = 40
"""A key whose second quote is not so near is searched for, which costs more."""
_REST: Final = len('null,"value":0}')
"""Bytes of the shortest rest of a record, from its key on."""


def of_arrow(answer: bytes) -> tuple[Any, int]:
    """Returns: a record batch, and the offset to read next."""
    with pa.ipc.open_stream(answer) as reader:
        table = reader.read_all().combine_chunks()
        batches = table.to_batches()
        batch = batches[0] if batches else pa.RecordBatch.from_pylist([], schema=reader.schema)
        return batch, int(reader.schema.metadata[b"next_offset"])


def of_runs(answer: bytes) -> tuple[Any, int]:
    """Returns: a record batch, and the offset to read next. Raises: ValueError: the answer is cut or damaged."""
    records, runs = _unpacked(answer, list(runs_of(answer)))
    columns = together(records, runs) if runs else None
    if columns is None:
        texts = b",".join([records[run.records_at : run.records_at + run.size] for run in runs])
        columns = columns_of(b"[%b]" % texts)
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA), bounds_of(answer).next_offset


def _unpacked(answer: bytes, runs: Sequence[Run | PackedRun]) -> tuple[bytes, list[Run]]:
    """The runs, and the bytes in which they lie: those of the answer, or a copy with unpacked batches."""
    plain = [run for run in runs if isinstance(run, Run)]
    if len(plain) == len(runs):
        return answer, plain
    parts: list[bytes] = []
    found: list[Run] = []
    size = 0
    for run in runs:
        if isinstance(run, PackedRun):
            part = _decompressed(answer, run)
            found.append(run_of(run.base_offset, part).moved(size))
        else:
            part = answer[run.ends_at : run.records_at + run.size]
            found.append(run.moved(size - run.ends_at))
        parts.append(part)
        size += len(part)
    return b"".join(parts), [run for run in found if run.record_count]  # compaction leaves batches without records


def _decompressed(answer: bytes, run: PackedRun) -> bytes:
    """The stored batch of a packed run. Arrow accepts a larger size than the block has: `run_of` notices that."""
    if run.stored_bytes <= MOST_RATIO * run.size:  # no memory is taken for a wrong size
        try:
            block = memoryview(answer)[run.block_at : run.block_at + run.size]
            batch: bytes = _LZ4.decompress(block, run.stored_bytes, asbytes=True)
            return batch
        except (pa.ArrowException, OSError):
            pass
    raise ValueError(f"{run.size} bytes are not an LZ4 block of {run.stored_bytes} bytes")


def together(answer: bytes, runs: list[Run]) -> list[Any] | None:
    """The columns, without a look at each record; None: a record has another shape.

    `runs`: those of the answer, at least one.
    """
    offsets, starts, ends = _places(answer, runs)
    data = np.frombuffer(answer, np.uint8)
    times = starts + len(_HEAD) + 1 + np.searchsorted(_POWERS, offsets, side="right")
    keys = times + (_SHAPE - 1)
    if (keys + _REST > ends).any():
        return None
    shape = _windows(data, _SHAPE)[times]
    after = shape[:, -1]
    """The first byte of the key."""
    digits = shape[:, len(_TIME) : len(_TIME) + _DIGITS] - np.uint8(ord("0"))
    if not (
        (_windows(data, len(_HEAD))[starts] == _HEAD).all()
        and (shape[:, : len(_TIME)] == _TIME).all()
        and (digits < 10).all()
        and (shape[:, -1 - len(_KEY) : -1] == _KEY).all()
        and (data[ends - 1] == ord("}")).all()
    ):
        return None
    raw = pa.py_buffer(answer)
    texts, nulls = after == ord('"'), after == ord("n")
    key_ends = _key_ends(data, raw, keys, ends, texts)
    if not (
        (texts | nulls).all()
        and (key_ends - keys >= np.where(nulls, 4, 2)).all()
        and (key_ends + len(_VALUE) + 2 < ends).all()
        and (_windows(data, len(_VALUE))[key_ends] == _VALUE_BYTES).all()
        and (data[key_ends + len(_VALUE)] == ord('"')).all()
        and (data[key_ends[texts] - 1] == ord('"')).all()
    ):
        return None
    values, value_ends = key_ends + len(_VALUE) + 2, ends - 1
    cut_keys = _cut(raw, keys + texts, key_ends - texts, nulls)
    cut_values = _cut(raw, values, value_ends, (value_ends - values == 4) & (data[values] == ord("n")))
    likely = (data[ends - 2] == ord("}")) & (data[ends - 3] == ord('"'))
    """The records that end as those with headers do."""
    if pc.any(pc.match_substring(cut_keys, "\\")).as_py() or (
        likely.any() and pc.any(pc.match_substring(cut_values.filter(pa.array(likely)), ',"headers":{"')).as_py()
    ):
        return None
    count = len(offsets)
    return [
        pa.array(offsets),
        pa.array(_times(digits)),
        cut_keys,
        cut_values,
        pa.repeat(pa.scalar(True), count),
        pa.MapArray.from_arrays(
            pa.array(np.zeros(count + 1, np.int32)), pa.array([], pa.string()), pa.array([], pa.string())
        ),
    ]


def _key_ends(data: Any, raw: Any, keys: Any, ends: Any, texts: Any) -> Any:
    """Where each key ends that is a text without escapes, or null; anything for other keys."""
    near = _windows(data, min(_NEAR, len(data) - int(keys[-1])))[keys]
    quotes = near[:, 1:] == ord('"')
    places = quotes.argmax(axis=1)
    if (quotes[np.arange(len(keys)), places] | ~texts).all():
        return keys + np.where(texts, places + 2, 4)
    return keys + _first(raw, keys, ends, _VALUE)


def _places(answer: bytes, runs: list[Run]) -> tuple[Any, Any, Any]:
    """The offsets of all records, and where each one begins and ends in the answer."""
    counts = np.array([run.record_count for run in runs])
    firsts = np.cumsum(counts) - counts
    joined = b"".join([answer[run.ends_at : run.ends_at + 4 * run.record_count] for run in runs])
    shifts = np.array([run.records_at - run.before for run in runs])
    ends = np.frombuffer(joined, "<u4") + np.repeat(shifts, counts)
    starts = np.empty_like(ends)
    starts[1:] = ends[:-1]
    starts[firsts] = [run.records_at for run in runs]
    offsets = np.arange(len(ends)) + np.repeat([run.base_offset for run in runs] - firsts, counts)
    for first, run in zip(firsts, runs, strict=True):
        if run.offsets_at >= 0:
            offsets[first : first + run.record_count] = np.frombuffer(answer, "<u8", run.record_count, run.offsets_at)
    return offsets, starts, ends - 1


def _windows(data: Any, size: int) -> Any:
    return np.lib.stride_tricks.sliding_window_view(data, size)


def _times(digits: Any) -> Any:
    if (digits == digits[0]).all():  # as the records of one request, whose time is the gateway's
        return np.full(len(digits), int(digits[0] @ _PLACES))
    return digits @ _PLACES


def _pieces(raw: Any, starts: Any, ends: Any) -> Any:
    """An array of the bytes between starts and ends, and of those between them, in turn. Nothing is copied."""
    bounds = np.empty(2 * len(starts), np.int32)
    bounds[0::2], bounds[1::2] = starts, ends
    return pa.Array.from_buffers(pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), raw])


def _cut(raw: Any, starts: Any, ends: Any, nulls: Any) -> Any:
    """An array of the bytes between starts and ends."""
    wanted = pa.array(np.arange(0, 2 * len(starts), 2), mask=nulls if nulls.any() else None)
    return _pieces(raw, starts, ends).take(wanted)


def _first(raw: Any, starts: Any, ends: Any, text: bytes) -> Any:
    """Where the text begins, counted from the start; -1: nowhere."""
    return pc.find_substring(_pieces(raw, starts, ends), text).to_numpy()[0::2]
