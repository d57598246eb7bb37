"""`python -m docs.reference`: writes the tables of the reference pages again, from the code that they describe.

    settings.py of each service, HttpLimits ────▶ the strings behind the fields, defaults, bounds ──▶ configuration.md
    protocol/configs.py ──▶ GROUP_CONFIGS, TOPIC_CONFIGS ─────────────────────────────────────────────▶ configuration.md
    metrics of the services ──▶ names, kinds, labels, HELP texts ─────────────────────────────────────▶ metrics.md
    protocol/errors.py, protocol/apis ──▶ rows, and ADVICE below ─────────────────────────────────────▶ errors.md
    protocol/apis ──▶ the column `access` ────────────────────────────────────────────────────────────▶ security.md
    repeats.py ──▶ the rules of new tries ────────────────────────────────────────────────────────────▶ details.md

A table stands between `<!-- made: NAME -->` and `<!-- end -->`. What is around it is written by hand, and stays.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import msgspec
import sharequeue_coordinator.metrics
import sharequeue_coordinator.settings
import sharequeue_gateway.metrics
import sharequeue_gateway.settings
import sharequeue_share_coordinator.metrics
import sharequeue_share_coordinator.settings
from prometheus_client.metrics import MetricWrapperBase
from sharequeue_gateway.leader.reports import backlog, led_metrics, queue_series
from sharequeue_gateway.producing import log_metrics

import sharequeue.ownership.leases
import sharequeue.repeats
import sharequeue.service.failed_looks
import sharequeue.service.operations
import sharequeue.service.time_line
import sharequeue_http.application.endpoint
import sharequeue_http.problems
from sharequeue.openapi.field_texts import field_texts
from sharequeue.protocol import apis
from sharequeue.protocol.configs import GROUP_CONFIGS, TOPIC_CONFIGS, Config
from sharequeue.protocol.errors import KAFKA_CODES
from sharequeue.protocol.service_configs import NAMES
from sharequeue.protocol.types import MAX_INT64
from sharequeue.repeats import Rule
from sharequeue.service.series import Counts, Family
from sharequeue_http.distribution import Histograms, OfEachService
from sharequeue_http.forms.api import Api
from sharequeue_http.limits import HttpLimits

HERE: Final = Path(__file__).parent
ADVICE: Final = {
    "UNKNOWN_SERVER_ERROR": "A fault of the service: look for the request id in its log.",
    "OFFSET_OUT_OF_RANGE": "Read from `log_start_offset` to `log_end_offset`: describeTopic answers both.",
    "CORRUPT_MESSAGE": "The log of the gateway names the batch.",
    "UNKNOWN_TOPIC_OR_PARTITION": "Correct the name or the number, or create the topic.",
    "NOT_LEADER_OR_FOLLOWER": "The partition moves to another gateway: repeat the request.",
    "REQUEST_TIMED_OUT": "The outcome is unknown: repeat it; produce with the same `Idempotency-Key`.",
    "MESSAGE_TOO_LARGE": "Send less in one request, or raise the setting that the detail names. `limit` is in bytes.",
    "COORDINATOR_LOAD_IN_PROGRESS": "A coordinator takes over from another one: repeat the request.",
    "COORDINATOR_NOT_AVAILABLE": "A coordinator is away: repeat the request.",
    "NOT_COORDINATOR": "Groups move to another coordinator: repeat the request.",
    "INVALID_TOPIC_EXCEPTION": "Use 1 to 249 characters of `a-z`, `A-Z`, `0-9`, `.`, `_` and `-`.",
    "INVALID_GROUP_ID": "Use 1 to 249 characters without `/` and control characters, percent-encoded in the path.",
    "UNKNOWN_MEMBER_ID": "The member left, or was silent for too long: join again with `member_epoch` 0.",
    "TOPIC_AUTHORIZATION_FAILED": "Ask an administrator for the right that the detail names: `sharequeue acls add`.",
    "GROUP_AUTHORIZATION_FAILED": "Ask an administrator for the right that the detail names: `sharequeue acls add`.",
    "CLUSTER_AUTHORIZATION_FAILED": "Ask an administrator for the right that the detail names: `sharequeue acls add`.",
    "SASL_AUTHENTICATION_FAILED": "Send a key that holds: `Authorization: Bearer sq_…`.",
    "RESOURCE_NOT_FOUND": "`sharequeue keys list` shows the ids of keys.",
    "UNSUPPORTED_VERSION": "The problem's `capability` names what this record log cannot do: `GET /v1` lists what it can.",
    "TOPIC_ALREADY_EXISTS": "Use the topic that is there, or another name.",
    "INVALID_PARTITIONS": "The detail has the bounds. A topic never gets fewer partitions.",
    "INVALID_CONFIG": "Correct the name or the value: [all settings](configuration.md#group-settings).",
    "INVALID_REQUEST": "Correct what `errors` names. With another status than 422, see [problems](api.md#problems).",
    "UNKNOWN_PATH": "Correct the path: `/docs` of a gateway shows all calls.",
    "HOST_NOT_ALLOWED": "Call the gateway by a name of its setting `allow_hosts` ([proxies](proxy.md)).",
    "ORIGIN_NOT_ALLOWED": "Add the origin of the page to the setting `allow_origins` ([browsers](proxy.md)).",
    "INVALID_PRODUCER_EPOCH": "Begin without `producer_epoch`: this ends the open transaction, and answers the epoch to send.",
    "INVALID_TXN_STATE": "The answer says how the transaction ended. Begin another one.",
    "INVALID_TRANSACTION_TIMEOUT": "The detail has the bounds of `timeout_ms`.",
    "CONCURRENT_TRANSACTIONS": "Another call of this transaction is under way: repeat the request.",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "Ask an administrator for the right that the detail names: `sharequeue acls add`.",
    "KAFKA_STORAGE_ERROR": "A store is away: repeat the request. The answer's own `definite` may be true.",
    "NON_EMPTY_GROUP": "Stop the workers of the group, or send `force`.",
    "GROUP_ID_NOT_FOUND": "Correct the id. The first fetch or setting of a group creates it.",
    "FENCED_LEADER_EPOCH": "Another gateway leads the partition now: repeat the request.",
    "GROUP_MAX_SIZE_REACHED": "Let a member leave, or use one more group. `limit` is the bound.",
    "THROTTLING_QUOTA_EXCEEDED": "Repeat the request later.",
    "PRODUCER_FENCED": "A newer producer has this transactional id: stop this producer.",
    "INVALID_UPDATE_VERSION": "The batch was replaced since it was listed: list it again.",
    "UNKNOWN_TOPIC_ID": "The topic was deleted: leave it out of the session. Records of it need no acknowledgement.",
    "TRANSACTIONAL_ID_NOT_FOUND": "Correct the id. A transaction is known for at least 25 hours after its end.",
    "FENCED_MEMBER_EPOCH": "The member's epoch is an old one: join again with `member_epoch` 0.",
    "INVALID_RECORD_STATE": "The member does not hold these records any more. They come again, to it or to another one.",
    "SHARE_SESSION_NOT_FOUND": "Open a session with `share_session_epoch` 0.",
    "INVALID_SHARE_SESSION_EPOCH": "A request of the session was lost: open a new one with `share_session_epoch` 0.",
    "FENCED_STATE_EPOCH": "The offsets of the group were reset: fetch again.",
    "SHARE_SESSION_LIMIT_REACHED": "Fetch without a session, or repeat the request later.",
}
"""What a caller does about an error, beyond what its row in the table says."""

Rows = Iterable[Sequence[str]]


def table(heads: Sequence[str], rows: Rows) -> str:
    """A table in Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


