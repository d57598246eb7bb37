"""The batches of a state, as a read of the share coordinator answers them."""

from sharequeue_share_coordinator.share_state.batch_list import BatchList, in_blocks
from sharequeue_share_coordinator.share_state.columns import batches_of

from sharequeue.protocol.messages.share_state import PartitionStateResult


def batches_in(result: PartitionStateResult) -> BatchList:
    """The batches of a page, with their notes."""
    assert result.error_code == 0, result.error_message
    assert result.page is not None
    return in_blocks(batches_of(result.page.columns, result.page.reasons, result.page.transactions))
