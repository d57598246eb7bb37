"""The meaning of each failure of Redis: a refusal has advice for the operator, a timeout has none."""

import pytest
from redis import exceptions
from sharequeue_gateway.cluster.redis_faults import REFUSALS, SILENT, trouble_of

CASES = {
    "a full memory": (exceptions.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."), "OOM"),
    "a full memory, in a script of Redis 6": (
        exceptions.ResponseError("Error running script (call to f_1): @user_script:4: -OOM command not allowed"),
        "OOM",
    ),
    "a replica": (exceptions.ReadOnlyError("You can't write against a read only replica."), "READONLY"),
    "a replica, in a script": (exceptions.ResponseError("@user_script: 3: -READONLY You can't write"), "READONLY"),
    "a disk that fails": (exceptions.ResponseError("MISCONF Redis is configured to save RDB snapshots"), "MISCONF"),
    "no password": (exceptions.AuthenticationError("NOAUTH Authentication required."), "NOAUTH"),
    "a wrong password": (exceptions.AuthenticationError("invalid username-password pair"), "WRONGPASS"),
    "no right": (exceptions.NoPermissionError("this user has no permissions to run the 'hset' command"), "NOPERM"),
    "a start": (exceptions.BusyLoadingError("Redis is loading the dataset in memory"), "LOADING"),
    "a certificate that is not accepted": (
        exceptions.ConnectionError(
            "Error 1 connecting to 10.0.0.9:6379. [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: …"
        ),
        "CERTIFICATE_VERIFY_FAILED",
    ),
    "too many clients": (exceptions.ConnectionError("max number of clients reached"), "max number of clients"),
}


@pytest.mark.parametrize(("fault", "word"), CASES.values(), ids=CASES)
def test_a_refusal_says_what_to_do(fault: Exception, word: str) -> None:
    assert trouble_of(fault) == REFUSALS[word]


@pytest.mark.parametrize(
    "fault", [TimeoutError(), ConnectionRefusedError(), exceptions.ConnectionError("Connection closed by server.")]
)
def test_a_timeout_is_not_taken_for_a_refusal(fault: Exception) -> None:
    assert trouble_of(fault) == SILENT


def test_an_unknown_refusal_points_to_the_log() -> None:
    assert "log" in trouble_of(exceptions.ResponseError("ERR unknown command 'EVALSHA'"))
