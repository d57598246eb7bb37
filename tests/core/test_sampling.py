"""Samples of the cluster as series: which rows are due, what gathers until then, and which groups need attention."""

from collections.abc import Mapping

from sharequeue_gateway.leader.reports.activity import Totals
from sharequeue_gateway.leader.reports.sampling import CLUSTER, MOST_WRITTEN, OLD_MS, Round, Sampling
from sharequeue_gateway.record_log.sample_store import BACKLOG, FAILED, IN, OLDEST, OPEN, OUT, Counts
from sharequeue_gateway.record_log.store import HOUR_MS

from sharequeue.protocol.messages.reports import FiguresRequest

START_MS = 1_700_000_000_000
ROUND_MS = 10_000


def counts(**named: int) -> Counts:
    places = {"produced": IN, "out": OUT, "failed": FAILED, "backlog": BACKLOG, "oldest": OLDEST, "letters": OPEN}
    made = [0] * (OLDEST + 1)
    for name, number in named.items():
        made[places[name]] = number
    return made


def note(
    sampling: Sampling, number: int, *pairs: tuple[str, str, Counts], workers: Mapping[str, int] | None = None
) -> int:
    """Take one round. Returns: its time."""
    ended = Round(START_MS + number * ROUND_MS)
    ended.workers.update({group_id: set(range(count)) for group_id, count in (workers or {}).items()})
    for pair in pairs:
        ended.add(*pair)
    for _ in sampling.note(ended):
        pass
    return ended.at_ms


def write(sampling: Sampling) -> dict[str, Counts]:
    rows = sampling.due()
    sampling.written(rows)
    return dict(rows)


def reasons(sampling: Sampling) -> dict[str, list[str]]:
    return {group.group_id: list(group.reasons) for _, group in sampling.behind(None, 100, None)}


def test_a_count_is_of_the_cluster_the_group_and_the_topic() -> None:
    sampling = Sampling()
    note(
        sampling,
        0,
        ("g", "t", counts(out=3, oldest=50)),
        ("h", "t", counts(out=4, oldest=40)),
        ("", "t", counts(produced=9)),
    )
    rows = write(sampling)
    assert rows == {
        CLUSTER: counts(produced=9, out=7, oldest=40),
        "t/t": counts(produced=9, out=7, oldest=40),
        "g/g": counts(out=3, oldest=50),
        "g/h": counts(out=4, oldest=40),
    }


def test_what_happened_gathers_until_a_row_is_written() -> None:
    sampling = Sampling()
    note(sampling, 0, ("g", "t", counts(out=3, backlog=8)))
    note(sampling, 1, ("g", "t", counts(out=2, backlog=6)))
    assert write(sampling)["g/g"] == counts(out=5, backlog=6)
    note(sampling, 2, ("g", "t", counts(out=1, backlog=6)))
    assert write(sampling)["g/g"] == counts(out=1, backlog=6)


