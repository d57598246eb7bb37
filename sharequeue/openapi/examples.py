"""The examples of the document: one story from an empty stack on, in the order in which its calls succeed.

The requests are written here. The answers are those of a real stack, in examples.json beside this file: a test plays
the story and compares (`tests/http/test_examples.py`).
"""

import base64
import functools
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from importlib.resources import files
from typing import Any, Final

from sharequeue.protocol import apis
from sharequeue_http.forms.api import Api


@dataclass(frozen=True, slots=True)
class Example:
    """One call of the story."""

    name: str
    """A word for the example, distinct among all."""
    api: Api
    summary: str
    _: KW_ONLY
    path: Mapping[str, Any] = field(default_factory=dict)
    query: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    """JSON, or bytes for a raw body."""
    status: int | None = None
    """The status of the answer, if it is not the call's usual one."""
    eventual: bool = False
    """Whether the answer may come only after a while, as gateways write counts and dead letters in the background."""
    varies: bool = False
    """Whether each answer is another one, with the time: the document shows one of them."""

    @property
    def answered(self) -> int:
        return self.api.status if self.status is None else self.status


ORDERS: Final = {"topic": "orders"}
REMINDERS: Final = {"topic": "reminders"}
MORNING: Final = {"topic": "reminders", "name": "morning"}
TRANSACTION_ID: Final = "0b6ff7a6-3c0c-4c9e-9d55-6a1d0c6b2f11"
PRODUCER_EPOCH: Final = 60_000_000
TRANSACTION: Final = {"transaction": TRANSACTION_ID}
BILLING: Final = {"group": "billing"}
KEY_ID: Final = "3d1f0a5c9b7e2846"
KEY: Final = {"key_id": KEY_ID}
RIGHT: Final = {
    "principal": "User:orders-team",
    "operation": "READ",
    "resource_type": "TOPIC",
    "resource_name": "orders",
    "pattern_type": "PREFIXED",
}
RECORDS: Final = [
    {"key": "ann", "value": {"id": 1, "total": 9.5}, "headers": {"source": "shop"}},
    {"key": "bob", "value": {"id": 2, "total": 3.0}},
    {"key": "cyd", "value": {"id": 3, "total": 7.25}},
]

ARROW: Final = zlib.decompress(
    base64.b64decode(
        "eNp1UEEOgjAQHKFgQ3rogRie4IkgiXe/AgknDZ40MfEhPsoH8Js6rUskVSfZ7k6Z2e3inHMPABYeBQxyZNCsiJUiB5nmqeQEEsZB6ol+CjPvr+"
        "TOI2Ncu9NlYH5SY1HSn2MdOlqZ9+1LGcfhRq7CHa1uYi7lu8FGXmhCJ6Qq+BvMKMhNeK3f4S67Jfggx38YyTbSVpGuivRbyXqhSaK5+MHnnec5"
        "3Tj25/5dq0W/dlfv27ZuXPjfwAuDqyAp"
    )
)
"""An Arrow stream with the columns `key` and `value` and two rows."""


def _settled(first_offset: int, word: str, **more: Any) -> dict[str, Any]:
    place = {"topic": "orders", "partition": 0, "first_offset": first_offset, "last_offset": first_offset}
    return {**place, "delivery_count": 1, "type": word, **more}


