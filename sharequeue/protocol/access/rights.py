"""Rights: which principal may do which operation on which resources, and whether one right covers a resource.

Only rights that allow exist. Without one, a call is refused. READ, WRITE, DELETE and ALTER include DESCRIBE. A literal
`*` covers every name. CREATE on the cluster covers every topic. READ and DESCRIBE on a group cover its default
dead-letter topic. Source: Kafka's AclAuthorizer; KIP-11, KIP-290.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Final

from sharequeue.protocol.configs import group_of_dead_letters
from sharequeue.protocol.messages.access import Acl, Operation, ResourceType
from sharequeue.protocol.types import MAX_NAME_LENGTH

ANONYMOUS: Final = "User:ANONYMOUS"
"""A caller without a key, where one is not required."""
CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one resource of type CLUSTER. Kafka has the same."""
ANY_NAME: Final = "*"
MOST_ANSWERS: Final = 4096
"""So many are kept, of names that something may have. A look at 9,000 prefixes of one principal takes 40 µs."""
INCLUDE_DESCRIBE: Final[frozenset[Operation]] = frozenset({"READ", "WRITE", "DELETE", "ALTER"})

Question = tuple[str, Operation, ResourceType, str]
"""Whether a principal may do an operation on the resource of a type with a name."""


class Rights(dict[Question, bool]):
    """The rights of all principals. Each answer is decided once, when it is asked for. The rights never change: others
    are another object."""

    def __init__(self, acls: Iterable[Acl], super_users: Iterable[str] = ()) -> None:
        super().__init__()
        self._super_users = frozenset(super_users)
        covered: dict[tuple[str, str, str], tuple[set[str], set[str]]] = defaultdict(lambda: (set(), set()))
        for acl in acls:
            for operation in {acl.operation, "DESCRIBE"} if acl.operation in INCLUDE_DESCRIBE else (acl.operation,):
                names, beginnings = covered[acl.principal, operation, acl.resource_type]
                if acl.pattern_type == "PREFIXED":
                    beginnings.add(acl.resource_name)
                elif acl.resource_name == ANY_NAME:
                    beginnings.add("")
                else:
                    names.add(acl.resource_name)
        self._covered = {of: (names, tuple(sorted(beginnings))) for of, (names, beginnings) in covered.items()}

    def names(
        self, principal: str, operation: Operation, resource_type: ResourceType
    ) -> tuple[Collection[str], tuple[str, ...]]:
        """All names, and all beginnings of names, that the rights of a principal cover. A super user's cover each."""
        if principal in self._super_users:
            return (), ("",)
        return self._covered.get((principal, operation, resource_type), ((), ()))

    def __missing__(self, question: Question) -> bool:
        principal, operation, resource_type, name = question
        names, beginnings = self.names(principal, operation, resource_type)
        answer = name in names or name.startswith(beginnings)
        if not answer and resource_type == "TOPIC":
            answer = self._through_another(principal, operation, name)
        if len(name) <= MAX_NAME_LENGTH:
            if len(self) >= MOST_ANSWERS:
                self.clear()
            self[question] = answer
        return answer

    def _through_another(self, principal: str, operation: Operation, topic: str) -> bool:
        """Return whether a right on the cluster or a group covers a topic."""
        if operation == "CREATE":
            return self[principal, operation, "CLUSTER", CLUSTER_NAME]
        if operation not in ("READ", "DESCRIBE"):
            return False
        group_id = group_of_dead_letters(topic)
        return group_id is not None and self[principal, operation, "GROUP", group_id]
