"""The directory of schemas: a file for each schema id. The docstring of the room has the layout."""

import os

from pyarrow import fs

from sharequeue_pipeline.errors import PipelineError


class SchemaFolder:
    """Files of one format in one directory. Raises: PipelineError: the directory cannot be read.

    The directory is listed once: a schema is there before the first value of it, and so before a task that reads this
    value.
    """

    def __init__(self, uri: str, suffix: str) -> None:
        """`suffix`: of the schema files."""
        self.where, self._suffix = f"schemaRegistry {uri!r}", suffix
        try:
            self._files, self._root = fs.FileSystem.from_uri(uri if "://" in uri else os.path.abspath(uri))
            self._names = {info.base_name for info in self._files.get_file_info(fs.FileSelector(self._root))}
        except (OSError, ValueError) as fault:
            raise PipelineError(f"{self.where} cannot be read: {fault}") from None

    def name(self, schema_id: int) -> str:
        return f"{schema_id}.{self._suffix}"

    def read(self, schema_id: int) -> list[bytes] | None:
        """The file of a schema; None: there is none. Raises: OSError."""
        if self.name(schema_id) not in self._names:
            return None
        with self._files.open_input_stream(f"{self._root}/{self.name(schema_id)}") as file:
            return [bytes(file.read())]
