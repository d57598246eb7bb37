"""For operators: reports, audits (with the cluster token), and what every service answers about itself."""

from sharequeue.protocol.apis.api import Api
from sharequeue.protocol.messages.audit import AuditLogQuery, AuditStateResponse, ExportStateQuery, LogAudit
from sharequeue.protocol.messages.operations import Empty, Readiness
from sharequeue.protocol.messages.reports import ActivityReport, ListActivityQuery

LIST_ACTIVITY = Api(
    "listActivity",
    "GET",
    "/v1/reports/activity",
    "Report the records that went through the queue, by hour, group and partition, a page at a time.",
    request=ListActivityQuery,
    response=ActivityReport,
    tag="Reports",
    idempotent=True,
)
AUDIT_SHARE_STATE = Api(
    "auditShareState",
    "GET",
    "/v1/audit/share-state",
    "Compare the stored rows of share-partitions with their share coordinators' answers and the ends of their logs.",
    request=ExportStateQuery,
    response=AuditStateResponse,
    tag="Audit",
    errors=("CLUSTER_AUTHORIZATION_FAILED",),
    idempotent=True,
)
AUDIT_LOG = Api(
    "auditLog",
    "GET",
    "/v1/audit/log/{topic_id}/{partition}",
    "List the record batches of a partition as they are stored, without their records.",
    request=AuditLogQuery,
    response=LogAudit,
    tag="Audit",
    errors=("CLUSTER_AUTHORIZATION_FAILED",),
    idempotent=True,
)
LIVEZ = Api(
    "livez",
    "GET",
    "/livez",
    "Whether the process runs.",
    response=Empty,
    tag="Operations",
    idempotent=True,
)
READYZ = Api(
    "readyz",
    "GET",
    "/readyz",
    "Whether the service can do its work, and which dependency is missing; 503 if it cannot.",
    response=Readiness,
    also=(503,),
    tag="Operations",
    idempotent=True,
)
METRICS = Api(
    "metrics",
    "GET",
    "/metrics",
    "Metrics in Prometheus text form.",
    tag="Operations",
    idempotent=True,
)
