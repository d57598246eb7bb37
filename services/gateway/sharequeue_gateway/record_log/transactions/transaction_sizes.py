"""Counts the bytes of each transaction that this gateway took. Pure, and bounded.

Another gateway that takes appends of the same transaction counts them by itself, so a transaction may have the bound
at each. So may each caller of a transaction that several may use: a refusal tells nobody what others did.
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
        self._bytes: OrderedDict[tuple[str, str], int] = OrderedDict()

    def take(self, counted: tuple[str, str], size: int) -> None:
        """Count an append before it is made. `counted`: the transaction, and who appends to it.
        Raises: TooLarge: it is not counted."""
        total = self._bytes.get(counted, 0) + size
        if total > self._most_bytes:
            raise TooLarge(
                f"transaction {counted[0]} would have {total} bytes; the most is {self._most_bytes}"
                " (max_transaction_bytes): use one more transaction",
                limit=self._most_bytes,
            )
        self._bytes[counted] = total
        self._bytes.move_to_end(counted)
        if len(self._bytes) > MOST:
            self._bytes.popitem(last=False)

    def give_back(self, counted: tuple[str, str], size: int) -> None:
        """An append that was counted surely appended nothing."""
        total = self._bytes.get(counted, 0) - size
        if total > 0:
            self._bytes[counted] = total
        else:
            self._bytes.pop(counted, None)