_SERVICE_WIDE: Final = {
    name.replace(".", "_"): text.format(setting)
    for setting, names in NAMES.items()
    for name, text in zip(
        names,
        (
            "The least `{}` that a group may have.",
            "The `{}` of a group that has none of its own.",
            "The highest `{}` that a group may have.",
        ),
        strict=True,
    )
}


def settings(kind: type[msgspec.Struct], leave_out: type[msgspec.Struct] | None = None) -> str:
    """The settings of a service: what the source says behind each field."""
    texts = {**_SERVICE_WIDE, **field_texts(kind)}
    without = leave_out.__struct_fields__ if leave_out else ()
    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.StructType)
    rows = [
        (f"`{field.name}`", _default(field), _range(field.type), texts[field.name])
        for field in info.fields
        if field.name not in without
    ]
    return table(("setting", "default", "bounds", "meaning"), rows)


def _default(field: msgspec.inspect.Field) -> str:
    if field.required:
        return "required"
    value = field.default
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, int):
        return f"`{value}`{_in_units(field.name, value)}"
    return f"`{value}`" if value else "empty"


_UNITS: Final = {
    "_ms": (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)),
    "_bytes": (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)),
}


def _in_units(name: str, value: int) -> str:
    """A number of milliseconds or bytes in the largest unit that has a whole number of it."""
    for ending, units in _UNITS.items():
        if name.replace(".", "_").endswith(ending):
            return next((f" ({value // size} {unit})" for unit, size in units if value and value % size == 0), "")
    return ""


