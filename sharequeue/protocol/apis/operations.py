"""For operators: reports, audits (with the cluster token), and what every service answers about itself."""

from functools import partial

from sharequeue.protocol.access.columns import OPEN, Access, Shown, cluster
from sharequeue.protocol.access.rights import Operation, ResourceType
from sharequeue.protocol.messages.audit import AuditLogQuery, AuditStateResponse, ExportStateQuery, LogAudit
from sharequeue.protocol.messages.operations import Empty, Readiness, ReadinessQuery
from sharequeue.protocol.messages.reports import ActivityReport, ListActivityQuery
from sharequeue_http.forms.api import Api

_call = partial(Api, tag="Operations")
LIST_ACTIVITY = Api(
    "listActivity",
    "GET",
    "/v1/reports/activity",
    "Report the records that went through the queue, by hour, group and partition, a page at a time.",
    description="Gateways write their counts every five seconds and when they stop; a crash loses the counts since the "
    "last time. An hour that lies only partly between `from_ms` and `to_ms` is counted whole.",
    request=ListActivityQuery,
    response=ActivityReport,
    tag="Reports",
    access=Access(
        shows=(
            Shown("activity", ResourceType.TOPIC, "topic"),
            Shown("activity", ResourceType.GROUP, "group_id", unnamed=True),
        )
    ),
)
AUDIT_SHARE_STATE = Api(
    "auditShareState",
    "GET",
    "/v1/audit/share-state",
    "Compare the stored rows of share-partitions with their share coordinators' answers and the ends of their logs.",
    description="It needs the cluster token. The rows bypass every cache; the answers are those of the owners at the time "
    "of the call.",
    request=ExportStateQuery,
    response=AuditStateResponse,
    tag="Audit",
    protected=True,
    errors=("SASL_AUTHENTICATION_FAILED",),
)
AUDIT_LOG = Api(
    "auditLog",
    "GET",
    "/v1/audit/log/{topic_id}/{partition}",
    "List the record batches of a partition as they are stored, without their records.",
    description="It needs the cluster token. The list bypasses every cache and holds batches below the log start that are "
    "not purged yet.",
    request=AuditLogQuery,
    response=LogAudit,
    tag="Audit",
    protected=True,
    errors=("SASL_AUTHENTICATION_FAILED",),
)
LIVEZ = _call(
    "livez",
    "GET",
    "/livez",
    "Whether the process runs.",
    description="It asks no dependency: restart a process that does not answer.",
    response=Empty,
    access=OPEN,
)
READYZ = _call(
    "readyz",
    "GET",
    "/readyz",
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
    "GET",
    "/metrics",
    "Metrics in Prometheus text form.",
    description="A family writes at most 5,000 series. docs/metrics.md names all of them.",
    access=Access((cluster(Operation.DESCRIBE),)),
)
