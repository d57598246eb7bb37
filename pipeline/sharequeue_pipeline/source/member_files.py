"""Messages that the processes of a driver leave for each other: files in a directory that only this user may read.

A streaming query acquires in a planning process of its own. The driver program settles for it when the query has ended,
and while a batch runs (`settle`). So the planning process writes how to reach the gateway, and the driver program
writes what a job settled, which the planning process must not accept:

    <member id>             {"gateway": {"url": …, "token": …, …}, "group": …, "on_error": …, "raised": [2000, 100000]}
    <member id>.settled     one line for each call of `settle`: {"batch": 7, "ranges": {…}}
"""

import json
import logging
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from sharequeue_pipeline import ranges
from sharequeue_pipeline.options import GatewayOptions, SourceOptions
from sharequeue_pipeline.ranges import Range

log = logging.getLogger(__name__)


class MemberReport(NamedTuple):
    """The way to settle for a member."""

    gateway: GatewayOptions
    group: str
    on_error: str
    raised: Sequence[int]
    """The group's limit of locks before the query raised it, and since; empty: it did not."""


def leave_report(directory: str, member_id: str, options: SourceOptions, raised: Sequence[int]) -> None:
    report = {
        "gateway": asdict(options.gateway),
        "group": options.group,
        "on_error": options.on_error,
        "raised": raised,
    }
    try:
        file = os.open(Path(directory) / member_id, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    except OSError as fault:
        log.warning("the query cannot settle its records when it ends, so their locks will run out: %s", fault)
        return
    with open(file, "w") as opened:
        json.dump(report, opened)


def read_report(directory: str, member_id: str) -> MemberReport:
    """Raises: OSError: the member left none."""
    report = json.loads((Path(directory) / member_id).read_text())
    return MemberReport(**{**report, "gateway": GatewayOptions(**report["gateway"])})


def note_settled(directory: str, member_id: str, batch: int, settled: Sequence[Range]) -> None:
    """Note what a job settled of a batch."""
    line = json.dumps({"batch": batch, "ranges": ranges.encode(settled)})
    file = os.open(_settled(directory, member_id), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with open(file, "w") as opened:
        opened.write(line + "\n")


def settled_by_job(directory: str, member_id: str, batch: int) -> list[Range]:
    """Return what a job settled of a batch. The batch is over: what was noted for it and for earlier ones is
    removed."""
    file = _settled(directory, member_id)
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return []
    noted = [json.loads(line) for line in lines]
    later = [line for line, each in zip(lines, noted, strict=True) if each["batch"] > batch]
    if later:
        file.write_text("\n".join(later) + "\n")
    else:
        file.unlink()
    return ranges.joined(entry for each in noted if each["batch"] == batch for entry in ranges.decode(each["ranges"]))


def _settled(directory: str, member_id: str) -> Path:
    return Path(directory) / f"{member_id}.settled"