def _range(kind: msgspec.inspect.Type) -> str:
    if isinstance(kind, msgspec.inspect.Metadata):
        return _range(kind.type)
    if not isinstance(kind, msgspec.inspect.IntType):
        return ""
    if kind.le is not None:
        return f"{kind.ge or 0}–{kind.le}"
    return "" if kind.ge is None else f"from {kind.ge}"


def _bounds(config: Config, kafka_defaults: bool = False) -> str:
    if config.kind != "int":
        return config.form or ", ".join(config.choices)
    low, high = config.bounds(kafka_defaults)
    return f"{_minus(low)}–{high}" if high < MAX_INT64 else f"from {_minus(low)}"


def _minus(number: int) -> str:
    return str(number).replace("-", "−")


def _value(config: Config, kafka_defaults: bool) -> str:
    value = config.default_for(kafka_defaults)
    if config.kind == "int":
        return f"{_minus(int(value))}{_in_units(config.name, int(value))}"
    return f"`{value}`" if value else "empty"


def group_settings() -> str:
    """The settings of groups. Kafka's default and bounds stand where they differ."""
    rows = []
    for config in GROUP_CONFIGS.values():
        ours, kafkas = ((_value(config, kafka), _bounds(config, kafka)) for kafka in (False, True))
        differ = [theirs for own, theirs in zip(ours, kafkas, strict=True) if theirs != own]
        rows.append((f"`{config.name}`", *ours, "; ".join(differ), config.doc))
    return table(("setting", "default", "bounds", "Kafka's", "meaning"), rows)


def topic_settings() -> str:
    """The settings of topics."""
    rows = []
    for config in TOPIC_CONFIGS.values():
        ours, kafkas = _value(config, False), _value(config, True)
        rows.append((f"`{config.name}`", ours, _bounds(config), kafkas if kafkas != ours else "", config.doc))
    return table(("setting", "default", "bounds", "Kafka's", "meaning"), rows)


_KAFKAS: Final = re.compile(r"^(.*) \((\w*[A-Z-][\w-]*(?: [A-Z]\w+)?(?:, [\w-]+)?)\)\.$", re.DOTALL)
"""A HELP text that ends with Kafka's name of the metric in parentheses."""


def metrics(modules: Sequence[ModuleType], families: Sequence[Family] = ()) -> str:
    """The metrics that modules define, and those whose series are made for each scrape."""
    rows = []
    for name, kind, labels, text in (
        *_defined(modules),
        *((each.name.removesuffix("_total"), each.kind, each.labels, each.meaning) for each in families),
    ):
        found = _KAFKAS.match(text)
        meaning = f"{found[1]}. Kafka: {found[2]}." if found else text
        rows.append((f"`{name}`", kind, ", ".join(labels), meaning))
    return table(("metric", "type", "labels", "meaning"), rows)


def _defined(modules: Sequence[ModuleType]) -> Iterator[tuple[str, str, Sequence[str], str]]:
    for module in modules:
        for named in vars(module).values():
            value = named() if isinstance(named, OfEachService) else named
            if isinstance(value, Counts):
                family = value.family
                yield family.name.removesuffix("_total"), family.kind, family.labels, family.meaning
            elif isinstance(value, Histograms):
                yield value.name, "histogram", value.labels, value.meaning
            elif isinstance(value, MetricWrapperBase):
                yield value._name, value._type, value._labelnames, value._documentation


