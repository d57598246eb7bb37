"""A schema registry over HTTP, with the calls that Confluent's clients make: a schema by its id, and what it refers to.

A schema is asked for when the first value of it is read, and its answer stays in the process, for later tasks too.
"""

import asyncio
import base64
import binascii
import importlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from sharequeue_http.calling.caller import Client, decoded
from sharequeue_http.calling.login import Login
from sharequeue_http.forms.api import Api
from sharequeue_http.forms.errors import ApiError
from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.options import ValueOptions

MAX_REFERENCES: Final = 100
"""Of one schema, also by way of others."""
MAX_KNOWN: Final = 1000
_NO_SCHEMA: Final = 40403
"""The registry's code of an id that it does not have."""
_JSON: Final = "application/vnd.schemaregistry.v1+json"
_OF_PROTOBUF: Final = re.compile(r"google/protobuf/(\w+)\.proto")


class _Form(msgspec.Struct):
    """`format`: "serialized" asks for Protobuf's descriptor of a file in place of its text."""

    format: str | None = None


class _Reference(msgspec.Struct):
    name: str
    subject: str
    version: int


class _Schema(msgspec.Struct):
    """A schema, or with `error_code` the reason why there is none."""

    schema: str = ""
    type: str | None = msgspec.field(default=None, name="schemaType")
    references: list[_Reference] | None = None
    error_code: int = 0
    message: str = ""


_BY_ID: Final = Api("getSchema", "GET /schemas/ids/{id}", "", request=_Form, response=_Schema, also=(404,))
_BY_VERSION: Final = Api(
    "getVersion", "GET /subjects/{subject}/versions/{version}", "", request=_Form, response=_Schema, also=(404,)
)
_known: Final[dict[tuple[Any, ...], list[bytes]]] = {}
"""The texts of schemas that this process has read, by the way there and the id."""


class SchemaServer:
    """The schemas of one format that a registry has."""

    def __init__(self, options: ValueOptions) -> None:
        self._options = options
        self._way = options.gateway, options.value_format, options.schema_registry, options.registry_login
        self.where = f"schemaRegistry {options.schema_registry!r}"

    def name(self, schema_id: int) -> str:
        return f"{self._options.value_format} schema {schema_id}"

    def read(self, schema_id: int) -> list[bytes] | None:
        """A schema with those that it refers to before it: texts of Avro, or a descriptor set. None: there is none.

        Raises: PipelineError: the registry refuses the call, or does not answer within `timeoutMs`.
        """
        key = *self._way, schema_id
        if key not in _known:
            try:
                found = asyncio.run(self._found(schema_id))
            except ApiError as fault:
                login = "it wants another login: schemaRegistryLogin names a file with user:password, or a token"
                why = login if fault.status in (401, 403) else fault.detail
                raise PipelineError(f"{self.where}: {why}") from None
            if found is None:
                return None
            if len(_known) >= MAX_KNOWN:
                _known.clear()
            _known[key] = list(found.values()) if self._options.value_format == "avro" else [_descriptor_set(found)]
        return _known[key]

    async def _found(self, schema_id: int) -> dict[str, bytes] | None:
        gateway = self._options.gateway
        urls = self._options.schema_registry.split(",")
        client = Client(urls, login=self._login(), deadline_s=gateway.timeout_ms / 1000, ca=gateway.ca)
        try:
            schema = await self._ask(client, _BY_ID, id=schema_id)
            of_format = (schema.type or "AVRO").lower() == self._options.value_format
            if schema.error_code == _NO_SCHEMA or not (schema.error_code or of_format):
                return None
            return await self._whole(client, f"{schema_id}.proto", schema, set())
        finally:
            await client.close()

    async def _whole(self, client: Client, name: str, schema: _Schema, begun: set[str]) -> dict[str, bytes]:
        """A schema, behind those that it refers to and that are not `begun`.

        Raises: PipelineError: there are too many, or one is missing.
        """
        if schema.error_code:
            raise PipelineError(f"{self.where}: {schema.message}")
        found: dict[str, bytes] = {}
        for each in schema.references or ():
            if each.name not in begun:
                begun.add(each.name)
                if len(begun) > MAX_REFERENCES:
                    raise PipelineError(f"{self.where}: a schema refers to more than {MAX_REFERENCES} others")
                part = await self._ask(client, _BY_VERSION, subject=each.subject, version=each.version)
                found |= await self._whole(client, each.name, part, begun)
        return {**found, name: schema.schema.encode()}

    async def _ask(self, client: Client, api: Api, **path: Any) -> _Schema:
        form = _Form(None if self._options.value_format == "avro" else "serialized")
        body, _ = await client.relay(api, form, path=path, headers={"Accept": _JSON})
        schema: _Schema = decoded(api, body, client.base_url)
        return schema

    def _login(self) -> Login:
        """Read the file of the login. Raises: PipelineError: it cannot be read, or has something else."""
        if self._options.registry_login is None:
            return Login()
        try:
            text = Path(self._options.registry_login).read_text().strip()
            if ":" not in text:
                return Login(text)
            return Login(headers={"Authorization": f"Basic {base64.b64encode(text.encode()).decode()}"})
        except (OSError, ValueError) as fault:
            raise PipelineError(f"schemaRegistryLogin cannot be used: {fault}") from None


def _descriptor_set(files: Mapping[str, bytes]) -> bytes:
    """The descriptor set of .proto files, each behind its imports. `files`: their descriptors in base64, by name."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet  # noqa: PLC0415 - not for Avro

    found: dict[str, Any] = {}

    def add(name: str, file: Any) -> None:
        for needed in file.dependency:
            own = _OF_PROTOBUF.fullmatch(needed)
            if own is not None and needed not in found:
                module = importlib.import_module(f"google.protobuf.{own[1]}_pb2")
                add(needed, FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb))
        file.name = name
        found[name] = file

    for name, text in files.items():
        try:
            add(name, FileDescriptorProto.FromString(base64.b64decode(text, validate=True)))
        except binascii.Error:
            raise ValueError("it knows no format=serialized; write a descriptor set of protoc to a directory") from None
    return bytes(FileDescriptorSet(file=found.values()).SerializeToString())
