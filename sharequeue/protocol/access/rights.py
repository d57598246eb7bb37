"""Rights: which principal may do which operation on which resources, and whether one right covers a resource.

Only rights that allow exist. Without one, a call is refused. READ, WRITE, DELETE and ALTER include DESCRIBE. A literal
`*` covers every name. CREATE on the cluster covers every topic. READ and DESCRIBE on a group cover its default
dead-letter topic. Source: Kafka's AclAuthorizer; KIP-11, KIP-290.
"""

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from sharequeue.protocol.configs import group_of_dead_letters
from sharequeue.protocol.types import MAX_NAME_LENGTH

ANONYMOUS: Final = "User:ANONYMOUS"
"""A caller without a key, where one is not required."""
CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one resource of type CLUSTER. Kafka has the same."""
ANY_NAME: Final = "*"
MOST_ANSWERS: Final = 4096
"""So many are kept, of names that something may have. A look at 9,000 prefixes of one principal takes 40 µs."""


class Word(StrEnum):
    """A word of a right. Each call looks several up, and the hash of an Enum is a function in Python."""

    __hash__ = str.__hash__


class ResourceType(Word):
    TOPIC = "TOPIC"
    GROUP = "GROUP"
    TRANSACTIONAL_ID = "TRANSACTIONAL_ID"
    CLUSTER = "CLUSTER"


class PatternType(Word):
    LITERAL = "LITERAL"
    PREFIXED = "PREFIXED"


class Operation(Word):
    READ = "READ"
    WRITE = "WRITE"
    CREATE = "CREATE"
    DELETE = "DELETE"
    DESCRIBE = "DESCRIBE"
    ALTER = "ALTER"


INCLUDE_DESCRIBE: Final = frozenset({Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER})


class Right(NamedTuple):
    """One rule: `principal` may do `operation` on the resources of a type whose name is, or begins with, a text."""

    principal: str
    operation: Operation
    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType


class Answers(dict[str, bool]):
    """Answers, by name, whether a principal may do one operation with resources of one type. It decides each once."""

    def __init__(self, rights: "Rights", principal: str, operation: Operation, resource_type: ResourceType) -> None:
        super().__init__()
        self._rights = rights
        self._of = principal, operation, resource_type

    def __missing__(self, name: str) -> bool:
        answer = self._rights.covers(*self._of, name)
        if len(name) <= MAX_NAME_LENGTH:
            self._rights.keep_one_more()
            self[name] = answer
        return answer


class Rights:
    """All rights, ready to be asked. It never changes: other rights are another object."""

    def __init__(self, rights: Iterable[Right], super_users: Iterable[str] = ()) -> None:
        self.super_users: Final = frozenset(super_users)
        self._literal: set[tuple[str, Operation, ResourceType, str]] = set()
        prefixes: dict[tuple[str, Operation, ResourceType], set[str]] = {}
        for right in rights:
            operations = {right.operation, *({Operation.DESCRIBE} if right.operation in INCLUDE_DESCRIBE else ())}
            for operation in operations:
                of = right.principal, operation, right.resource_type
                if right.pattern_type is PatternType.LITERAL and right.resource_name != ANY_NAME:
                    self._literal.add((*of, right.resource_name))
                else:
                    every = right.pattern_type is PatternType.LITERAL
                    prefixes.setdefault(of, set()).add("" if every else right.resource_name)
        self._prefixes = {of: tuple(sorted(names)) for of, names in prefixes.items()}
        self._answers: dict[tuple[str, Operation, ResourceType], Answers] = {}
        self._kept = 0

    def names(
        self, principal: str, operation: Operation, resource_type: ResourceType
    ) -> tuple[Collection[str], Collection[str]]:
        """All names, and all beginnings of names, that the rights of a principal cover. Looks at every right."""
        if principal in self.super_users:
            return (), ("",)
        of = principal, operation, resource_type
        return [right[3] for right in self._literal if right[:3] == of], self._prefixes.get(of, ())

    def allows(self, principal: str, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Return whether a right covers this, or the principal is a super user."""
        return self.answers(principal, operation, resource_type)[name]

    def answers(self, principal: str, operation: Operation, resource_type: ResourceType) -> Mapping[str, bool]:
        """As `allows`, for any name: to be asked often. There are few principals: each has a key."""
        of = principal, operation, resource_type
        found = self._answers.get(of)
        if found is None:
            found = self._answers[of] = Answers(self, *of)
        return found

    def keep_one_more(self) -> None:
        """Count an answer that is kept. Those before are forgotten where they are too many."""
        self._kept += 1
        if self._kept > MOST_ANSWERS:
            self._kept = 1
            for answers in self._answers.values():
                answers.clear()

    def covers(self, principal: str, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Decide what `allows` answers."""
        return (
            principal in self.super_users
            or (principal, operation, resource_type, name) in self._literal
            or name.startswith(self._prefixes.get((principal, operation, resource_type), ()))
            or (resource_type is ResourceType.TOPIC and self._through_another(principal, operation, name))
        )

    def allows_all(self, principal: str, operation: Operation, resource_type: ResourceType) -> bool:
        """Return whether a right covers every name of a type, or the principal is a super user."""
        return principal in self.super_users or "" in self._prefixes.get((principal, operation, resource_type), ())

    def _through_another(self, principal: str, operation: Operation, topic: str) -> bool:
        """Return whether a right on the cluster or a group covers a topic."""
        if operation is Operation.CREATE:
            return self.allows(principal, operation, ResourceType.CLUSTER, CLUSTER_NAME)
        if operation not in (Operation.READ, Operation.DESCRIBE):
            return False
        group_id = group_of_dead_letters(topic)
        return group_id is not None and self.allows(principal, operation, ResourceType.GROUP, group_id)
