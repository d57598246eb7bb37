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
    """Schemas of one directory. Methods raise PipelineError."""

    def __init__(self, uri: str, suffix: str, now: Callable[[], float] = time.monotonic) -> None:
        """`suffix`: of the schema files of one format. `now`: the clock, in seconds."""
        self.uri = uri
        self._suffix = suffix
        try:
            self._files, root = fs.FileSystem.from_uri(uri if "://" in uri else os.path.abspath(uri))
        except (OSError, ValueError) as fault:
            raise PipelineError(f"schemaRegistry {uri!r} cannot be opened: {fault}") from None
        self._root = root.rstrip("/")
        self._ids: set[int] = set()
        self._now = now
        self._listed_at = -math.inf

    def resolve(self, name: str) -> int:
        """The id that an option names: an id, or a subject, whose newest version counts."""
        if name.isascii() and name.isdigit():
            if not 0 < int(name) <= MAX_ID:
                raise PipelineError(f"valueSchema {name} is not a schema id: ids are 1 to {MAX_ID}")
            return int(name)
        path = f"subjects/{quote(name, safe='')}.json"
        text = self._read(path)
        if text is None:
            raise PipelineError(f"schemaRegistry {self.uri!r} has no subject {name!r}: {path} is missing")
        try:
            ids = json.loads(text)
        except ValueError:
            ids = None
        if not isinstance(ids, list) or not ids or not all(type(each) is int and 0 < each <= MAX_ID for each in ids):
            raise PipelineError(
                f"{path} in schemaRegistry {self.uri!r} must be a list of schema ids, the newest last, as [1, 2]"
            )
        return int(ids[-1])

    def knows(self, schema_id: int) -> bool:
        """Whether there is a schema with this id."""
        if schema_id not in self._ids and self._now() - self._listed_at >= LIST_S:
            self._listed_at = self._now()
            self._ids = self._listed()
        return schema_id in self._ids

    def _listed(self) -> set[int]:
        try:
            listed = self._files.get_file_info(fs.FileSelector(self._root))
        except (OSError, ValueError) as fault:
            raise PipelineError(f"schemaRegistry {self.uri!r} cannot be read: {fault}") from None
        found = set()
        for info in listed:
            name, _, suffix = info.base_name.rpartition(".")
            if suffix == self._suffix and name.isascii() and name.isdigit():
                found.add(int(name))
        return found

    def schema(self, schema_id: int) -> bytes:
        """The text of a schema."""
        text = self._read(f"{schema_id}.{self._suffix}")
        if text is None:
            raise PipelineError(
                f"schemaRegistry {self.uri!r} has no schema {schema_id}: {schema_id}.{self._suffix} is missing"
            )
        return text

    def fault(self, schema_id: int, why: Any) -> PipelineError:
        """A schema cannot be used."""
        return PipelineError(f"{schema_id}.{self._suffix} in schemaRegistry {self.uri!r} cannot be used: {why}")

    def _read(self, path: str) -> bytes | None:
        try:
            with self._files.open_input_stream(f"{self._root}/{path}") as file:
                found: bytes = file.read()
                return found
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as fault:
            raise PipelineError(f"schemaRegistry {self.uri!r} cannot be read: {fault}") from None
