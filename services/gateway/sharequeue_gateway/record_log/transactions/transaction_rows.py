"""A row of `log.transactions`, as each statement reads it."""

from typing import Any, Final

from sharequeue_gateway.record_log.transactions.transaction_rules import Reason, State, Transaction

MS: Final = "floor(extract(epoch FROM {}) * 1000)::bigint"
"""A timestamp in ms."""
ROW: Final = f"""transaction_id, transactional_id, producer_epoch, principal, state, reason,
  {MS.format("began_at")}, timeout_ms, {MS.format("ended_at")}, part_of"""
"""The columns that `transaction_of` takes."""


def transaction_of(row: Any) -> Transaction:
    """A row with the columns of `ROW`."""
    return Transaction(
        transaction_id=row[0],
        transactional_id=row[1],
        producer_epoch=row[2],
        principal=row[3],
        state=State(row[4]),
        reason=Reason(row[5]),
        began_at_ms=row[6],
        timeout_ms=row[7],
        ended_at_ms=row[8],
        part_of=row[9],
    )
