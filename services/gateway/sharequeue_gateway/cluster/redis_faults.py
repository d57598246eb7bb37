"""The meaning of each failure of Redis, and the remedy. If Redis refuses a command, it is up and needs an operator."""

import re
from collections.abc import Mapping
from typing import Final

from redis import exceptions

SILENT: Final = "does not answer"
_RIGHTS: Final = "refuses a command: the user in REDIS_URL needs more rights"
REFUSALS: Final[Mapping[str, str]] = {
    "OOM": "refuses writes, its memory is full: raise its maxmemory, or remove what else is in it",
    "READONLY": "refuses writes, it is a replica: REDIS_URL must name the primary",
    "MISCONF": "refuses writes, it cannot save its data: check its log and its disk",
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
    "CERTIFICATE_VERIFY_FAILED": "shows a certificate that is not accepted: renew it, or mend the host or ssl_ca_certs in REDIS_URL",
}
"""Meanings by a word of the error. In the error of a script, that word stands in the middle."""
_WORDS: Final = {
    exceptions.OutOfMemoryError: "OOM",
    exceptions.ReadOnlyError: "READONLY",
    exceptions.NoPermissionError: "NOPERM",
    exceptions.BusyLoadingError: "LOADING",
    exceptions.MasterDownError: "MASTERDOWN",
    exceptions.ClusterDownError: "CLUSTERDOWN",
}
"""The client removes the word from the text of these exceptions."""


def trouble_of(fault: BaseException) -> str:
    """The meaning of a failure and the remedy, as a predicate: the subject is Redis."""
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
