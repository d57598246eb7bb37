"""What goes wrong with a broker: one exception, with Kafka's number and name."""


class KafkaError(Exception):
    """Say what a broker answered, or that it did not answer.

    Attributes:
        code: Kafka's number; -1 when no broker answered.
        name: Kafka's name, as "NOT_LEADER_OR_FOLLOWER"; "NOT_REACHED" or "NOT_ANSWERED" when no broker answered.
        message: what happened, for an operator.
        retriable: the same call may succeed later.
        definite: the call surely changed nothing. A read is always definite.
    """

    def __init__(self, code: int, name: str, message: str, *, retriable: bool, definite: bool) -> None:
        super().__init__(f"{name}: {message}")
        self.code = code
        self.name = name
        self.message = message
        self.retriable = retriable
        self.definite = definite
