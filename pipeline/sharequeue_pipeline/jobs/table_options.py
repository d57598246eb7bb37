"""The options of jobs that write a Delta table: how keys and values become columns."""

import functools
from collections.abc import Callable
from typing import Any

import click

from sharequeue_pipeline.options import READ_FORMATS, REGISTRY_FORMATS


def table_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command gets `columns`: the options of the source that were given, by their names there."""

    @click.option("--key-format", type=click.Choice(["binary", "string"]), help="of keys in the table; default: binary")
    @click.option("--value-format", type=click.Choice(READ_FORMATS), help="of values in the table; default: binary")
    @click.option(
        "--value-schema",
        metavar="ID",
        help="with avro and protobuf: the id of the schema that gives the columns",
    )
    @click.option("--schema-registry", metavar="DIRECTORY", help="with avro and protobuf: the schemas")
    @click.option("--value-message", metavar="NAME", help="with protobuf; default: the schema's first")
    @functools.wraps(command)
    def with_columns(
        *arguments: Any,
        key_format: str | None,
        value_format: str | None,
        value_schema: str | None,
        schema_registry: str | None,
        value_message: str | None,
        **others: Any,
    ) -> Any:
        given = {
            "keyFormat": key_format,
            "valueFormat": value_format,
            "valueSchema": value_schema,
            "schemaRegistry": schema_registry,
            "valueMessage": value_message,
            "onMalformed": "null" if value_format in REGISTRY_FORMATS else None,
        }
        columns = {name: value for name, value in given.items() if value is not None}
        return command(*arguments, columns=columns, **others)

    return with_columns
