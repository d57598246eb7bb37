"""Makes the handlers of the calls about single records."""

from sharequeue.ownership.coordinator_client import CoordinatorClient
from sharequeue.ownership.share_state_client import ShareStateClient
from sharequeue.protocol import apis
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.delivery.acknowledging import Acknowledger
from sharequeue_gateway.http.answers.page_tokens import PageTokens
from sharequeue_gateway.http.single_records.at_leader_api import AtLeaderApi
from sharequeue_gateway.http.single_records.dead_letters import LetterFinder
from sharequeue_gateway.http.single_records.dead_letters_api import DeadLettersApi
from sharequeue_gateway.http.single_records.in_flight_api import InFlightApi
from sharequeue_gateway.http.single_records.look_up_api import LookUpApi
from sharequeue_gateway.http.single_records.redrive_api import Redriving
from sharequeue_gateway.leader.dead_letter_queue import DeadLetterQueue
from sharequeue_gateway.leader.leader import Leader
from sharequeue_gateway.record_log.parts import Log
from sharequeue_gateway.record_log.store import Query
from sharequeue_gateway.routing.routing import Routing
from sharequeue_gateway.routing.settled_commits import SettledCommits
from sharequeue_http.application.endpoint import Handler
from sharequeue_http.forms.api import Api


def record_calls(
    metadata: Metadata,
    record_log: Log,
    query: Query,
    coordinator: CoordinatorClient,
    share_coordinators: ShareStateClient,
    leader: Leader,
    dead_letter_queue: DeadLetterQueue,
    acknowledger: Acknowledger,
    routing: Routing,
    commits: SettledCommits,
    tokens: PageTokens,
) -> tuple[tuple[Api, Handler], ...]:
    """Return each call about single records and dead letters, and its handler."""
    log = record_log.dead_letters
    finder = LetterFinder(metadata, record_log, log, tokens)
    in_flight = InFlightApi(coordinator, metadata, log, leader, dead_letter_queue, routing, commits, tokens)
    letters = DeadLettersApi(metadata, log, finder)
    return (
        (apis.LIST_IN_FLIGHT_RECORDS, in_flight.in_flight),
        (apis.IN_FLIGHT_AT_LEADER, in_flight.in_flight_here),
        (apis.LIST_DEAD_LETTERS, letters.list_letters),
        (apis.DROP_DEAD_LETTERS, letters.drop),
        (apis.REDRIVE_DEAD_LETTERS, Redriving(metadata, record_log, log, finder).redrive),
        *AtLeaderApi(metadata, record_log, share_coordinators, leader, acknowledger, routing).calls(),
        *LookUpApi(metadata, record_log, query, in_flight, finder, letters).calls(),
    )
