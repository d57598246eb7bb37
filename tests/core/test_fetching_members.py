"""The members of groups that a gateway saw lately."""

from sharequeue_gateway.delivery.fetching_members import FetchingMembers


class Unread(dict[str, float]):
    """The members of a group that nobody asks for."""

    def items(self) -> object:  # type: ignore[override]
        raise AssertionError("they are read")


def test_the_members_of_a_group_are_found_without_those_of_others() -> None:
    members = FetchingMembers()
    members.seen["g"] = {"old": members.now_s - 61, "m": members.now_s - 2}
    members.hosts["g", "m"] = ("10.0.0.1", 5)
    members.seen["other"] = Unread(m=members.now_s)
    (found,) = members.of_groups(["g"])["g"]
    assert (found.member_id, found.seconds_ago, found.client_host) == ("m", 2, "10.0.0.1")
    assert members.of_groups(["unknown"]) == {"unknown": []}
    assert set(members.seen) == {"g", "other"}, "a look notes nobody"


def test_a_group_that_is_forgotten_has_no_members() -> None:
    members = FetchingMembers()
    members.seen["g"]["m"] = members.now_s
    members.hosts["g", "m"] = ("10.0.0.1", 5)
    members.seen["old"]["m"] = members.now_s - 61
    assert list(members.numbers()) == ["g"]
    members.forget_group("g")
    members.forget_group("unknown")
    assert (list(members.seen), members.hosts, members.numbers()) == (["old"], {}, {})
