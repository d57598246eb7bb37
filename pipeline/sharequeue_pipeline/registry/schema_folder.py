"""The directory of schemas: a file for each schema id. The room's docstring has the layout."""

import os
from collections.abc import Callable
from typing import Any

from pyarrow import fs

from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.registry.wire_format import Malformed


class SchemaFolder:
    """Schemas of one format in one directory. Raises: PipelineError: the directory cannot be read.

    An id never changes its schema, so a file is read once. The directory is listed once: a schema is there before the
    first value of it, and so before a task that reads this value.
    """

    def __init__(self, uri: str, suffix: str, parse: Callable[[bytes], Any]) -> None:
        """`suffix`: of the schema files. `parse`: makes a schema of a file, or raises any exception."""
        self._where, self._suffix, self._parse = f"schemaRegistry {uri!r}", suffix, parse
        self._schemas: dict[int, Any] = {}
        try:
            self._files, self._root = fs.FileSystem.from_uri(uri if "://" in uri else os.path.abspath(uri))
            self._names = {info.base_name for info in self._files.get_file_info(fs.FileSelector(self._root))}
        except (OSError, ValueError) as fault:
            raise PipelineError(f"{self._where} cannot be read: {fault}") from None

    def schema(self, schema_id: int, missing: type[Exception] = Malformed) -> Any:
        """Return what `parse` made of a schema. Raises: `missing`: there is none; PipelineError: it cannot be used."""
        if schema_id not in self._schemas:
            name = f"{schema_id}.{self._suffix}"
            if name not in self._names:
                raise missing(f"there is no schema {schema_id}: {self._where} has no {name}")
            try:
                with self._files.open_input_stream(f"{self._root}/{name}") as file:
                    self._schemas[schema_id] = self._parse(bytes(file.read()))
            except Exception as fault:  # each library has its own
                raise PipelineError(f"{name} in {self._where} cannot be used: {fault}") from None
        return self._schemas[schema_id]
