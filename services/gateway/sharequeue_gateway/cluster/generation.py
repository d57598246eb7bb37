"""Decides which gateway leads a share-partition: rendezvous hashing over the gateways of a generation. Pure.

A generation is a set of live gateways under a number. The number is above every leader epoch given before it, so a
gateway that becomes leader with the generation can use it as its leader epoch.

Rendezvous hashing: the node with the highest hash(node, share-partition) leads.

    hash     A    B    C       {A, B}     {A, B, C}     {A, C}
    orders:0 71   12   40       A          A             A       a node that joins takes only what it hashes highest;
    orders:1 25   66   80       B          C             C       a node that leaves gives away only what it led
    orders:2 33   90   54       B          B             C
"""

from hashlib import blake2b
from typing import Final

from sharequeue.protocol.messages.cluster import Gateway
from sharequeue.protocol.types import SharePartitionKey

MAX_REMEMBERED: Final = 200_000
Node = Gateway
"""A gateway, among those that may lead."""


class Generation:
    """The live gateways. `number`: rises with each change of the set."""

    __slots__ = ("_keyed", "_remembered", "nodes", "number")

    def __init__(self, number: int, nodes: tuple[Node, ...]) -> None:
        self.number = number
        self.nodes = nodes
        self._keyed = [(blake2b(node.node_id.encode(), digest_size=32).digest(), node) for node in nodes]
        self._remembered: dict[SharePartitionKey, Node] = {}

    def leader_of(self, key: SharePartitionKey) -> Node:
        """The gateway that leads a share-partition."""
        if len(self.nodes) == 1:
            return self.nodes[0]
        leader = self._remembered.get(key)
        if leader is None:
            if len(self._remembered) >= MAX_REMEMBERED:
                self._remembered.clear()
            leader = self._remembered[key] = self._highest(f"{key.topic_id}:{key.partition}:{key.group_id}")
        return leader

    def home_of(self, group_id: str, member_id: str) -> Node:
        """The gateway that keeps a member's share session."""
        return self._highest(f"{member_id}:{group_id}")

    def sweeper_of(self, topic_id: str, partition: int) -> Node:
        """The gateway that applies retention to a partition."""
        return self._highest(f"retention:{topic_id}:{partition}")

    def _highest(self, name: str) -> Node:
        if len(self._keyed) == 1:
            return self.nodes[0]
        data = name.encode()
        return max(self._keyed, key=lambda keyed: blake2b(data, key=keyed[0], digest_size=8).digest())[1]
