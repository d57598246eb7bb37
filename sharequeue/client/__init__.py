"""The Python client: `Producer` and `ShareConsumer`; `sharequeue.client.sync` has the same without async.

Errors: `ApiError` is the service's problem (`error.code`, `status`, `detail`, `definite`, and `problem`, the whole
document); `AcknowledgementError` lists what was not applied; `IllegalState` is a fault of the caller; `ValueTooDeep` is raised
by `Record.value` alone.
"""

from sharequeue.client.deliveries import (
    AcknowledgementError,
    AcknowledgementFailure,
    IllegalState,
    Record,
    ValueTooDeep,
)
from sharequeue.client.producer import NewRecord, Pending, Produced, Producer
from sharequeue.client.settling import Committed
from sharequeue.client.share_consumer import ShareConsumer
from sharequeue.protocol.errors import ApiError

__all__ = [
    "AcknowledgementError",
    "AcknowledgementFailure",
    "ApiError",
    "Committed",
    "IllegalState",
    "NewRecord",
    "Pending",
    "Produced",
    "Producer",
    "Record",
    "ShareConsumer",
    "ValueTooDeep",
]
