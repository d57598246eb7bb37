"""The chains of migrations, one for each schema. Nothing here loads the libraries that run them."""

from pathlib import Path
from typing import Final

CHAINS: Final = ("groups", "share_state", "log")


def scripts() -> Path:
    """Return where the migrations are: beside the checkout's packages, or inside the installed one."""
    package = Path(__file__).parents[1]
    checkout = package.parent / "migrations"
    return checkout if checkout.is_dir() else package / "_migrations"


def head(chain: str) -> str:
    """Return the last revision of a chain: `log_17` of `0017_log.py`."""
    number, _, what = max(file.stem for file in (scripts() / chain / "versions").glob("*.py")).partition("_")
    return f"{what}_{int(number)}"
