"""How many examples a property test draws."""

import os


def examples(many: int) -> int:
    """`many` in `make soak`, an eighth of them in all other runs."""
    return many if "SOAK" in os.environ else many // 8
