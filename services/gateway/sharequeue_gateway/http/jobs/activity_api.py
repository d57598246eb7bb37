"""The call behind reports: counts of records by hour, group and partition."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from sharequeue.protocol.histogram import bounds_of
from sharequeue.protocol.messages.fields import PlainText
from sharequeue.protocol.messages.reports import (
    ActivityEntry,
    ActivityReport,
    DeadLetterCount,
    DeliveryCount,
    ListActivityQuery,
    TimeToAccept,
)
from sharequeue.protocol.types import MAX_INT32
from sharequeue_gateway.http.answers.page_tokens import PageTokens
from sharequeue_gateway.leader.reports.activity import HOUR_MS, Activity
from sharequeue_gateway.record_log import activity_store
from sharequeue_gateway.record_log.activity_store import ActivityTotal
from sharequeue_gateway.record_log.store import Query
from sharequeue_http.application.endpoint import Call

_FIRST: Final = "00000000-0000-0000-0000-000000000000"
_LAST_HOUR: Final = 2**31 - 1
_TopicId = Annotated[str, Meta(pattern="^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
_place: Final = msgspec.json.Decoder(
    tuple[Annotated[int, Meta(ge=0)], PlainText, _TopicId, Annotated[int, Meta(ge=-1, le=MAX_INT32)]]
)


class ActivityApi:
    """The handler of listActivity."""

    def __init__(self, activity: Activity, query: Query, tokens: PageTokens) -> None:
        self._activity = activity
        self._query = query
        self._tokens = tokens

    async def list_activity(self, call: Call) -> ActivityReport:
        query: ListActivityQuery = call.request
        first_hour = query.from_ms // HOUR_MS
        end_hour = _LAST_HOUR if query.to_ms is None else -(-query.to_ms // HOUR_MS)
        after = (first_hour, "", _FIRST, -1)
        if query.page_token is not None:
            after = self._tokens.place(query.page_token, _place, "listActivity")
        await self._activity.flush()
        found: list[ActivityTotal] = await self._query(
            activity_store.totals,
            min(first_hour, _LAST_HOUR),
            min(end_hour, _LAST_HOUR),
            query.group_id,
            query.topic,
            (min(after[0], _LAST_HOUR), *after[1:]),
            query.page_size + 1,
        )
        more = len(found) > query.page_size
        found = found[: query.page_size]
        report = ActivityReport(activity=[_entry(total) for total in found])
        if more:
            last = found[-1]
            report.next_page_token = self._tokens.token((last.hour, last.group_id, last.topic_id, last.partition))
        return report


def _entry(total: ActivityTotal) -> ActivityEntry:
    bounds = {bucket: bounds_of(bucket) for bucket in total.times_to_accept}
    return ActivityEntry(
        hour_ms=total.hour * HOUR_MS,
        group_id=total.group_id or msgspec.UNSET,
        topic=total.topic,
        topic_id=total.topic_id,
        partition=total.partition,
        produced=total.produced,
        delivered=total.delivered,
        accepted=total.accepted,
        released=total.released,
        rejected=total.rejected,
        expired=total.expired,
        deliveries=[
            DeliveryCount(delivery_count=count, records=records) for count, records in total.deliveries.items()
        ],
        times_to_accept=[
            TimeToAccept(from_ms=bounds[bucket][0], below_ms=bounds[bucket][1], records=records)
            for bucket, records in total.times_to_accept.items()
        ],
        dead_letters=[DeadLetterCount(cause=cause, records=records) for cause, records in total.dead_letters.items()],
    )