def errors() -> str:
    """Every error, by its name, and the calls that have it among their own."""
    calls = [value for value in vars(apis).values() if isinstance(value, Api) and not value.internal]
    rows = []
    for error, number in sorted(KAFKA_CODES.items()):
        if number == 0:
            continue
        own = [api.operation_id for api in calls if error.code in api.errors]
        names = ", ".join(f"[{name}](calls.md#{name.lower()})" for name in own) if len(own) < 9 else f"{len(own)} calls"
        of_calls = f" Calls: {names}." if own else ""
        rows.append(
            (
                f"`{error.code}`",
                _minus(number),
                str(error.status),
                "yes" if error.retriable else "no",
                "yes" if error.definite else "no",
                f"{error.title}. {ADVICE[error.code]}{of_calls}",
            )
        )
    return table(("code", "number", "status", "retriable", "definite", "what it means, what to do"), rows)


def rights() -> str:
    """What a caller needs for each call of clients."""
    rows = []
    for api in sorted((row for row in vars(apis).values() if isinstance(row, Api)), key=lambda api: api.operation_id):
        if api.internal or api.access.open:
            continue
        needs = {
            f"{need.operation} on {need.resource_type.lower().replace('_', ' ')}": ", each alone" if need.each else ""
            for need in api.access.needs
        }
        if api.access.creates is not None:
            needs["CREATE on topic"] = ", where it is missing"
        shows = {shown.resource_type.lower() + "s": 0 for shown in api.access.shows}
        rows.append((f"`{api.operation_id}`", "; ".join(map("".join, needs.items())), ", ".join(shows)))
    return table(("call", "needs, for what the request names", "shows, of those it may DESCRIBE"), rows)


def repeats() -> str:
    """The rules by which each part tries again."""
    rows = [
        (f"`{name}`", rule.what, f"{rule.pause_s} s", _seconds(rule.most_s), _seconds(rule.patience_s))
        for name, rule in vars(sharequeue.repeats).items()
        if isinstance(rule, Rule)
    ]
    return table(("rule", "of", "first pause", "doubles until", "gives up after"), rows)


def _seconds(duration_s: float) -> str:
    return f"{duration_s} s" if 0 < duration_s < math.inf else ""


TABLES: Final[Mapping[str, Mapping[str, Callable[[], str]]]] = {
    "configuration.md": {
        "gateway settings": lambda: settings(sharequeue_gateway.settings.Settings, HttpLimits),
        "group coordinator settings": lambda: settings(sharequeue_coordinator.settings.Settings, HttpLimits),
        "share coordinator settings": lambda: settings(sharequeue_share_coordinator.settings.Settings, HttpLimits),
        "limits of connections": lambda: settings(HttpLimits),
        "group settings": group_settings,
        "topic settings": topic_settings,
    },
    "metrics.md": {
        "gateway metrics": lambda: metrics(
            [sharequeue_gateway.metrics],
            [
                *led_metrics.FAMILIES,
                *backlog.FAMILIES,
                *queue_series.FAMILIES,
                *log_metrics.FAMILIES,
            ],
        ),
        "group coordinator metrics": lambda: metrics([sharequeue_coordinator.metrics]),
        "share coordinator metrics": lambda: metrics([sharequeue_share_coordinator.metrics]),
        "metrics of every service": lambda: metrics(
            [
                sharequeue_http.application.endpoint,
                sharequeue_http.problems,
                sharequeue.ownership.leases,
                sharequeue.service.failed_looks,
                sharequeue.service.operations,
                sharequeue.service.time_line,
            ]
        ),
    },
    "security.md": {"rights by call": rights},
    "errors.md": {"errors": errors},
    "details.md": {"repeats": repeats},
}


def renewed(page: str, text: str) -> str:
    """The text of a page with its tables made again. Raises: ValueError: a table has no place, or more than one."""
    for name, make in TABLES[page].items():
        place = re.compile(rf"(<!-- made: {re.escape(name)} -->\n\n).*?(\n<!-- end -->)", re.DOTALL)
        made: Any = make()
        text, count = place.subn(lambda found, made=made: f"{found[1]}{made}{found[2]}", text)  # type: ignore[misc]
        if count != 1:
            raise ValueError(f"docs/{page}: {count} places for the table {name!r}, not one")
    return text


def main() -> None:
    """Write the tables of all pages again."""
    for page in TABLES:
        path = HERE / page
        path.write_text(renewed(page, path.read_text()))


if __name__ == "__main__":
    main()
