"""The calls behind reports: counts of records by hour, group and partition; samples; the groups that need attention.

Every gateway reads the tables of counts and samples. The one that takes the samples knows which groups need attention.
"""

from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from sharequeue.clock import Clock
from sharequeue.protocol import apis
from sharequeue.protocol.histogram import bounds_of
from sharequeue.protocol.messages import reports as messages
from sharequeue.protocol.messages.fields import AnyInt64, PlainText
from sharequeue.protocol.types import MAX_INT32
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.http.answers.page_tokens import PageTokens
from sharequeue_gateway.leader.reports.activity import Activity
from sharequeue_gateway.leader.reports.backlog import WHO, BacklogLook
from sharequeue_gateway.leader.reports.sampler import ASK_S
from sharequeue_gateway.leader.reports.sampling import CLUSTER, NOTHING, fields_of, of_group, of_topic
from sharequeue_gateway.record_log import activity_store, sample_store
from sharequeue_gateway.record_log.activity_store import ActivityTotal
from sharequeue_gateway.record_log.sample_store import BACKLOG, FINE_MS, hours_of
from sharequeue_gateway.record_log.store import HOUR_MS, Query
from sharequeue_gateway.routing.routing import Routing
from sharequeue_http.application.endpoint import Call
from sharequeue_http.forms.errors import InvalidRequest

_FIRST: Final = "00000000-0000-0000-0000-000000000000"
_LAST_HOUR: Final = 2**31 - 1
_TopicId = Annotated[str, Meta(pattern="^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
_place: Final = msgspec.json.Decoder(
    tuple[Annotated[int, Meta(ge=0)], PlainText, _TopicId, Annotated[int, Meta(ge=-1, le=MAX_INT32)]]
)


_rank: Final = msgspec.json.Decoder(tuple[AnyInt64, AnyInt64, PlainText])


@dataclass(eq=False)
class ActivityApi:
    """The handlers of the calls of reports, and of those that the gateways make for them."""

    _activity: Activity
    _backlog: BacklogLook
    _query: Query
    _tokens: PageTokens
    _routing: Routing
    _metadata: Metadata
    _clock: Clock

    async def list_activity(self, call: Call) -> messages.ActivityReport:
        query: messages.ListActivityQuery = call.request
        first_hour = query.from_ms // HOUR_MS
        end_hour = _LAST_HOUR if query.to_ms is None else -(-query.to_ms // HOUR_MS)
        after = self._tokens.place(query.page_token, _place, "listActivity", (first_hour, "", _FIRST, -1))
        await self._activity.flush()
        found = await self._query(
            activity_store.totals,
            min(first_hour, _LAST_HOUR),
            min(end_hour, _LAST_HOUR),
            query.group_id,
            query.topic,
            (min(after[0], _LAST_HOUR), *after[1:]),
            query.page_size + 1,
        )
        page, token = self._tokens.page(found, query.page_size, attrgetter("hour", "group_id", "topic_id", "partition"))
        return messages.ActivityReport(activity=[_entry(total) for total in page], next_page_token=token)

    async def list_samples(self, call: Call) -> messages.SampleList:
        """Answer each step from the first row on. Without a row nothing has changed since the step before."""
        query: messages.ListSamplesQuery = call.request
        if query.group_id is not None and query.topic is not None:
            raise InvalidRequest("give group_id or topic, not both: a sample is of one of them")
        series = CLUSTER if query.group_id is None else of_group(query.group_id)
        if query.topic is not None:
            series = of_topic((await self._metadata.topic(query.topic)).topic_id)
        now_ms = self._clock.now_ms()
        end_ms = min(now_ms if query.to_ms is None else query.to_ms, now_ms)
        begin_ms = max(end_ms - HOUR_MS, 0) if query.from_ms is None else query.from_ms
        if begin_ms > end_ms:
            raise InvalidRequest(f"from_ms {begin_ms} is after the end of the span, {end_ms}")
        step_ms = max(query.step_ms, -(-(end_ms - begin_ms) // (messages.MOST_POINTS - 1)))
        if begin_ms < now_ms - FINE_MS:
            series, step_ms = hours_of(series), -(-step_ms // HOUR_MS) * HOUR_MS
        first, end = begin_ms // step_ms, -(-end_ms // step_ms)
        steps = await self._query(sample_store.steps, series, first, end, step_ms)
        counts = steps.get(first - 1)
        points = []
        for step in range(first, end):
            counts = steps.get(step) or (counts and [*NOTHING[:BACKLOG], *counts[BACKLOG:]])
            if counts:
                points.append(messages.Sample(**fields_of(counts, (step + 1) * step_ms, now_ms)))
        return messages.SampleList(step_ms=step_ms, points=points)

    async def list_attention(self, call: Call) -> Any:
        sampler = self._routing.cluster.leader_of(WHO)
        return await self._routing.answered(sampler, apis.ATTENTION_AT_LEADER, call, self.attention_at_leader, ASK_S)

    async def attention_at_leader(self, call: Call) -> messages.AttentionList:
        query: messages.AttentionQuery = call.request
        after = self._tokens.place(query.page_token, _rank, "listGroupsByAttention", None)
        sampling = await self._backlog.seen()
        found = sampling.behind(after, query.page_size + 1, query.group_id)
        page, token = self._tokens.page(found, query.page_size, itemgetter(0))
        groups = [group for _, group in page]
        return messages.AttentionList(period_ms=sampling.period_ms, groups=groups, next_page_token=token)

    async def figures_here(self, call: Call) -> messages.Figures:
        return await self._backlog.sampler.here(call.request)


def _entry(total: ActivityTotal) -> messages.ActivityEntry:
    fields = total._asdict() | {
        "group_id": total.group_id or msgspec.UNSET,
        "deliveries": [
            messages.DeliveryCount(delivery_count=count, records=records) for count, records in total.deliveries.items()
        ],
        "times_to_accept": [
            messages.TimeToAccept(from_ms=from_ms, below_ms=below_ms, records=records)
            for bucket, records in total.times_to_accept.items()
            for from_ms, below_ms in (bounds_of(bucket),)
        ],
        "dead_letters": [
            messages.DeadLetterCount(cause=cause, records=records) for cause, records in total.dead_letters.items()
        ],
    }
    return messages.ActivityEntry(hour_ms=fields.pop("hour") * HOUR_MS, **fields)
