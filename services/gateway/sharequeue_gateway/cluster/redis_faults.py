"""What a failure of Redis means, and what to do. A Redis that refuses a command is up and needs an operator."""

import re
from collections.abc import Mapping
from typing import Final

from redis import exceptions

SILENT: Final = "does not answer"
_RIGHTS: Final = "refuses a command: the user in REDIS_URL needs more rights"
REFUSALS: Final[Mapping[str, str]] = {
    "OOM": "refuses writes, its memory is full: raise its maxmemory, or remove what else is in it",
    "READONLY": "refuses writes, it is a replica: REDIS_URL must name the primary",
    "MISCONF": "refuses writes, it cannot save its data: look into its log and at its disk",
    "NOREPLICAS": "refuses writes, it has too few replicas: look at its min-replicas-to-write",
    "NOAUTH": "refuses this gateway: REDIS_URL must bring a password",
    "WRONGPASS": "refuses this gateway: user or password in REDIS_URL is wrong",
    "NOPERM": _RIGHTS,
    "ACL failure": _RIGHTS,
    "user executing the script": _RIGHTS,
    "LOADING": "is loading its data after a start",
    "MASTERDOWN": "is a replica that has lost its primary: REDIS_URL must name the primary",
    "CLUSTERDOWN": "is a cluster that is down",
    "max number of clients": "takes no more connections: raise its maxclients",
}
"""By a word of the error; in the error of a script the word stands in the middle."""
_WORDS: Final = {
    exceptions.OutOfMemoryError: "OOM",
    exceptions.ReadOnlyError: "READONLY",
    exceptions.NoPermissionError: "NOPERM",
    exceptions.BusyLoadingError: "LOADING",
    exceptions.MasterDownError: "MASTERDOWN",
    exceptions.ClusterDownError: "CLUSTERDOWN",
}
"""The client removes the word from the text of these."""


def trouble_of(fault: BaseException) -> str:
    """What is wrong with Redis, as a predicate, and what to do."""
    for kind, word in _WORDS.items():
        if isinstance(fault, kind):
            return REFUSALS[word]
    text = str(fault)
    for word, sentence in REFUSALS.items():
        if re.search(rf"\b{word}\b", text):
            return sentence
    if isinstance(fault, exceptions.AuthenticationError):
        return REFUSALS["WRONGPASS"]
    if isinstance(fault, exceptions.ResponseError):
        return "refuses a command: the log of this gateway says which and why"
    return SILENT
