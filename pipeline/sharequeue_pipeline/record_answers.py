"""Answers of readRecords as Arrow columns (`sharequeue.arrow_records`).

A gateway sends the records as it has stored them, each a JSON object: `sharequeue.protocol.record_runs`. The places of
keys and values in stored records are computed for many records together, without a look at the bytes of values, and
each column is copied once. Records of which one has another shape than

    {"offset":N,"timestamp_ms":1700000000000,"key":"…","value":…}

(headers, bytes in base64, an escape in a key, a time before 2001) are decoded one by one.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import lz4.block
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sharequeue.arrow_records import SCHEMA, columns_of
from sharequeue.protocol.batch_layout import MOST_RATIO
from sharequeue.protocol.record_runs import PackedRun, Run, bounds_of, run_of, runs_of

BATCH_BYTES: Final = 4 * 1024 * 1024
"""Of a record batch, after decompression. A larger answer becomes several, so that a processor's cache holds each."""
_SHORTEST: Final = len('null,"value":0}')
"""Bytes of the shortest rest of a record, from its key on."""
_NEAR: Final = 40
"""A key whose second quote is not so near is searched for, which costs more."""
_DIGITS: Final = slice(16, 29)
"""Of the time, in `_MIDDLE`: a time in ms from 2001 to 2286 has 13."""
_POWERS: Final = 10 ** np.arange(1, 19, dtype=np.int64)
_PLACES: Final = 10 ** np.arange(12, -1, -1, dtype=np.int64)
_VALUE: Final = b',"value'
_NO_TEXTS: Final = pa.array([], pa.string())


class _Form:
    """Bytes that stand at a place of each record, as numbers of 8 bytes. A zero byte stands for any byte."""

    def __init__(self, text: bytes) -> None:
        self._text = np.frombuffer(text, "<u8")
        self._mask = np.where(np.frombuffer(text, np.uint8) > 0, np.uint8(255), np.uint8(0)).view("<u8")

    def fits(self, words: Any) -> bool:
        """Return whether all rows of numbers have this form."""
        return bool((words & self._mask == self._text).all())


_HEAD: Final = _Form(b'{"offset":' + bytes(6))
_MIDDLE: Final = _Form(b',"timestamp_ms":' + bytes(13) + b',"key":' + bytes(4))
_KEY_AT: Final = len(b',"timestamp_ms":1700000000000,"key":')
_OF_VALUE: Final = _Form(_VALUE + b'"')
_END: Final = _Form(bytes(7) + b"}")
_HEADERS_END: Final = np.frombuffer(bytes(5) + b'"}}', "<u8") >> np.uint64(40)


def of_runs(answer: bytes) -> tuple[Iterator[Any], int]:
    """Returns: record batches, none of them empty, and the offset to read next.

    Raises: ValueError: the answer is cut. The iterator raises ValueError, IndexError or MsgspecError: it is damaged.
    """
    return _batches(answer, list(runs_of(answer))), bounds_of(answer).next_offset


def up_to(last_offset: int, batch: Any) -> Iterator[Any]:
    """The records of a batch up to an offset, or nothing. A page may go on behind it: a gateway counts records, and
    leaves out deleted ones and those of aborted transactions."""
    kept = int(np.searchsorted(batch.column("offset").to_numpy(), last_offset, side="right"))
    if kept:
        yield batch.slice(0, kept)


def _batches(answer: bytes, runs: Sequence[Run | PackedRun]) -> Iterator[Any]:
    """The records of `BATCH_BYTES` at a time."""
    some: list[Run | PackedRun] = []
    size = 0
    for run in runs:
        more = run.stored_bytes if isinstance(run, PackedRun) else run.size
        if some and size + more > BATCH_BYTES:
            yield from _batch(answer, some)
            some, size = [], 0
        some.append(run)
        size += more
    yield from _batch(answer, some)


def _batch(answer: bytes, some: Sequence[Run | PackedRun]) -> Iterator[Any]:
    """The records of runs as one record batch, or none."""
    records, runs = _unpacked(answer, some)
    if not runs:
        return
    columns = together(records, runs)
    if columns is None:
        texts = b",".join([records[run.records_at : run.records_at + run.size] for run in runs])
        columns = columns_of(b"[%b]" % texts)
    yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _unpacked(answer: bytes, runs: Sequence[Run | PackedRun]) -> tuple[bytes, list[Run]]:
    """The runs, and the bytes in which they lie: those of the answer, or a copy with unpacked batches."""
    plain = [run for run in runs if isinstance(run, Run)]
    if len(plain) == len(runs):
        return answer, plain
    whole = memoryview(answer)
    parts: list[bytes | memoryview] = []
    found: list[Run] = []
    at = 0
    for run in runs:
        if isinstance(run, Run):
            parts.append(whole[run.ends_at : run.records_at + run.size])
            found.append(run.moved(at - run.ends_at))
        else:
            parts.append(_decompressed(whole[run.block_at : run.block_at + run.size], run.stored_bytes))
            found.append(run_of(run.base_offset, parts[-1]).moved(at))
        at += len(parts[-1])
    return b"".join(parts), [run for run in found if run.record_count]  # compaction leaves batches without records


