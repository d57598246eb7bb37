"""Two columns of the table of calls: what a caller needs for a call, and which names its answer shows.

A need is decided by the name in the request, before anybody asks whether the thing exists. So a caller without the
right learns nothing. Sources: KIP-932 (ShareFetch, ShareAcknowledge); Kafka's KafkaApis.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from sharequeue.protocol.access.rights import CLUSTER_NAME
from sharequeue.protocol.messages.access import Operation, ResourceType

Names = str | Callable[[Mapping[str, str], Any], Iterable[str]]
"""The names of some resources: the parameter of the path that has the one name, or a function of all parameters and the
decoded request."""


class Need(NamedTuple):
    """An operation on each resource that a request names.

    `each`: a name without the right fails alone, and the rest of the call is served. A handler finds it in
    `Call.refused`. A row has one such need at most.
    """

    operation: Operation
    resource_type: ResourceType
    names: Names
    each: bool = False


def names_of(names: Names, path: Mapping[str, str], request: Any) -> Iterable[str]:
    return (path[names],) if isinstance(names, str) else names(path, request)


class Shown(NamedTuple):
    """A list of an answer. A caller sees the entries whose names it may DESCRIBE.

    `place`: the members on the way to the list, with dots; lists on the way are meant entry by entry. `name`: the
    member of an entry that has its name; empty: an entry is a name. `unnamed`: whether entries without one are shown.
    """

    place: str
    resource_type: ResourceType
    name: str = ""
    unnamed: bool = False


class Access(NamedTuple):
    """The rights that a call needs, and the resources that it shows.

    `creates`: the topics that the call creates if they are missing; that needs CREATE.
    `goes_on`: whether a request is served under the last known keys and rights, however old they are: it ends work that
    has begun. It may change the request so that it does no more. `keyed`: a key is needed wherever the gateway knows
    keys. `audited`: whether the log gets a line for a request that was served. `open`: nobody is asked for a key.
    """

    needs: tuple[Need, ...] = ()
    shows: tuple[Shown, ...] = ()
    creates: Names | None = None
    goes_on: Callable[[Any], bool] | None = None
    keyed: bool = False
    audited: Callable[[Any], bool] | None = None
    open: bool = False


OPEN = Access(open=True)


def topic(operation: Operation) -> Need:
    """An operation on the topic in the path."""
    return Need(operation, "TOPIC", "topic")


def group(operation: Operation) -> Need:
    """An operation on the group in the path."""
    return Need(operation, "GROUP", "group")


def cluster(operation: Operation) -> Need:
    return Need(operation, "CLUSTER", lambda _, __: (CLUSTER_NAME,))


def topics(operation: Operation, names: Names, *, each: bool = False) -> Need:
    """An operation on the topics that a request names."""
    return Need(operation, "TOPIC", names, each)


def listed(resource_type: ResourceType, operation: Operation = "DESCRIBE") -> Need:
    """An operation on each name that the answer would show. The request has none of them."""
    return Need(operation, resource_type, lambda _, __: (), each=True)


def given(member: str) -> Names:
    """The name that a member of the request has, if it has one."""
    return lambda _, request: filter(None, (getattr(request, member),))


def always(_: Any) -> bool:
    return True
