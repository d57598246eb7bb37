"""The messages of all calls: what is sent and answered, field by field as the HTTP contract names it.

    fields ──▶ problems, operations, topics, records, in_flight, groups, reports, audit, compaction   clients' calls
           ──▶ share_state, cluster, leaders                                                           services' calls

A request refuses unknown fields. An optional field of an answer is absent, not null. Offsets are int64; `last_offset` is
inclusive, `log_end_offset` exclusive. Any layer may import a message; a message knows only types and bounds.
"""

from sharequeue.protocol.messages.fields import *  # noqa: F403
from sharequeue.protocol.messages.groups import *  # noqa: F403
from sharequeue.protocol.messages.in_flight import *  # noqa: F403
from sharequeue.protocol.messages.operations import *  # noqa: F403
from sharequeue.protocol.messages.problems import *  # noqa: F403
from sharequeue.protocol.messages.records import *  # noqa: F403
from sharequeue.protocol.messages.topics import *  # noqa: F403
