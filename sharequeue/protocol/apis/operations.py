"""For operators: reports, and what every service answers about itself."""

from collections.abc import Iterable, Mapping
from functools import partial

from sharequeue.protocol.access.columns import OPEN, Access, Need, Shown, cluster, given, listed, topics
from sharequeue.protocol.access.rights import CLUSTER_NAME
from sharequeue.protocol.errors import TOPIC_ERRORS
from sharequeue.protocol.messages import reports
from sharequeue.protocol.messages.operations import Empty, Readiness, ReadinessQuery, ServiceDescription
from sharequeue_http.forms.api import Api


def _unless_named(_: Mapping[str, str], query: reports.ListSamplesQuery) -> Iterable[str]:
    return () if query.group_id or query.topic else (CLUSTER_NAME,)


_call = partial(Api, tag="Operations")
LIST_ACTIVITY = Api(
    "listActivity",
    "GET /v1/reports/activity",
    "Report the records that went through the queue, by hour, group and partition, a page at a time.",
    description="Gateways write their counts every five seconds and when they stop; a crash loses the counts since the "
    "last time. An hour that lies only partly between `from_ms` and `to_ms` is counted whole.",
    request=reports.ListActivityQuery,
    response=reports.ActivityReport,
    tag="Reports",
    access=Access(
        shows=(
            Shown("activity", "TOPIC", "topic"),
            Shown("activity", "GROUP", "group_id", unnamed=True),
        )
    ),
)
LIST_SAMPLES = Api(
    "listSamples",
    "GET /v1/reports/samples",
    "Report what the cluster, a group or a topic had to do, and did, over the last week.",
    description="One gateway looks every ten seconds (`backlog_interval_ms`). After a day they become one of each "
    "hour, which is kept for a week; listActivity has older counts. A look writes the cluster, and at most 299 groups and topics that "
    "have changed: with more of them, each is written less often, and its counts gather.",
    request=reports.ListSamplesQuery,
    response=reports.SampleList,
    tag="Reports",
    errors=TOPIC_ERRORS,
    access=Access(
        (
            Need("DESCRIBE", "CLUSTER", _unless_named),
            Need("DESCRIBE", "GROUP", given("group_id")),
            topics("DESCRIBE", given("topic")),
        )
    ),
)
LIST_ATTENTION = Api(
    "listGroupsByAttention",
    "GET /v1/reports/attention",
    "List groups in the order of their need for attention, each with its work, its workers and the reasons.",
    description="It is what one gateway saw at its last look, at most ten seconds ago (`backlog_interval_ms`). A group "
    "that has no work, no workers and no dead letters is not listed.",
    request=reports.AttentionQuery,
    response=reports.AttentionList,
    tag="Reports",
    access=Access((listed("GROUP"),), (Shown("groups", "GROUP", "group_id"),)),
)
DESCRIBE_SERVICE = _call(
    "describeService",
    "GET /v1",
    "Say which record log the service has, and what that log can do.",
    description="A call that needs a capability which is not listed answers 501 with its name.",
    response=ServiceDescription,
    access=OPEN,
)
LIVEZ = _call(
    "livez",
    "GET /livez",
    "Whether the process runs.",
    description="It asks no dependency: restart a process that does not answer.",
    response=Empty,
    access=OPEN,
)
READYZ = _call(
    "readyz",
    "GET /readyz",
    "Whether the service can do its work, and which dependency is missing; 503 if another one can do it.",
    description="It answers within a second, even if a dependency hangs. A gateway answers 503 only while it stops, or "
    "if it lacks a store that another gateway can reach. So if all lose a dependency together, all stay in the load balancer. After a "
    "failed write, PostgreSQL counts as missing until a write succeeds.",
    request=ReadinessQuery,
    response=Readiness,
    also=(503,),
    access=OPEN,
)
METRICS = _call(
    "metrics",
    "GET /metrics",
    "Metrics in Prometheus text form.",
    description="A family writes at most 5,000 series. docs/metrics.md names all of them.",
    access=Access((cluster("DESCRIBE"),)),
)
