"""Refusals of a host or an origin, beside the errors that send a caller to another gateway or coordinator."""

from sharequeue_gateway.routing import acknowledge, routing

from sharequeue import client
from sharequeue.ownership import coordinator_client
from sharequeue.protocol import apis
from sharequeue.protocol.errors import BY_CODE, BY_NUMBER, KAFKA_CODES
from sharequeue_http.forms import errors
from sharequeue_http.forms.api import Api
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


def test_the_client_exports_the_classes_of_the_errors_that_its_calls_name() -> None:
    public = [api for api in vars(apis).values() if isinstance(api, Api) and not api.internal]
    codes = {code for api in public for code in api.errors}
    codes |= {code for code in BY_CODE if code.endswith("_AUTHORIZATION_FAILED")}
    assert len(codes) > 30
    assert {errors.exception_type(BY_CODE[code]).__name__ for code in codes} - vars(client).keys() == set()
