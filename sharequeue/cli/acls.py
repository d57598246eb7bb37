"""`sharequeue acls`: rights of principals, in the words and with the output of kafka-acls.sh."""

import itertools
from collections.abc import Iterable
from typing import Any, Final

import click

from sharequeue.cli.access import Place, in_place, message
from sharequeue.cli.commands import Commands
from sharequeue.cli.output import echo_json, say
from sharequeue.protocol import apis
from sharequeue.protocol.access.rights import CLUSTER_NAME, Operation, PatternType, ResourceType
from sharequeue.protocol.messages.access import Acl, AclList, AddAclsRequest, ListAclsQuery

PRODUCER: Final = {ResourceType.TOPIC: ("WRITE", "CREATE"), ResourceType.TRANSACTIONAL_ID: ("WRITE",)}
CONSUMER: Final = {ResourceType.TOPIC: ("READ",), ResourceType.GROUP: ("READ",)}
"""What --producer and --consumer stand for."""


@click.group(cls=Commands)
def acls() -> None:
    """Add, list and remove what principals may do."""


def resource_options(command: Any) -> Any:
    """The options that name principals, operations and resources."""
    operations = click.Choice([each.value for each in Operation], case_sensitive=False)
    patterns = click.Choice([each.value for each in PatternType], case_sensitive=False)
    for option in (
        click.option(
            "--resource-pattern-type", "pattern", type=patterns, help="how names are meant  [default: LITERAL]"
        ),
        click.option("--cluster", is_flag=True, help="the cluster itself"),
        click.option("--transactional-id", "transactional_ids", multiple=True, help="repeatable"),
        click.option("--group", "groups", multiple=True, help="a group, * for all; repeatable"),
        click.option("--topic", "topics", multiple=True, help="a topic, * for all; repeatable"),
        click.option("--operation", "operations", multiple=True, type=operations, help="repeatable"),
        click.option("--principal", "principals", multiple=True, metavar="User:NAME", help="repeatable"),
    ):
        command = option(command)
    return command


def _resources(
    topics: Iterable[str], groups: Iterable[str], transactional_ids: Iterable[str], cluster: bool
) -> list[tuple[ResourceType, str]]:
    return [
        *((ResourceType.TOPIC, name) for name in topics),
        *((ResourceType.GROUP, name) for name in groups),
        *((ResourceType.TRANSACTIONAL_ID, name) for name in transactional_ids),
        *([(ResourceType.CLUSTER, CLUSTER_NAME)] if cluster else ()),
    ]


@acls.command()
@resource_options
@click.option("--producer", is_flag=True, help="WRITE and CREATE on topics, WRITE on transactional ids")
@click.option("--consumer", is_flag=True, help="READ on topics and groups")
@in_place
async def add(
    principals: tuple[str, ...],
    operations: tuple[str, ...],
    topics: tuple[str, ...],
    groups: tuple[str, ...],
    transactional_ids: tuple[str, ...],
    cluster: bool,
    pattern: str | None,
    producer: bool,
    consumer: bool,
    place: Place,
    as_json: bool,
) -> None:
    """Let each principal do each operation on each resource. All of it is added, or nothing."""
    resources = _resources(topics, groups, transactional_ids, cluster)
    if not principals or not resources or not (operations or producer or consumer):
        raise click.UsageError(
            "name a --principal, an --operation (or --producer, --consumer), and a --topic, --group, --transactional-id or"
            " --cluster"
        )
    wanted = {}
    for principal, (kind, name) in itertools.product(principals, resources):
        also = (PRODUCER.get(kind, ()) if producer else ()) + (CONSUMER.get(kind, ()) if consumer else ())
        for operation in (*operations, *also):
            acl = {
                "principal": principal,
                "operation": operation,
                "resource_type": kind.value,
                "resource_name": name,
                "pattern_type": "LITERAL" if kind is ResourceType.CLUSTER else pattern or "LITERAL",
            }
            wanted[tuple(acl.values())] = acl
    added: AclList = await place.call(apis.ADD_ACLS, message(AddAclsRequest, acls=list(wanted.values())))
    _show(added, "Adding ACLs", as_json)


@acls.command("list")
@resource_options
@in_place
async def list_acls(place: Place, as_json: bool, **options: Any) -> None:
    """List what principals may do. Without options: everything."""
    found = [each for query in _queries(**options) for each in (await place.call(apis.LIST_ACLS, query)).acls]
    _show(AclList(acls=list(dict.fromkeys(found))), "Current ACLs", as_json)


@acls.command()
@resource_options
@in_place
async def remove(place: Place, as_json: bool, **options: Any) -> None:
    """Remove the rights that fit the options, at least one of which is needed."""
    queries = _queries(**options)
    if queries == [ListAclsQuery()]:
        raise click.UsageError("name at least one option: which rights to remove")
    removed: list[Acl] = []
    try:
        for query in queries:
            removed += (await place.call(apis.REMOVE_ACLS, query)).acls
    finally:  # if one fails, those before it are gone
        _show(AclList(acls=removed), "Removed ACLs", as_json)
    if not removed and not as_json:
        say("no right fits")


def _queries(
    principals: tuple[str, ...],
    operations: tuple[str, ...],
    topics: tuple[str, ...],
    groups: tuple[str, ...],
    transactional_ids: tuple[str, ...],
    cluster: bool,
    pattern: str | None,
) -> list[ListAclsQuery]:
    """One query for each combination of the options."""
    named = _resources(topics, groups, transactional_ids, cluster)
    resources: list[tuple[ResourceType, str] | tuple[None, None]] = [*named] or [(None, None)]
    return [
        message(
            ListAclsQuery,
            principal=principal,
            operation=operation,
            resource_type=None if kind is None else kind.value,
            resource_name=name,
            pattern_type=pattern,
        )
        for principal, operation, (kind, name) in itertools.product(
            principals or (None,), operations or (None,), resources
        )
    ]


def _show(found: AclList, title: str, as_json: bool) -> None:
    """Print rights by resource, as kafka-acls.sh does."""
    if as_json:
        echo_json(found)
        return

    def resource(acl: Acl) -> tuple[str, str, str]:
        return acl.resource_type, acl.resource_name, acl.pattern_type

    for (kind, name, pattern), rights in itertools.groupby(sorted(found.acls, key=resource), resource):
        click.echo(f"{title} for resource `ResourcePattern(resourceType={kind}, name={name}, patternType={pattern})`:")
        for acl in rights:
            click.echo(f"\t(principal={acl.principal}, host=*, operation={acl.operation}, permissionType=ALLOW)")