def test_a_series_without_a_change_has_a_row_an_hour_and_one_of_zeros_has_none() -> None:
    sampling = Sampling()
    note(sampling, 0, ("g", "t", counts(backlog=8)), ("h", "t", counts(out=1)))
    write(sampling)
    note(sampling, 1, ("g", "t", counts(backlog=8)))
    assert set(write(sampling)) == {CLUSTER}
    note(sampling, HOUR_MS // ROUND_MS, ("g", "t", counts(backlog=8)))
    assert set(write(sampling)) == {CLUSTER, "g/g", "t/t"}
    note(sampling, HOUR_MS // ROUND_MS + 1)
    assert write(sampling)["g/g"] == counts(), "what was there is gone"
    note(sampling, HOUR_MS // ROUND_MS + 2)
    assert set(write(sampling)) == {CLUSTER}


def test_a_round_writes_the_series_that_have_waited_longest() -> None:
    sampling = Sampling()
    pairs = [(f"g{number:03}", "t", counts(out=1)) for number in range(MOST_WRITTEN + 100)]
    seen: set[str] = set()
    for number in range(2):
        note(sampling, number, *pairs)
        rows = write(sampling)
        assert len(rows) == MOST_WRITTEN
        seen |= rows.keys()
    assert len(seen) == MOST_WRITTEN + 102, "each group, the topic, and the cluster"


def test_a_count_is_told_until_a_sample_has_it_and_a_deleted_group_begins_again() -> None:
    totals = Totals()

    def happened(number: int, taken: int, asker: str = "a") -> list[int]:
        return totals.happened(FiguresRequest(asker=asker, number=number, taken=taken))

    totals.sums.update(produced=3, accepted=5, delivered=7, expired=1, released=2)
    totals.dead_letters["rejected"] = 4
    assert [happened(1, 0), happened(2, 1)] == [[3, 5, 3, 4], [0, 0, 0, 0]]
    totals.sums["accepted"] += 2
    assert happened(3, 2) == [0, 2, 0, 0]
    totals.sums["accepted"] += 4
    assert [happened(4, 2), happened(5, 2)] == [[0, 6, 0, 0]] * 2, "two answers were lost"
    assert happened(6, 5) == [0, 0, 0, 0]
    totals.sums["accepted"] += 1
    assert [happened(7, 6), happened(1, 0, "b")] == [[0, 1, 0, 0], [0, 0, 0, 0]], "another gateway takes the samples"
    assert happened(8, 6) == [0, 0, 0, 0], "and the first one does not know yet"
    totals.sums["accepted"] += 1
    assert [happened(2, 0, "b"), happened(3, 0, "b")] == [[0, 1, 0, 0]] * 2, "it could not read the log"
    totals.reset()
    totals.sums["accepted"] += 1
    assert happened(4, 3, "b") == [0, 1, 0, 0]


def test_a_request_for_figures_that_comes_late_changes_no_count() -> None:
    totals = Totals()
    totals.sums["accepted"] += 1
    assert totals.happened(FiguresRequest(asker="a", number=2, taken=0)) == [0, 1, 0, 0]
    totals.happened(FiguresRequest(asker="a", number=1, taken=0))  # the network had it for ten seconds
    totals.sums["accepted"] += 2
    assert totals.happened(FiguresRequest(asker="a", number=3, taken=2)) == [0, 2, 0, 0]


def test_groups_come_in_the_order_of_their_need() -> None:
    sampling = Sampling()
    pairs = [
        ("well", "t", counts(out=9, backlog=5)),
        ("letters", "t", counts(letters=1)),
        ("alone", "t", counts(backlog=2)),
        ("failing", "t", counts(failed=4, out=1)),
    ]
    note(sampling, 0, *pairs, workers={"well": 1, "failing": 2, "idle": 1})
    assert list(reasons(sampling).items()) == [
        ("alone", ["no_worker"]),
        ("failing", ["errors"]),
        ("letters", ["dead_letters"]),
        ("well", []),
        ("idle", []),
    ]
    first = sampling.behind(None, 2, None)
    rest = sampling.behind(first[-1][0], 10, None)
    assert [group.group_id for _, group in (*first, *rest)] == list(reasons(sampling))
    assert [list(group.reasons) for _, group in sampling.behind(None, 1, "failing")] == [["errors"]]
    assert sampling.behind(None, 1, "nobody") == []


def test_a_group_falls_behind_while_its_oldest_record_becomes_older() -> None:
    sampling = Sampling()
    oldest_ms, groups = START_MS - OLD_MS, ("stuck", "steady", "catching up")
    for number in range(8):
        moved = (0, number, number // 2 * 2)
        pairs = [
            (group, "t", counts(backlog=1, oldest=oldest_ms + rounds * ROUND_MS))
            for group, rounds in zip(groups, moved, strict=True)
        ]
        note(sampling, number, *pairs, workers=dict.fromkeys(groups, 1))
    assert reasons(sampling) == {"stuck": ["falling_behind"], "catching up": [], "steady": []}
