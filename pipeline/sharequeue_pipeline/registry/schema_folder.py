"""The directory of schemas: files by schema id, and subjects with their ids. The folder's docstring has the layout.

An id never changes its schema, so a file is read once. An unknown id may have been added since, by a producer that
wrote while a task ran: the directory is listed again then, but not more often than every second.
"""

import json
import math
import os
import time
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote

from pyarrow import fs

from sharequeue_pipeline.errors import PipelineError

MAX_ID: Final = 2**31 - 1
LIST_S: Final = 1.0
"""How old a list of the directory may be that lacks an id."""


class SchemaFolder:
    """Schemas of one format in one directory. Methods raise PipelineError."""

    def __init__(self, uri: str, suffix: str, now: Callable[[], float] = time.monotonic) -> None:
        """`suffix`: of the schema files. `now`: the clock, in seconds."""
        self._where, self._suffix, self._now = f"schemaRegistry {uri!r}", suffix, now
        try:
            files, root = fs.FileSystem.from_uri(uri if "://" in uri else os.path.abspath(uri))
        except (OSError, ValueError) as fault:
            raise PipelineError(f"{self._where} cannot be opened: {fault}") from None
        self._files = fs.SubTreeFileSystem(root, files)
        self._names: set[str] = set()
        self._listed_at = -math.inf

    def resolve(self, name: str) -> int:
        """The id that an option names: an id, or a subject, whose newest version counts."""
        if name.isascii() and name.isdigit():
            if not 0 < int(name) <= MAX_ID:
                raise PipelineError(f"valueSchema {name} is not a schema id: ids are 1 to {MAX_ID}")
            return int(name)
        path = f"subjects/{quote(name, safe='')}.json"
        text = self._read(path, f"subject {name!r}")
        try:
            ids = json.loads(text)
        except ValueError:
            ids = None
        if not isinstance(ids, list) or not ids or not all(type(each) is int and 0 < each <= MAX_ID for each in ids):
            raise PipelineError(f"{path} in {self._where} must be a list of schema ids, the newest last, as [1, 2]")
        return int(ids[-1])

    def knows(self, schema_id: int) -> bool:
        """Whether there is a schema with this id."""
        name = f"{schema_id}.{self._suffix}"
        if name not in self._names and self._now() - self._listed_at >= LIST_S:
            self._listed_at = self._now()
            try:
                self._names = {info.base_name for info in self._files.get_file_info(fs.FileSelector(""))}
            except (OSError, ValueError) as fault:
                raise PipelineError(f"{self._where} cannot be read: {fault}") from None
        return name in self._names

    def schema(self, schema_id: int) -> bytes:
        """The text of a schema."""
        return self._read(f"{schema_id}.{self._suffix}", f"schema {schema_id}")

    def fault(self, schema_id: int, why: Any) -> PipelineError:
        """A schema cannot be used."""
        return PipelineError(f"{schema_id}.{self._suffix} in {self._where} cannot be used: {why}")

    def _read(self, path: str, what: str) -> bytes:
        try:
            with self._files.open_input_stream(path) as file:
                return bytes(file.read())
        except FileNotFoundError:
            raise PipelineError(f"{self._where} has no {what}: {path} is missing") from None
        except (OSError, ValueError) as fault:
            raise PipelineError(f"{self._where} cannot be read: {fault}") from None
