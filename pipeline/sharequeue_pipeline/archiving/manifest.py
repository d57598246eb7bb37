"""The manifest of an archive: which offsets of each partition are in which files, with counts and checksums.

It is one JSON document per topic, `_manifests/<topic>.json`. A new version replaces it atomically.
"""

import contextlib
import fcntl
import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
from pyarrow import fs

from sharequeue_pipeline.errors import PipelineError

OURS: Final = re.compile(r"\d{20}-\d{20}\.parquet")


class ArchivedFile(msgspec.Struct, kw_only=True):
    """A Parquet file with the records of one segment that have one date (UTC). `path`: below the archive's root."""

    path: str
    records: int
    bytes: int
    checksum: str


class Segment(msgspec.Struct, kw_only=True):
    """Offsets that one task has archived.

    `deleted_before`: the log start after the task had read, if it lay in the segment. Some records below may be
    missing.
    """

    first_offset: int
    last_offset: int
    records: int
    files: list[ArchivedFile]
    deleted_before: int | None = None


class Gap(msgspec.Struct, kw_only=True):
    """Offsets that left the log before they were archived."""

    first_offset: int
    last_offset: int


class PartitionArchive(msgspec.Struct, kw_only=True):
    """One partition. From the first segment on, its segments and gaps cover all offsets below `next_offset`."""

    next_offset: int
    segments: list[Segment] = []
    gaps: list[Gap] = []


class Manifest(msgspec.Struct, kw_only=True):
    topic: str
    topic_id: str
    version: int = 1
    partitions: dict[int, PartitionArchive] = {}


class Archive:
    """The directory of an archive: a path, or a URI of a file system that pyarrow knows (s3://, gs://, hdfs://)."""

    def __init__(self, root: str, topic: str) -> None:
        try:
            self.fs, self.root = fs.FileSystem.from_uri(root if "://" in root else os.path.abspath(root))
        except (OSError, ValueError) as fault:
            raise PipelineError(f"{root!r} cannot hold an archive: {fault}") from None
        self.topic = topic
        self._manifest = f"{self.root}/_manifests/{topic}.json"
        self._staging = f"{self.root}/_staging/{topic}"

    @property
    def _local(self) -> bool:
        return isinstance(self.fs, fs.LocalFileSystem)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the archive of the topic against other runs, if the file system is local.

        Raises: PipelineError: another run has the lock, or the directory cannot be written.
        """
        try:
            self.fs.create_dir(f"{self.root}/_manifests")
        except OSError as fault:
            raise PipelineError(f"the archive at {self.root} cannot be written: {fault}") from None
        if not self._local:
            yield
            return
        with open(f"{self.root}/_manifests/{self.topic}.lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise PipelineError(f"another run archives {self.topic} to {self.root}") from None
            yield

    def load(self, topic_id: str) -> Manifest:
        """The manifest, or an empty one. Raises: PipelineError: it is not readable, or belongs to an earlier topic."""
        try:
            with self.fs.open_input_stream(self._manifest) as opened:
                manifest = msgspec.json.decode(opened.read(), type=Manifest)
        except FileNotFoundError:
            return Manifest(topic=self.topic, topic_id=topic_id)
        except (OSError, msgspec.DecodeError) as fault:
            raise PipelineError(f"the manifest {self._manifest} cannot be read: {fault}") from None
        if manifest.topic_id != topic_id:
            raise PipelineError(
                f"the archive at {self.root} belongs to an earlier topic {self.topic!r} ({manifest.topic_id}), "
                f"not to the present one ({topic_id}): give another directory"
            )
        return manifest

    def save(self, manifest: Manifest) -> None:
        """Replace the manifest atomically."""
        data = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
        if not self._local:  # an object store writes an object as a whole or not at all
            with self.fs.open_output_stream(self._manifest) as opened:
                opened.write(data)
            return
        beside = f"{self._manifest}.{uuid.uuid4().hex}"
        with open(beside, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, self._manifest)
        directory = os.open(Path(self._manifest).parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def staging(self) -> str:
        """A new directory for one task, outside the archived files."""
        return f"{self._staging}/{uuid.uuid4().hex}"

    def publish(self, staged: str, segment: Segment) -> None:
        """Move the files of a segment from staging into place. The caller saves the manifest afterwards."""
        for file in segment.files:
            place = f"{self.root}/{file.path}"
            self.fs.create_dir(place.rpartition("/")[0])
            self.fs.move(f"{staged}/{file.path}", place)

    def clean_up(self, manifest: Manifest) -> int:
        """Remove the leftovers of runs that were killed. Returns: how many Parquet files."""
        for left in (self._staging, *self._manifests_left()):
            if self.fs.get_file_info(left).type is fs.FileType.Directory:
                self.fs.delete_dir(left)
            elif self.fs.get_file_info(left).type is fs.FileType.File:
                self.fs.delete_file(left)
        named = {
            f"{self.root}/{file.path}"
            for partition in manifest.partitions.values()
            for segment in partition.segments
            for file in segment.files
        }
        removed = 0
        for info in self._listed(f"{self.root}/topic={self.topic}", recursive=True):
            if info.type is fs.FileType.File and OURS.fullmatch(info.base_name) and info.path not in named:
                self.fs.delete_file(info.path)
                removed += 1
        return removed

    def _manifests_left(self) -> list[str]:
        return [
            info.path
            for info in self._listed(f"{self.root}/_manifests")
            if re.fullmatch(re.escape(f"{self.topic}.json.") + "[0-9a-f]{32}", info.base_name)
        ]

    def _listed(self, directory: str, *, recursive: bool = False) -> list[Any]:
        selector = fs.FileSelector(directory, allow_not_found=True, recursive=recursive)
        return list(self.fs.get_file_info(selector))
