"""Schemas by their id, each read and parsed once: an id never changes its schema."""

from collections.abc import Callable, Sequence
from typing import Any

from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.options import REGISTRY_URL, ValueOptions
from sharequeue_pipeline.schemas.folder import SchemaFolder
from sharequeue_pipeline.schemas.server import SchemaServer


class Schemas:
    """The schemas of one format in a registry. Raises: PipelineError: the registry cannot be read."""

    def __init__(self, options: ValueOptions, suffix: str, parse: Callable[[Sequence[bytes]], Any]) -> None:
        """`suffix`: of files in a directory. `parse`: makes a schema of the last text, or raises any exception."""
        self._parse = parse
        self._schemas: dict[int, Any] = {}
        self._missing: set[int] = set()
        self._source: SchemaFolder | SchemaServer
        if REGISTRY_URL.match(options.schema_registry):
            self._source = SchemaServer(options)
        else:
            self._source = SchemaFolder(options.schema_registry, suffix)

    def schema(self, schema_id: int, missing: type[Exception]) -> Any:
        """Return what `parse` made of a schema. Raises: `missing`: there is none; PipelineError: it cannot be used."""
        if schema_id not in self._schemas:
            name = self._source.name(schema_id)
            try:
                found = None if schema_id in self._missing else self._source.read(schema_id)
                if found is not None:
                    self._schemas[schema_id] = self._parse(found)
            except PipelineError:
                raise
            except Exception as fault:  # each library has its own
                raise PipelineError(f"{name} in {self._source.where} cannot be used: {fault}") from None
            if found is None:
                self._missing.add(schema_id)
                raise missing(f"there is no schema {schema_id}: {self._source.where} has no {name}")
        return self._schemas[schema_id]
