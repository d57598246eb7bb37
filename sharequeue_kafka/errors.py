"""The error of a call to a broker: one exception, with Kafka's number and name."""

from asyncio import Future
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Self

from aiokafka.errors import for_code

NAMES: Final = {
    6: "NOT_LEADER_OR_FOLLOWER",
    10: "MESSAGE_TOO_LARGE",
    74: "FENCED_LEADER_EPOCH",
    75: "UNKNOWN_LEADER_EPOCH",
    76: "UNSUPPORTED_COMPRESSION_TYPE",
    78: "OFFSET_NOT_AVAILABLE",
    87: "INVALID_RECORD",
    89: "THROTTLING_QUOTA_EXCEEDED",
    90: "PRODUCER_FENCED",
    100: "UNKNOWN_TOPIC_ID",
    103: "INCONSISTENT_TOPIC_ID",
    106: "FETCH_SESSION_TOPIC_ID_ERROR",
}
"""Where aiokafka has no name, or Kafka's older one."""
DESCRIPTIONS: Final = {
    10: "a record or a batch is larger than max.message.bytes of the topic",
    87: "the topic takes no such record; one that is compacted needs a key",
}
NOT_LEADER: Final = frozenset({3, 5, 6, 9, 74, 75, 78})
"""The partition may be elsewhere: ask for metadata, and try again."""
RETRIABLE: Final = NOT_LEADER | {7, 8, 13, 14, 15, 16, 19, 20, 41, 51, 56, 70, 71, 89, 103, 106}
IN_DOUBT: Final = frozenset({-1, 6, 7, 13, 20, 56})
"""A leader that lost its place answers 6 also for what it had appended."""
UNKNOWN_TOPIC_ID: Final = 100
OFFSET_OUT_OF_RANGE: Final = 1


@dataclass(eq=False)
class KafkaError(Exception):
    """Say what a broker answered, or that it did not answer."""

    code: int  # Kafka's number; -1 when no broker answered
    name: str  # Kafka's, as "NOT_LEADER_OR_FOLLOWER"; "NOT_REACHED" or "NOT_ANSWERED" when no broker answered
    message: str  # what happened, for an operator
    retriable: bool  # the same call may succeed later
    definite: bool  # the call surely changed nothing, as each read

    def __str__(self) -> str:
        return f"{self.name}: {self.message}"

    @classmethod
    def of(cls, code: int, message: str | None = None, *, at: str = "") -> Self:
        """Make the error of a code that a broker answered, with its message, or for what it was asked (`at`)."""
        known = for_code(code)
        name = NAMES.get(code) or (known.message if known.errno == code else f"ERROR_{code}")
        said = message or DESCRIPTIONS.get(code) or getattr(known, "description", None) or name
        said = f"{at}: {said}" if at else said
        return cls(code, name, said, retriable=code in RETRIABLE, definite=code not in IN_DOUBT)

    @classmethod
    def silent(cls, address: str, cause: object) -> Self:
        """Make the error of a request that was sent and got no answer."""
        return cls(-1, "NOT_ANSWERED", f"the broker {address} did not answer: {cause}", retriable=True, definite=False)

    @classmethod
    def unreached(cls, address: str, cause: object) -> Self:
        """Make the error of a request that was not sent."""
        return cls(-1, "NOT_REACHED", f"the broker {address} is not reached: {cause}", retriable=True, definite=True)


def refuse(error: KafkaError, answers: Iterable[Future[Any]]) -> None:
    """Give an error to the callers that still wait."""
    for answer in answers:
        if not answer.done():
            answer.set_exception(error)
