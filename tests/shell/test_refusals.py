"""Refusals of a host or an origin, beside the errors that send a caller to another gateway or coordinator."""

from sharequeue_gateway.routing import acknowledge, routing

from sharequeue.ownership import coordinator_client
from sharequeue.protocol.errors import BY_CODE, BY_NUMBER, KAFKA_CODES
from sharequeue_http.forms import errors
from sharequeue_http.problems import problem_of


def test_a_refused_host_or_origin_is_not_taken_for_a_moved_leader() -> None:
    """Elsewhere 421 means a moved leader: a caller that took it so would try every gateway in vain."""
    for code in ("HOST_NOT_ALLOWED", "ORIGIN_NOT_ALLOWED"):
        number = KAFKA_CODES[BY_CODE[code]]
        assert number not in {*coordinator_client.MOVED, *routing.MOVED, acknowledge.NOT_LEADER}
        assert not BY_CODE[code].retriable
        assert BY_NUMBER[number].code == "INVALID_REQUEST", "as data of one partition the number means Kafka's error"


def test_errors_of_http_itself_have_a_number_too() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.ApiError)]
    assert len(kinds) > 10
    numbers = {kind.__name__: problem_of(kind("why"), "1").get("kafka_code") for kind in kinds}
    assert numbers == {kind.__name__: KAFKA_CODES[kind.error] for kind in kinds}
    only_https = ("InvalidRequest", "UnknownPath", "HostNotAllowed", "OriginNotAllowed")
    assert {numbers[name] for name in only_https} == {42}
