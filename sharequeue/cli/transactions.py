"""`sharequeue transactions`: what is open or has ended, what became of one, and an operator's abort."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, Literal

import click

from sharequeue.cli.commands import Commands
from sharequeue.cli.output import ask, decode, echo_json, json_option, pages, run, say, show_table, url_option
from sharequeue.protocol import apis
from sharequeue.protocol.messages.transactions import (
    EndedTransaction,
    EndedTransactionListing,
    EndTransactionRequest,
    ListTransactionsQuery,
    TransactionDescription,
    TransactionList,
    TransactionListing,
)

COLUMNS: Final = ("transaction", "transactional id", "epoch", "open for s", "timeout s", "partitions")


ENDED_COLUMNS: Final = (
    "transaction",
    "transactional id",
    "epoch",
    "state",
    "reason",
    "began",
    "ended",
    "partitions",
)


def _show_open(listed: Sequence[TransactionListing]) -> None:
    show_table(
        COLUMNS,
        [
            (
                each.transaction_id,
                each.transactional_id,
                each.producer_epoch,
                each.age_ms // 1000,
                each.timeout_ms / 1000,
                each.partitions,
            )
            for each in listed
        ],
    )


@click.group(cls=Commands)
def transactions() -> None:
    """List transactions, or describe or abort one."""


@transactions.command("list")
@click.option(
    "--state",
    type=click.Choice(["open", "committed", "aborted"]),
    default="open",
    help="the open transactions, or those that ended so",
)
@click.option("--transactional-id", help="only those of this producer")
@click.option("--prefix", help="only those of producers whose transactional id begins with this")
@click.option(
    "--older-than",
    type=click.FloatRange(0, 1e9),
    default=0,
    metavar="SECONDS",
    help="only those that have been open for longer, or that ended longer ago",
)
@click.option("--limit", type=click.IntRange(1, 100_000), default=1000, help="how many ended transactions to show")
@json_option
@url_option
@run
async def list_some(
    state: Literal["open", "committed", "aborted"],
    transactional_id: str | None,
    prefix: str | None,
    older_than: float,
    limit: int,
    as_json: bool,
    url: str,
) -> None:
    """List open transactions, the oldest first; or those that have ended, the last one first."""
    query = ListTransactionsQuery(
        state=state,
        transactional_id=transactional_id,
        transactional_id_prefix=prefix,
        older_than_ms=round(older_than * 1000),
    )
    listed: list[TransactionListing] = []
    ended: list[EndedTransactionListing] = []
    more = False
    async for page in pages(url, apis.LIST_TRANSACTIONS, query):
        listed += page.transactions
        ended += page.ended
        more = len(ended) > limit or (len(ended) == limit and page.next_page_token is not None)
        if more:
            break
    if as_json:
        echo_json(TransactionList(transactions=listed, ended=ended[:limit]))
    elif query.state == "open":
        _show_open(listed)
    else:
        show_table(
            ENDED_COLUMNS,
            [
                (
                    each.transaction_id,
                    each.transactional_id,
                    each.producer_epoch,
                    each.state,
                    each.reason,
                    _moment(each.began_at_ms),
                    _moment(each.ended_at_ms),
                    each.partitions,
                )
                for each in ended[:limit]
            ],
        )
    if more:
        say(f"there are more: --limit shows more than {limit}")


@transactions.command()
@click.argument("transaction")
@json_option
@url_option
@run
async def describe(transaction: str, as_json: bool, url: str) -> None:
    """Describe the transaction with the id TRANSACTION: its state, and where it wrote while it is open."""
    answer = await ask(url, apis.DESCRIBE_TRANSACTION, transaction=transaction)
    if as_json:
        echo_json(answer)
        return
    found: TransactionDescription = decode(answer, apis.DESCRIBE_TRANSACTION)
    show_table(
        ("transaction", "transactional id", "epoch", "state", "reason", "began", "ended"),
        [
            (
                found.transaction_id,
                found.transactional_id,
                found.producer_epoch,
                found.state,
                found.reason,
                _moment(found.began_at_ms),
                None if found.ended_at_ms is None else _moment(found.ended_at_ms),
            )
        ],
    )
    if found.partitions:
        show_table(
            ("topic", "partition", "first offset"),
            [(each.topic or each.topic_id, each.partition, each.first_offset) for each in found.partitions],
        )
    if found.blocks:
        show_table(
            ("blocked group", "topic", "partition"),
            [(each.group_id, each.topic or each.topic_id, each.partition) for each in found.blocks],
        )
        if found.more_blocked:
            say("it may block others, too")
    elif found.blocks is None and found.state == "open":
        say("the group coordinator does not answer: unknown which groups it blocks")
    if found.unapplied:
        say("its acknowledgements are decided, and not applied yet in:")
        show_table(
            ("group", "topic", "partition"),
            [(each.group_id, each.topic or each.topic_id, each.partition) for each in found.unapplied],
        )


@transactions.command()
@click.argument("transaction")
@json_option
@url_option
@run
async def abort(transaction: str, as_json: bool, url: str) -> None:
    """Abort the transaction with the id TRANSACTION as an operator. The next call of its producer is refused."""
    answer = await ask(url, apis.TERMINATE_TRANSACTION, EndTransactionRequest(), transaction=transaction)
    if as_json:
        echo_json(answer)
        return
    ended: EndedTransaction = decode(answer, apis.TERMINATE_TRANSACTION)
    say(f"aborted {transaction} ({ended.reason}): it had written to {ended.partitions} partitions")


def _moment(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")
