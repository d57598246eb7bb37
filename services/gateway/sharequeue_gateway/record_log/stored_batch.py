"""The fields of a batch that need none of its records: its offsets and its transaction. Pure.

StoredBatch ◁── RecordBatch    its records can be read (`record_batch`)
            ◁── PackedBatch    its records are still the LZ4 block of the row
"""

from dataclasses import dataclass, field


class StoredBatch:
    """The fields that every batch has.

    `size`: bytes of its records, or a little more. `transaction_id`: the transaction that wrote the records, or
    that this marker ends. `control`: it is the marker of an ended transaction, which has one offset and no record.
    `aborted`: whether its transaction was aborted; None: not known, or it has no transaction.
    """

    __slots__ = ("aborted", "base_offset", "control", "last_offset", "max_timestamp_ms", "size", "transaction_id")

    aborted: bool | None
    base_offset: int
    control: bool
    last_offset: int
    max_timestamp_ms: int
    size: int
    transaction_id: str | None

    @property
    def decided(self) -> bool:
        """Return whether a read_committed reader can tell that it receives these records, or that it does not."""
        return self.transaction_id is None or self.control or self.aborted is not None

    def size_of(self, first_offset: int, last_offset: int) -> int:
        """Bytes of the records of first..last."""
        raise NotImplementedError


@dataclass(slots=True, eq=False)
class PackedBatch(StoredBatch):
    """A compressed batch, for a reader that takes the block as it is. Markers are never compressed.

    `size`: bytes of its stored form, which is what `block` becomes.
    """

    base_offset: int
    last_offset: int
    max_timestamp_ms: int
    block: bytes
    transaction_id: str | None
    size: int
    control: bool = field(init=False, default=False)
    aborted: bool | None = field(init=False, default=None)

    def size_of(self, first_offset: int, last_offset: int) -> int:
        return self.size
