"""The chains of migrations, one for each schema. Their names are known without the libraries that run them."""

from typing import Final

CHAINS: Final = ("groups", "share_state", "log")
