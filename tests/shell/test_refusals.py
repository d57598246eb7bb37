"""Refusals of a host or an origin, beside the errors that send a caller to another gateway or coordinator."""

from sharequeue_gateway.routing import acknowledge, routing

from sharequeue.ownership import coordinator_client
from sharequeue.protocol.errors import BY_CODE, BY_NUMBER


def test_a_refused_host_or_origin_is_not_taken_for_a_moved_leader() -> None:
    """Elsewhere 421 means a moved leader: a caller that took it so would try every gateway in vain."""
    for code in ("HOST_NOT_ALLOWED", "ORIGIN_NOT_ALLOWED"):
        number = BY_CODE[code].kafka_code
        assert number not in {*coordinator_client.MOVED, *routing.MOVED, acknowledge.NOT_LEADER}
        assert not BY_CODE[code].retriable
        assert BY_NUMBER[number].code == "INVALID_REQUEST", "as data of one partition the number means Kafka's error"
