"""Every call of the services, one row each: the row serves the server, the client, OpenAPI and the tests.

    sharequeue.protocol.apis    the calls, a file for each subject ──▶ sharequeue.protocol.messages   their bodies
          │                                                                          │
          ├──▶ sharequeue_http.application  a row and a handler become a route       └──▶ sharequeue_http.forms.codec
          ├──▶ sharequeue_http.calling      a row and a request become an answer
          └──▶ sharequeue.openapi           the rows become the document

This module lists all rows, so that `apis.FETCH_RECORDS` names one. Any layer may import it; it knows no framework.
"""

from sharequeue.protocol.apis.access import *
from sharequeue.protocol.apis.cluster import *
from sharequeue.protocol.apis.dead_letters import *
from sharequeue.protocol.apis.groups import *
from sharequeue.protocol.apis.leaders import *
from sharequeue.protocol.apis.operations import *
from sharequeue.protocol.apis.records import *
from sharequeue.protocol.apis.scheduled import *
from sharequeue.protocol.apis.share_state import *
from sharequeue.protocol.apis.topics import *
from sharequeue.protocol.apis.transactions import *
