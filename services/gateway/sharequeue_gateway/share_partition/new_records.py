"""Decides which fetches begin at new records although others wait to be delivered again. Pure.

In Kafka each fetch begins at the lowest offset that can be acquired. New records would then wait without end behind
many records that always fail. Here `share.redelivery.percent` of the fetches that find both begin at the lowest offset,
and the others at the first record that was never delivered. 100 is Kafka's order.

    75 %      fetch    1        2        3        4        5        6        7        8
              begins   retried  retried  retried  new      retried  retried  retried  new
"""

from sharequeue_gateway.share_partition.acquisition import room
from sharequeue_gateway.share_partition.window import Window


def begin_at_new(window: Window) -> int | None:
    """Count a fetch. Returns: the offset at which it begins, if it begins at new records.

    It does not while a gap is unread: records behind the gap would end it, and those in it would be lost. Nor does it
    while no new record may be acquired. Such fetches are not counted.
    """
    percent = 100 - window.config.redelivery_percent
    if not percent or window.waiting_count == window.delayed_count:
        return None
    retried = window.next_fetch_offset()
    if window.gap_start >= 0:
        return None
    new = window.first_new()
    if new == retried:
        return None
    left, most_new = room(window, new)
    if (most_new if new > window.end_offset else left) <= 0:
        return None
    window.new_turn += percent
    if window.new_turn < 100:
        return None
    window.new_turn -= 100
    return new
