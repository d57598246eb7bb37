"""`sharequeue acls`: rights of principals, in the words and with the output of kafka-acls.sh."""

import itertools
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, get_args

import click

from sharequeue.cli.access import Place, in_place, message
from sharequeue.cli.commands import Commands
from sharequeue.cli.output import echo_json, say
from sharequeue.protocol import apis
from sharequeue.protocol.access.rights import CLUSTER_NAME
from sharequeue.protocol.messages.access import Acl, AclList, AddAclsRequest, ListAclsQuery, Operation, PatternType

PRODUCER: Final = {"TOPIC": ("WRITE", "CREATE"), "TRANSACTIONAL_ID": ("WRITE",)}
CONSUMER: Final = {"TOPIC": ("READ",), "GROUP": ("READ",)}
"""What --producer and --consumer stand for."""
NAMED: Final = {"topics": "TOPIC", "groups": "GROUP", "transactional_ids": "TRANSACTIONAL_ID"}


@click.group(cls=Commands)
def acls() -> None:
    """Add, list and remove what principals may do."""


def resource_options(command: Any) -> Any:
    words = (get_args(get_args(kind)[0]) for kind in (Operation, PatternType))
    operations, patterns = (click.Choice(each, case_sensitive=False) for each in words)
    for option in (
        click.option("--resource-pattern-type", "pattern", type=patterns, help="what names mean  [default: LITERAL]"),
        click.option("--cluster", is_flag=True, help="the cluster itself"),
        click.option("--transactional-id", "transactional_ids", multiple=True, help="repeatable"),
        click.option("--group", "groups", multiple=True, help="a group, * for all; repeatable"),
        click.option("--topic", "topics", multiple=True, help="a topic, * for all; repeatable"),
        click.option("--operation", "operations", multiple=True, type=operations, help="repeatable"),
        click.option("--principal", "principals", multiple=True, metavar="User:NAME", help="repeatable"),
    ):
        command = option(command)
    return command


def _combined(options: Mapping[str, Any], also: Sequence[Mapping[Any, Sequence[str]]] = ()) -> list[dict[str, Any]]:
    """The members of a right for each combination of the options; without an option, without its member.

    `also`: the operations that an option stands for, by the type of the resource.
    """
    pattern = options["pattern"]
    resources: list[Any] = [(kind, name, pattern) for option, kind in NAMED.items() for name in options[option]]
    resources += [("CLUSTER", CLUSTER_NAME, "LITERAL")] * options["cluster"]
    combined = [
        (principal, operation, *resource)
        for principal in options["principals"] or (None,)
        for resource in resources or [(None, None, pattern)]
        for operation in (*options["operations"], *(each for of in also for each in of.get(resource[0], ()))) or (None,)
    ]
    return [
        {member: value for member, value in zip(Acl.__struct_fields__, values, strict=True) if value is not None}
        for values in dict.fromkeys(combined)
    ]


@acls.command()
@resource_options
@click.option("--producer", is_flag=True, help="WRITE and CREATE on topics, WRITE on transactional ids")
@click.option("--consumer", is_flag=True, help="READ on topics and groups")
@in_place
async def add(producer: bool, consumer: bool, place: Place, **options: Any) -> None:
    """Let each principal do each operation on each resource. All of it is added, or nothing."""
    also = [words for words, meant in ((PRODUCER, producer), (CONSUMER, consumer)) if meant]
    named = any(options[each] for each in (*NAMED, "cluster"))
    if not options["principals"] or not named or not (options["operations"] or also):
        raise click.UsageError(
            "name a --principal, an --operation (or --producer, --consumer), and a --topic, --group, --transactional-id or"
            " --cluster"
        )
    wanted = [acl for acl in _combined(options, also) if "operation" in acl]
    added: AclList = await place.call(apis.ADD_ACLS, message(AddAclsRequest, acls=wanted))
    _show(place, added.acls, "Adding ACLs")


@acls.command("list")
@resource_options
@in_place
async def list_acls(place: Place, **options: Any) -> None:
    """List what principals may do. Without options: everything."""
    queries = [message(ListAclsQuery, **members) for members in _combined(options)]
    found = [each for query in queries for each in (await place.call(apis.LIST_ACLS, query)).acls]
    _show(place, list(dict.fromkeys(found)), "Current ACLs")


@acls.command()
@resource_options
@in_place
async def remove(place: Place, **options: Any) -> None:
    """Remove the rights that fit the options, at least one of which is needed."""
    queries = [message(ListAclsQuery, **members) for members in _combined(options)]
    if queries == [ListAclsQuery()]:
        raise click.UsageError("name at least one option: which rights to remove")
    removed: list[Acl] = []
    try:
        for query in queries:
            removed += (await place.call(apis.REMOVE_ACLS, query)).acls
    finally:  # if one fails, those before it are gone
        _show(place, removed, "Removed ACLs")
    if not removed and not place.as_json:
        say("no right fits")


def _show(place: Place, found: list[Acl], title: str) -> None:
    """Print rights by resource, as kafka-acls.sh does."""
    if place.as_json:
        echo_json(AclList(acls=found))
        return
    resource = attrgetter("resource_type", "resource_name", "pattern_type")
    for (kind, name, pattern), rights in itertools.groupby(sorted(found, key=resource), resource):
        click.echo(f"{title} for resource `ResourcePattern(resourceType={kind}, name={name}, patternType={pattern})`:")
        for acl in rights:
            click.echo(f"\t(principal={acl.principal}, host=*, operation={acl.operation}, permissionType=ALLOW)")
