"""`make pictures`: the group page of `/ui` in light and dark, from a real stack, for README.md and docs/ui.md."""

import tempfile
import time
from pathlib import Path
from typing import Final

from sharequeue.stack.stack import temporary_stack
from tests.browser.__main__ import chromium
from tests.browser.chromium import browser
from tests.browser.ui import Player
from tests.browser.ui_story import Story

TARGET: Final = Path(__file__).parents[2] / "docs/pictures"
LARGEST: Final = 120_000
LIVELY_S: Final = 150
"""How long the shop works before the picture: the charts need samples."""


def main() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="sharequeue-pictures-") as home,
        temporary_stack(Path(home) / "stack") as stack,
        browser(chromium(), Path(home) / "profile", "--hide-scrollbars") as page,
    ):
        story, player = Story(stack.url), Player(page, stack.url, TARGET)
        story.shop()
        lively(story, LIVELY_S)
        for scheme in ("light", "dark"):
            player.look(scheme, "picture")
            player.open("/ui/groups/fulfilment?topic=orders&partition=0")
            lively(story, 12)
            page.gather(0.5)
            made = player.picture(f"ui-{scheme}")
            assert made.stat().st_size <= LARGEST, f"{made} has {made.stat().st_size} bytes"


def lively(story: Story, seconds: float) -> None:
    """Let the shop work for so long."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        story.produce("orders", story.random.randrange(5, 25))
        story.work("fulfilment", "orders", f"worker-{story.random.randrange(1, 4)}", 14, story.mixed(30))
        time.sleep(1)


if __name__ == "__main__":
    main()
