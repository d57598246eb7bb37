"""How many bytes of each transaction this gateway took. Pure, and bounded.

Another gateway that takes appends of the same transaction counts them by itself, so a transaction may have the bound
at each.
"""

from collections import OrderedDict
from typing import Final

from sharequeue_http.forms.errors import TooLarge

MOST: Final = 10_000
"""The transactions that are counted; those that were used last."""


class TransactionSizes:
    """`most_bytes`: of one transaction."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes: OrderedDict[str, int] = OrderedDict()

    def take(self, transaction_id: str, size: int) -> None:
        """Count an append before it is made. Raises: TooLarge: it is not counted."""
        total = self._bytes.get(transaction_id, 0) + size
        if total > self._most_bytes:
            raise TooLarge(
                f"transaction {transaction_id} would have {total} bytes; the most is {self._most_bytes}"
                " (max_transaction_bytes): use one more transaction",
                limit=self._most_bytes,
            )
        self._bytes[transaction_id] = total
        self._bytes.move_to_end(transaction_id)
        if len(self._bytes) > MOST:
            self._bytes.popitem(last=False)

    def give_back(self, transaction_id: str, size: int) -> None:
        """An append that was counted surely appended nothing."""
        total = self._bytes.get(transaction_id, 0) - size
        if total > 0:
            self._bytes[transaction_id] = total
        else:
            self._bytes.pop(transaction_id, None)
