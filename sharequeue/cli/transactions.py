"""`sharequeue transactions`: what is open or has ended, what became of one, and an operator's abort."""

from datetime import UTC, datetime
from typing import Final, Literal

import click

from sharequeue.cli.commands import Commands
from sharequeue.cli.output import Columns, Gateway, asks_gateway, echo_json, say, show_things
from sharequeue.protocol import apis
from sharequeue.protocol.messages import transactions as messages

_NAMES: Final[Columns] = {
    "transaction": "transaction_id",
    "transactional id": "transactional_id",
    "epoch": "producer_epoch",
}
_OPEN: Final[Columns] = {
    **_NAMES,
    "open for s": lambda each: each.age_ms // 1000,
    "timeout s": lambda each: each.timeout_ms / 1000,
    "partitions": "partitions",
}
_DESCRIBED: Final[Columns] = {
    **_NAMES,
    "state": "state",
    "reason": "reason",
    "began": lambda each: _moment(each.began_at_ms),
    "ended": lambda each: None if each.ended_at_ms is None else _moment(each.ended_at_ms),
}
_PLACE: Final[Columns] = {"topic": lambda each: each.topic or each.topic_id, "partition": "partition"}


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
@asks_gateway
async def list_some(
    state: Literal["open", "committed", "aborted"],
    transactional_id: str | None,
    prefix: str | None,
    older_than: float,
    limit: int,
    gateway: Gateway,
) -> None:
    """List open transactions, the oldest first; or those that have ended, the last one first."""
    query = messages.ListTransactionsQuery(
        state=state,
        transactional_id=transactional_id,
        transactional_id_prefix=prefix,
        older_than_ms=round(older_than * 1000),
    )
    listed: list[messages.TransactionListing] = []
    ended: list[messages.EndedTransactionListing] = []
    more = False
    async for page in gateway.pages(apis.LIST_TRANSACTIONS, query):
        listed += page.transactions
        ended += page.ended
        more = len(ended) > limit or (len(ended) == limit and page.next_page_token is not None)
        if more:
            break
    if gateway.as_json:
        echo_json(messages.TransactionList(transactions=listed, ended=ended[:limit]))
    elif query.state == "open":
        show_things(_OPEN, listed)
    else:
        show_things({**_DESCRIBED, "partitions": "partitions"}, ended[:limit])
    if more:
        say(f"there are more: --limit shows more than {limit}")


@transactions.command()
@click.argument("transaction")
@asks_gateway
async def describe(transaction: str, gateway: Gateway) -> None:
    """Describe the transaction with the id TRANSACTION: its state, and where it wrote while it is open."""
    found: messages.TransactionDescription | None = await gateway.answered(
        apis.DESCRIBE_TRANSACTION, transaction=transaction
    )
    if found is None:
        return
    show_things(_DESCRIBED, [found])
    if found.partitions:
        show_things({**_PLACE, "first offset": "first_offset"}, found.partitions)
    if found.blocks:
        show_things({"blocked group": "group_id", **_PLACE}, found.blocks)
        if found.more_blocked:
            say("it may block others, too")
    elif found.blocks is None and found.state == "open":
        say("the group coordinator does not answer: unknown which groups it blocks")
    if found.unapplied:
        say("its acknowledgements are decided, and not applied yet in:")
        show_things({"group": "group_id", **_PLACE}, found.unapplied)


@transactions.command()
@click.argument("transaction")
@asks_gateway
async def abort(transaction: str, gateway: Gateway) -> None:
    """Abort the transaction with the id TRANSACTION as an operator. The next call of its producer is refused."""
    ended: messages.EndedTransaction | None = await gateway.answered(
        apis.TERMINATE_TRANSACTION, messages.EndTransactionRequest(), transaction=transaction
    )
    if ended is not None:
        say(f"aborted {transaction} ({ended.reason}): it had written to {ended.partitions} partitions")


def _moment(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")
