"""The outcomes of state writes, for tests that await the writes themselves."""

from sharequeue_gateway.leader.persister import PendingWrite

from sharequeue_http.forms.errors import ApiError


class Unheard:
    """WriteEvents that nobody needs."""

    def write_ended(self, pending: PendingWrite, error: ApiError | None) -> None:
        pass

    def writes_settle_again(self) -> None:
        pass
