"""Transactions: calls of a gateway. Any gateway takes any of them."""

from collections.abc import Iterable, Mapping
from functools import partial

from sharequeue.protocol import bounds, capabilities
from sharequeue.protocol.access.columns import Access, Need, Shown, always, cluster, given, topics
from sharequeue.protocol.messages import transactions as messages
from sharequeue_http.forms.api import Api

_NAMED = Need("WRITE", "TRANSACTIONAL_ID", given("transactional_id"))
_GROUPS_SETTLED = Need(
    "READ",
    "GROUP",
    lambda _, request: [each.group_id for each in request.acknowledgements] if request else (),
)


def _topics_settled(_: Mapping[str, str], request: messages.CommitTransactionRequest | None) -> Iterable[str]:
    return {each.topic for member in request.acknowledgements for each in member.acknowledgements} if request else ()


_call = partial(Api, tag="Transactions", needs=capabilities.always(capabilities.Capability.TRANSACTIONS))
_ends = partial(
    _call,
    request=messages.EndTransactionRequest,
    response=messages.EndedTransaction,
    errors=(
        "INVALID_TXN_STATE",
        "CONCURRENT_TRANSACTIONS",
        "PRODUCER_FENCED",
        "TRANSACTIONAL_ID_NOT_FOUND",
        "THROTTLING_QUOTA_EXCEEDED",
        "REQUEST_TIMED_OUT",
    ),
    idempotent=True,
)
BEGIN_TRANSACTION = _call(
    "beginTransaction",
    "POST /v1/transactions",
    "Begin a transaction: records of several requests that become visible together, or never.",
    description="Produce with the header `Transaction-Id`. The records are durable at once, and groups with "
    "`share.isolation.level=read_committed` get them after the commit. Groups with the default `read_uncommitted` get them "
    "at once.",
    request=messages.BeginTransactionRequest,
    response=messages.BegunTransaction,
    status=201,
    errors=(
        "INVALID_PRODUCER_EPOCH",
        "INVALID_TXN_STATE",
        "INVALID_TRANSACTION_TIMEOUT",
        "CONCURRENT_TRANSACTIONS",
        "PRODUCER_FENCED",
        "THROTTLING_QUOTA_EXCEEDED",
        "TRANSACTIONAL_ID_NOT_FOUND",
    ),
    access=Access((_NAMED,)),
)
COMMIT_TRANSACTION = _ends(
    "commitTransaction",
    "POST /v1/transactions/{transaction}/commit",
    "Commit a transaction: all of its records become visible.",
    description="A repeat is answered the same for at least 25 hours. If the transaction was aborted, the answer is a "
    "Problem that says by whom. After an answer with `definite` false, or none, repeat the request to get the outcome.",
    request=messages.CommitTransactionRequest,
    check_body=bounds.check_values,
    large=True,
    access=Access((_GROUPS_SETTLED, topics("READ", _topics_settled)), goes_on=always),
)
ABORT_TRANSACTION = _ends(
    "abortTransaction",
    "POST /v1/transactions/{transaction}/abort",
    "Abort a transaction: none of its records become visible to readers of committed records.",
    description="A repeat is answered the same for at least 25 hours.",
    access=Access(goes_on=always),
)
TERMINATE_TRANSACTION = _ends(
    "terminateTransaction",
    "POST /v1/transactions/{transaction}/terminate",
    "Abort a transaction as an operator: one that holds back the readers of committed records.",
    description="The next call of its client is refused. Kafka has `kafka-transactions.sh abort` for this.",
    access=Access((cluster("ALTER"),), audited=always),
)
LIST_TRANSACTIONS = _call(
    "listTransactions",
    "GET /v1/transactions",
    "List the transactions of one state, a page at a time.",
    description="Kafka has `kafka-transactions.sh list` and `find-hanging` for this. The open ones come the oldest first, the ended ones the last one first.",
    request=messages.ListTransactionsQuery,
    response=messages.TransactionList,
    access=Access(),
)
DESCRIBE_TRANSACTION = _call(
    "describeTransaction",
    "GET /v1/transactions/{transaction}",
    "Describe a transaction: its state, and the partitions that it wrote to.",
    description="What became of a transaction is known for 25 hours.",
    response=messages.TransactionDescription,
    errors=("TRANSACTIONAL_ID_NOT_FOUND",),
    access=Access(
        shows=(
            *(Shown(place, "TOPIC", "topic") for place in ("partitions", "blocks", "unapplied")),
            *(Shown(place, "GROUP", "group_id") for place in ("blocks", "unapplied")),
        )
    ),
)
