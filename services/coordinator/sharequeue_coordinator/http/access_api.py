"""The calls about keys and rights, as gateways pass them on and make them on their own behalf."""

import logging
from functools import partial
from typing import Any

from sharequeue import access_store
from sharequeue.protocol import apis
from sharequeue_coordinator.coordinator import GroupCoordinator
from sharequeue_http.application.endpoint import Call, Handler
from sharequeue_http.forms.api import Api
from sharequeue_http.forms.codec import encode
from sharequeue_http.forms.mistakes import MOST_AUDITED, quoted
from sharequeue_http.log import fields

log = logging.getLogger(__name__)


def access_calls(coordinator: GroupCoordinator) -> list[tuple[Api, Handler]]:
    async def act(api: Api, call: Call) -> Any:
        run = coordinator.metadata.change if api.changes else coordinator.metadata.read
        answer = await run(access_store.act, api, call.path, call.request)
        if api is apis.REMOVE_ACLS:
            log.info("rights removed", extra=fields(acls=quoted(encode(answer.acls).decode(), MOST_AUDITED)))
        return answer

    return [(api, partial(act, api)) for api in access_store.ACTS]