def _decompressed(block: memoryview, size: int) -> bytes:
    """The batch of an LZ4 block. Raises: ValueError: it is damaged, or becomes more or fewer bytes than `size`."""
    if size <= MOST_RATIO * len(block):  # no memory is taken for a wrong size
        with suppress(lz4.block.LZ4BlockError):
            batch: bytes = lz4.block.decompress(block, uncompressed_size=size)
            if len(batch) == size:
                return batch
    raise ValueError(f"an LZ4 block of {len(block)} bytes is damaged, or is not of {size} bytes")


def together(answer: bytes, runs: list[Run]) -> list[Any] | None:
    """The columns, without a look at each record; None: a record has another shape.

    `answer`: the bytes in which the runs lie; `runs`: at least one.
    """
    offsets, starts, ends = _places(answer, runs)
    middles_at = starts + len('{"offset":0') + np.searchsorted(_POWERS, offsets, side="right")
    keys = middles_at + _KEY_AT
    if (keys + _SHORTEST > ends).any():
        return None
    middles, tails = _words(answer, middles_at, 5), _words(answer, ends - 8)
    if not (_HEAD.fits(_words(answer, starts, 2)) and _MIDDLE.fits(middles) and _END.fits(tails)):
        return None
    times = _times(middles)
    data, raw = np.frombuffer(answer, np.uint8), pa.py_buffer(answer)
    after = data[keys]
    texts, nulls = after == ord('"'), after == ord("n")
    key_ends = _key_ends(answer, raw, keys, ends, texts)
    if times is None or not (
        (texts | nulls).all()
        and (key_ends - keys >= np.where(nulls, 4, 2)).all()
        and (key_ends + len(_VALUE) + 2 < ends).all()
        and _OF_VALUE.fits(_words(answer, key_ends))
        and (data[key_ends[texts] - 1] == ord('"')).all()
    ):
        return None
    values, value_ends = key_ends + len(_VALUE) + 2, ends - 1
    cut_keys = _cut(raw, keys + texts, key_ends - texts, nulls)
    cut_values = _cut(raw, values, value_ends, (value_ends - values == 4) & (data[values] == ord("n")))
    likely = tails[:, 0] >> np.uint64(40) == _HEADERS_END
    """The records that end as those with headers do."""
    if _has(cut_keys, b"\\") or (
        likely.any() and pc.any(pc.match_substring(cut_values.filter(pa.array(likely)), ',"headers":{"')).as_py()
    ):
        return None
    count = len(offsets)
    return [
        pa.array(offsets),
        pa.array(times),
        cut_keys,
        cut_values,
        pa.repeat(pa.scalar(True), count),
        pa.MapArray.from_arrays(pa.array(np.zeros(count + 1, np.int32)), _NO_TEXTS, _NO_TEXTS),
    ]


def _key_ends(answer: bytes, raw: Any, keys: Any, ends: Any, texts: Any) -> Any:
    """Return where each key ends that is a text without escapes, or null; anything for other keys."""
    quotes = _bytes(answer, keys, min(_NEAR, len(answer) - int(keys[-1])))[:, 1:] == ord('"')
    places = quotes.argmax(axis=1)
    if (places.astype(bool) | quotes[:, 0] | ~texts).all():
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


def _bytes(answer: bytes, places: Any, size: int) -> Any:
    """The bytes from each place on, a row of `size` for each."""
    everywhere = np.ndarray((len(answer) - size + 1,), f"V{size}", answer, strides=(1,))
    return everywhere[places].view(np.uint8).reshape(-1, size)


def _words(answer: bytes, places: Any, count: int = 1) -> Any:
    """The bytes from each place on as numbers of 8 bytes, a row of `count` for each."""
    return _bytes(answer, places, 8 * count).view("<u8")


def _times(middles: Any) -> Any:
    """The times of the records, or None: one of them has other digits. Equal ones in a row are converted once: those of
    one request have the gateway's time."""
    changes = (middles[1:, 2] != middles[:-1, 2]) | (middles[1:, 3] != middles[:-1, 3])
    firsts = np.concatenate(([0], np.flatnonzero(changes) + 1))
    digits = middles[firsts].view(np.uint8)[:, _DIGITS] - np.uint8(ord("0"))
    if (digits > 9).any():
        return None
    return np.repeat(digits @ _PLACES, np.diff(firsts, append=len(middles)))


def _pieces(raw: Any, starts: Any, ends: Any) -> Any:
    """An array of the bytes between starts and ends, and of those between them, in turn. Nothing is copied."""
    bounds = np.empty(2 * len(starts), np.int32)
    bounds[0::2], bounds[1::2] = starts, ends
    return pa.Array.from_buffers(pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), raw])


def _cut(raw: Any, starts: Any, ends: Any, nulls: Any) -> Any:
    """An array of the bytes between starts and ends."""
    wanted = pa.array(np.arange(0, 2 * len(starts), 2), mask=nulls if nulls.any() else None)
    return _pieces(raw, starts, ends).take(wanted)


def _has(texts: Any, part: bytes) -> bool:
    """Return whether the bytes of an array that `take` made have a part."""
    return any(buffer is not None and part in buffer.to_pybytes() for buffer in texts.buffers()[2:])


def _first(raw: Any, starts: Any, ends: Any, text: bytes) -> Any:
    """Return where the text begins, counted from the start; -1: nowhere."""
    return pc.find_substring(_pieces(raw, starts, ends), text).to_numpy()[0::2]