STORY: Final = (
    Example(
        "create",
        apis.CREATE_TOPIC,
        "A topic whose records go after a week",
        body={"name": "orders", "partitions": 1, "config": {"retention.ms": "604800000"}},
    ),
    Example("create-again", apis.CREATE_TOPIC, "The topic is there already", body={"name": "orders"}, status=409),
    Example(
        "misspelt",
        apis.CREATE_TOPIC,
        "An unknown field",
        body={"name": "invoices", "partition": 3},
        status=422,
    ),
    Example(
        "produce",
        apis.PRODUCE_RECORDS,
        "Three records, stored once even if the request is repeated",
        path=ORDERS,
        headers={"Idempotency-Key": "orders-2026-01-01-1"},
        body={"records": RECORDS},
    ),
    Example(
        "produce-bytes",
        apis.PRODUCE_RECORDS,
        "A value of bytes, in base64",
        path={"topic": "scans"},
        body={"records": [{"key": "ann", "value_base64": "JVBERi0xLjc="}]},
    ),
    Example(
        "produce-raw",
        apis.PRODUCE_RAW_RECORD,
        "The body is the value",
        path={"topic": "scans"},
        headers={"Record-Key": "ann", "Content-Type": "application/octet-stream"},
        body=b"any bytes",
    ),
    Example(
        "produce-arrow",
        apis.PRODUCE_ARROW,
        "The rows of an Arrow stream",
        path={"topic": "scans"},
        headers={"Content-Type": apis.ARROW_STREAM},
        body=ARROW,
    ),
    Example(
        "stream",
        apis.STREAM_RECORDS,
        "The records of a topic as they come",
        path={"group": "previews"},
        query={"topic": "scans", "member_id": "w-1", "resume_ms": 0},
        headers={"Accept": "text/event-stream"},
    ),
    Example(
        "lock-longer",
        apis.UPDATE_SHARE_GROUP_CONFIG,
        "A minute for each record, and the default limit of deliveries",
        path=BILLING,
        body={
            "config": {"share.record.lock.duration.ms": "60000"},
            "reset": ["share.delivery.count.limit"],
        },
    ),
    Example("settings", apis.GET_SHARE_GROUP_CONFIG, "All settings in force", path=BILLING),
    Example("service-settings", apis.GET_SHARE_GROUP_SERVICE_CONFIG, "Nothing is clamped", path=BILLING),
    Example(
        "fetch",
        apis.FETCH_RECORDS,
        "Wait up to five seconds for at most ten records",
        path=BILLING,
        body={"topics": ["orders"], "member_id": "w-1", "max_records": 10, "max_wait_ms": 5000},
    ),
    Example(
        "by-hand",
        apis.CHANGE_RECORD,
        "An operator lets the worker of one record hold it for two minutes",
        path={**BILLING, **ORDERS, "partition": 0, "offset": 2},
        body={"action": "extend", "delivery_count": 1, "lock_duration_ms": 120_000},
    ),
    Example(
        "settle",
        apis.ACKNOWLEDGE_RECORDS,
        "One is done, one comes again, one becomes a dead letter",
        path=BILLING,
        body={
            "member_id": "w-1",
            "acknowledgements": [
                _settled(0, "accept"),
                _settled(1, "release", reason="the bank is closed", delay_ms=3_600_000),
                _settled(2, "reject", reason="no such customer"),
            ],
        },
    ),
    Example(
        "settle-foreign",
        apis.ACKNOWLEDGE_RECORDS,
        "The member does not hold this record",
        path=BILLING,
        body={"member_id": "w-2", "acknowledgements": [_settled(1, "accept")]},
        status=409,
    ),
    Example("at-work", apis.LIST_SHARE_GROUPS, "What each group has to do now", query={"work": True}, eventual=True),
    Example("in-flight", apis.LIST_IN_FLIGHT_RECORDS, "Each record that is not finished", path=BILLING, eventual=True),
    Example(
        "window",
        apis.DESCRIBE_WINDOW,
        "The same of one partition, counted",
        path={**BILLING, **ORDERS, "partition": 0},
        query={"buckets": 10},
    ),
    Example(
        "dead-letters",
        apis.READ_RECORDS,
        "The dead letters of the group",
        path={"topic": "dlq.billing", "partition": 0},
        query={"offset": 0, "max_records": 100},
    ),
    Example("open-letters", apis.LIST_DEAD_LETTERS, "Those that are open", path=BILLING, eventual=True),
    Example(
        "letters-dropped",
        apis.DROP_DEAD_LETTERS,
        "Count those that a drop would close",
        path=BILLING,
        body={"reason": "no such customer", "dry_run": True},
    ),
    Example(
        "record-life",
        apis.LOOK_UP_RECORD,
        "What became of one record",
        path={**BILLING, **ORDERS, "partition": 0, "offset": 2},
    ),
    Example(
        "records-of-key", apis.FIND_RECORDS, "The same by its key", path={**BILLING, **ORDERS}, query={"key": "cyd"}
    ),
    Example(
        "redrive",
        apis.REDRIVE_DEAD_LETTERS,
        "Send those of unknown customers again",
        path=BILLING,
        body={"reason": "no such customer", "to": "retry"},
    ),
    Example(
        "join",
        apis.SHARE_GROUP_HEARTBEAT,
        "Join the group",
        path=BILLING,
        headers={"Client-Id": "billing-worker"},
        body={"member_id": "w-2", "member_epoch": 0, "subscribed_topic_names": ["orders"]},
    ),
    Example("group", apis.DESCRIBE_SHARE_GROUP, "The group and its members", path=BILLING),
    Example("groups", apis.LIST_SHARE_GROUPS, "Groups with members", query={"state": "Stable"}),
    Example("offsets", apis.LIST_SHARE_GROUP_OFFSETS, "How far the group is", path=BILLING, eventual=True),
    Example(
        "key",
        apis.CREATE_KEY,
        "A key of a team",
        body={"principal": "User:orders-team", "description": "the workers in Berlin"},
    ),
    Example("keys", apis.LIST_KEYS, "The keys of the team", query={"principal": "User:orders-team"}),
    Example(
        "rotate", apis.ROTATE_KEY, "Another key, and an hour for the change", path=KEY, body={"overlap_ms": 3_600_000}
    ),
    Example("revoke", apis.REVOKE_KEY, "The old key ends now", path=KEY),
    Example("revoke-old", apis.REVOKE_KEYS, "After a restore", query={"made_before_ms": 1_700_000_000_000}),
    Example(
        "allow",
        apis.ADD_ACLS,
        "The team may read all topics whose names begin with `orders`",
        body={"acls": [RIGHT]},
    ),
    Example("rights", apis.LIST_ACLS, "What the team may do", query={"principal": "User:orders-team"}),
    Example("forbid", apis.REMOVE_ACLS, "Nothing any more", query={"principal": "User:orders-team"}),
    Example("leave", apis.LEAVE_SHARE_GROUP, "Leave the group", path={**BILLING, "member_id": "w-2"}),
    Example("activity", apis.LIST_ACTIVITY, "What was produced", query={"topic": "scans"}, eventual=True),
    Example(
        "attention", apis.LIST_ATTENTION, "The group that needs attention most", query={"page_size": 1}, varies=True
    ),
    Example(
        "samples",
        apis.LIST_SAMPLES,
        "The last minutes of a topic",
        query={"topic": "scans", "step_ms": 60_000},
        varies=True,
    ),
    Example(
        "reset",
        apis.RESET_SHARE_GROUP_OFFSETS,
        "Begin again, although the group is in use",
        path=BILLING,
        body={"to": "earliest", "topics": [{"topic": "orders"}], "force": True},
    ),
    Example(
        "forget-topic",
        apis.DELETE_SHARE_GROUP_OFFSETS,
        "Forget one topic",
        path={**BILLING, **ORDERS},
        query={"force": True},
    ),
    Example("delete-group", apis.DELETE_SHARE_GROUP, "Delete the group", path=BILLING, query={"force": True}),
    Example("gone", apis.DESCRIBE_SHARE_GROUP, "There is no such group", path=BILLING, status=404),
    Example(
        "compact",
        apis.UPDATE_TOPIC,
        "Keep the last record of each key",
        path=ORDERS,
        body={"config": {"cleanup.policy": "compact"}, "reset": ["retention.ms"]},
    ),
    Example(
        "produce-newer",
        apis.PRODUCE_RECORDS,
        "A newer record of a key, in a certain partition",
        path=ORDERS,
        body={"records": [{"key": "ann", "value": {"id": 1, "total": 0}, "partition": 0}]},
    ),
    Example("batches", apis.LIST_RECORD_BATCHES, "All batches", path={**ORDERS, "partition": 0}),
    Example(
        "remove",
        apis.REPLACE_RECORD_BATCHES,
        "Remove the older record of the key",
        path={**ORDERS, "partition": 0},
        body={
            "batches": [{"base_offset": 0, "generation": 0, "remove": [{"first_offset": 0, "last_offset": 0}]}],
        },
    ),
    Example(
        "delete-records",
        apis.DELETE_RECORDS,
        "Delete the first two offsets",
        path=ORDERS,
        body={"partitions": [{"partition": 0, "before_offset": 2}]},
    ),
    Example("topic", apis.DESCRIBE_TOPIC, "The topic and its partitions", path=ORDERS),
    Example("no-topic", apis.DESCRIBE_TOPIC, "There is no such topic", path={"topic": "ordres"}, status=404),
    Example("topics", apis.LIST_TOPICS, "All topics", query={"page_size": 100}),
    Example("delete-topic", apis.DELETE_TOPIC, "Delete a topic", path={"topic": "scans"}),
    Example("service", apis.DESCRIBE_SERVICE, "A service whose record log is PostgreSQL's"),
    Example("alive", apis.LIVEZ, "The process runs"),
    Example("ready", apis.READYZ, "All dependencies are there"),
    Example("metrics", apis.METRICS, "The lines of one family"),
    Example(
        "transaction",
        apis.BEGIN_TRANSACTION,
        "A producer that keeps its name over restarts",
        body={"transactional_id": "shop-1", "timeout_ms": 60_000},
    ),
    Example(
        "transaction-produce",
        apis.PRODUCE_RECORDS,
        "A record of a transaction",
        path={"topic": "invoices"},
        headers={"Transaction-Id": TRANSACTION_ID},
        body={"records": [{"value": {"id": 1}}]},
    ),
    Example("transactions", apis.LIST_TRANSACTIONS, "The open transactions", query={"older_than_ms": 0}),
    Example("transaction-open", apis.DESCRIBE_TRANSACTION, "An open transaction", path=TRANSACTION),
    Example("transaction-commit", apis.COMMIT_TRANSACTION, "The outcome", path=TRANSACTION, body={"note": "batch 7"}),
    Example(
        "transaction-too-late", apis.ABORT_TRANSACTION, "It was committed before", path=TRANSACTION, body={}, status=409
    ),
    Example(
        "transaction-again",
        apis.BEGIN_TRANSACTION,
        "The next transaction of this producer",
        body={"transactional_id": "shop-1", "producer_epoch": PRODUCER_EPOCH},
    ),
    Example(
        "transaction-abort",
        apis.ABORT_TRANSACTION,
        "Nothing was written",
        path=TRANSACTION,
        body={},
    ),
    Example("transaction-of-another", apis.BEGIN_TRANSACTION, "A transaction without a name", body={}),
    Example("transaction-terminate", apis.TERMINATE_TRANSACTION, "An operator ends it", path=TRANSACTION, body={}),
    Example(
        "produce-requests",
        apis.PRODUCE_RECORDS,
        "Work for a worker that produces",
        path={"topic": "requests"},
        body={"records": [{"value": {"id": 1}}, {"value": {"id": 2}}]},
    ),
    Example(
        "fetch-requests",
        apis.FETCH_RECORDS,
        "The worker takes it",
        path={"group": "pricing"},
        body={"topics": ["requests"], "member_id": "w-1", "max_records": 10, "max_wait_ms": 5000},
    ),
    Example(
        "settle-and-produce",
        apis.ACKNOWLEDGE_RECORDS,
        "Settle a record and produce its result, in one step",
        path={"group": "pricing"},
        headers={"Idempotency-Key": "price-of-1"},
        body={
            "member_id": "w-1",
            "acknowledgements": [_settled(0, "accept", topic="requests")],
            "produce": [{"topic": "prices", "records": [{"value": {"id": 1, "price": 9.5}}]}],
        },
    ),
    Example(
        "schedule",
        apis.SCHEDULE_RECORDS,
        "A reminder for tomorrow",
        path=REMINDERS,
        headers={"Idempotency-Key": "remind-ann-of-1"},
        body={"records": [{"key": "ann", "value": {"order": 1}, "delay_ms": 86_400_000}]},
    ),
    Example("scheduled", apis.LIST_SCHEDULED_RECORDS, "What waits for its time", path=REMINDERS),
    Example("cancel", apis.CANCEL_SCHEDULED_RECORDS, "Take it back", path=REMINDERS, body={"key": "ann"}),
    Example(
        "put-schedule",
        apis.PUT_SCHEDULE,
        "A report each morning at half past seven",
        path=MORNING,
        body={"cron": "30 7 * * *", "time_zone": "Europe/Berlin", "record": {"value": {"report": "daily"}}},
    ),
    Example("due", apis.LIST_DUE, "What is due next in all topics", query={"page_size": 1}),
    Example("schedules", apis.LIST_SCHEDULES, "The schedules of the topic", path=REMINDERS),
    Example("schedule-described", apis.GET_SCHEDULE, "With its record", path=MORNING),
    Example("schedule-run", apis.UPDATE_SCHEDULE, "Run it now", path=MORNING, body={"run": True}),
    Example("schedule-deleted", apis.DELETE_SCHEDULE, "Delete it", path=MORNING),
    Example("schedule-missing", apis.GET_SCHEDULE, "It was deleted", path=MORNING, status=404),
    Example("transaction-to-settle", apis.BEGIN_TRANSACTION, "A step of several requests", body={}),
    Example(
        "transaction-settle",
        apis.COMMIT_TRANSACTION,
        "Commit what was produced, and settle what was consumed",
        path=TRANSACTION,
        body={
            "acknowledgements": [
                {
                    "group_id": "pricing",
                    "member_id": "w-1",
                    "acknowledgements": [_settled(1, "accept", topic="requests")],
                }
            ]
        },
    ),
    Example("transaction-to-refuse", apis.BEGIN_TRANSACTION, "One more step", body={}),
    Example(
        "transaction-refused",
        apis.COMMIT_TRANSACTION,
        "The member does not hold the record: nothing is settled, and the transaction is aborted",
        path=TRANSACTION,
        body={
            "acknowledgements": [
                {
                    "group_id": "pricing",
                    "member_id": "w-2",
                    "acknowledgements": [_settled(1, "accept", topic="requests")],
                }
            ]
        },
        status=409,
    ),
)


@functools.cache
def answers() -> Mapping[str, Any]:
    """The answers by the names of the examples; an example without an answer is absent."""
    recorded: dict[str, Any] = json.loads(files(__package__).joinpath("examples.json").read_text("utf-8"))
    return recorded


def examples_of(api: Api) -> Iterator[Example]:
    """The examples of a call, in the order of the story."""
    return (example for example in STORY if example.api is api or example.api.operation_id == api.operation_id)
