"""The outcomes that a consumer may choose for a record. No IO."""

from typing import Final, NamedTuple

from sharequeue.protocol.types import ACKNOWLEDGE_TYPES, MAX_DELAY_MS


class Outcome(NamedTuple):
    """The outcome of a record. `type`: accept, release, reject, renew or gap.

    `delay_ms`: of a release; None: the group's backoff decides, 0: at once. `begun`: of a release; False: the delivery
    is no attempt.
    """

    type: str
    reason: str | None = None
    delay_ms: int | None = None
    begun: bool = True


PLAIN: Final = {name: Outcome(name) for name in ACKNOWLEDGE_TYPES}
ACCEPT: Final = PLAIN["accept"]
GAP: Final = PLAIN["gap"]
RENEW: Final = PLAIN["renew"]
RENEWED_AT: Final = 1 / 2
"""The part of its time after which a lock is renewed. After a failure it is tried again as HEARTBEAT says."""
RELEASE: Final = PLAIN["release"]
GIVEN_BACK: Final = Outcome("release", delay_ms=0)
"""The release of a consumer that closes: the record did not fail, so it waits for nothing."""

NEVER_BEGUN: Final = Outcome("release", begun=False)
"""The release of a record that the program never got."""


def outcome_of(acknowledge_type: str, reason: str | None, delay_ms: int | None, begun: bool) -> Outcome:
    """An outcome, shared if it has no options. Raises: ValueError: no such type, or an option it does not allow."""
    if acknowledge_type not in PLAIN:
        raise ValueError(f"there is no acknowledge type {acknowledge_type!r}; known are {', '.join(PLAIN)}")
    if reason is None and delay_ms is None and begun:
        return PLAIN[acknowledge_type]
    if delay_ms and acknowledge_type != "release":
        raise ValueError("delay_ms is allowed with release only")
    if delay_ms is not None and (type(delay_ms) is not int or not 0 <= delay_ms <= MAX_DELAY_MS):
        raise ValueError(f"delay_ms must be a whole number from 0 to {MAX_DELAY_MS} (12 hours), not {delay_ms!r}")
    if reason is not None and acknowledge_type not in ("release", "reject"):
        raise ValueError("reason is allowed with release and reject only")
    if not begun and acknowledge_type != "release":
        raise ValueError("begun=False is allowed with release only")
    return Outcome(acknowledge_type, reason, delay_ms, begun)
