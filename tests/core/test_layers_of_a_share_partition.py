"""The layers of a share-partition: each adds to those below it, and changes nothing of them."""

from sharequeue_gateway.share_partition.machine import SharePartition
from sharequeue_gateway.share_partition.pending import PendingRecords
from sharequeue_gateway.share_partition.transitions import Transitions
from sharequeue_gateway.share_partition.window import Window


def test_a_layer_overrides_nothing() -> None:
    layers = (Window, Transitions, PendingRecords, SharePartition)
    assert SharePartition.__mro__[:-1] == layers[::-1]
    names = [name for layer in layers for name in vars(layer) if not name.startswith("__")]
    assert not [name for name in names if names.count(name) > 1]
