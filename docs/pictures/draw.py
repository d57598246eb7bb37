"""Draws the pictures of README.md and docs/concepts.md: `python docs/pictures/draw.py`.

`window.svg` shows what a group remembers of a partition. In `sharequeue.svg` the upper half shows the three services
and the two stores, the lower half the life of a record in one group. A test compares the files with what this program
draws, and the arrows of a record's life with the state machine's own table.
"""

from pathlib import Path
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

TARGET: Final = Path(__file__).with_name("sharequeue.svg")
WINDOW: Final = Path(__file__).with_name("window.svg")
WIDTH: Final = 920
HEIGHT: Final = 545

STYLE: Final = """
  .page { fill: #ffffff; stroke: #d0d7de }
  .service { fill: #ddf4ff; stroke: #0969da }
  .store { fill: #f6f8fa; stroke: #57606a }
  .state { fill: #ffffff; stroke: #57606a }
  .good { fill: #dafbe1; stroke: #1a7f37 }
  .bad { fill: #fff1e5; stroke: #bc4c00 }
  .held { fill: #ddf4ff; stroke: #0969da }
  rect { stroke-width: 1.5 }
  text { font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2328; text-anchor: middle }
  .title { font-size: 15px; font-weight: 600; text-anchor: start }
  .name { font-size: 14px; font-weight: 600 }
  .small { font-size: 12px; fill: #57606a }
  path { fill: none; stroke: #57606a; stroke-width: 1.5 }
  .head { fill: #57606a; stroke: none }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117; stroke: #3d444d }
    .service, .held { fill: #0c2d6b; stroke: #58a6ff }
    .store { fill: #21262d; stroke: #9198a1 }
    .state { fill: #0d1117; stroke: #9198a1 }
    .good { fill: #033a16; stroke: #3fb950 }
    .bad { fill: #3d1300; stroke: #f0883e }
    text { fill: #f0f6fc }
    .small { fill: #b1bac4 }
    path { stroke: #9198a1 }
    .head { fill: #9198a1 }
  }
"""


class Box(NamedTuple):
    """A rectangle with a name and, below it, a line that says more."""

    left: int
    top: int
    width: int
    height: int
    kind: str
    name: str
    says: str = ""


class Arrow(NamedTuple):
    """A path in SVG's words with a head at its end; the label's middle is at x, y."""

    path: str
    label: str = ""
    x: int = 0
    y: int = 0


SERVICES: Final = (
    Box(20, 60, 150, 44, "store", "producers", "curl, SDKs, Python"),
    Box(20, 120, 150, 44, "store", "group: senders", "workers w-1, w-2"),
    Box(20, 192, 150, 44, "store", "group: statistics", "each record again"),
    Box(310, 60, 150, 92, "service", "gateway", "grants the locks"),
    Box(530, 66, 160, 56, "service", "group coordinator", "topics, groups, gateways"),
    Box(740, 66, 160, 56, "service", "share coordinator", "outcomes, by group"),
    Box(250, 196, 150, 46, "store", "Redis", "a copy of the locks"),
    Box(430, 196, 470, 46, "store", "PostgreSQL", "the log of records, topics and groups, outcomes"),
)
CALLS: Final = (
    Arrow("M170 82 H302", "produce", 236, 76),
    Arrow("M170 138 H302", "fetch, acknowledge", 236, 130),
    Arrow("M170 214 C230 214 230 148 302 148", "the same", 276, 180),
    Arrow("M460 94 H522"),
    Arrow("M690 94 H732"),
    Arrow("M385 60 C385 18 820 18 820 58", "writes what became of each record", 600, 22),
    Arrow("M345 152 V188"),
    Arrow("M440 152 C440 174 480 168 480 188", "append, read", 512, 164),
    Arrow("M610 122 V188"),
    Arrow("M820 122 V188"),
)

STATES: Final = {
    "AVAILABLE": Box(20, 370, 150, 56, "state", "AVAILABLE", "any worker may get it"),
    "ACQUIRED": Box(330, 370, 150, 56, "held", "ACQUIRED", "one worker holds it"),
    "ACKNOWLEDGED": Box(720, 300, 180, 56, "good", "ACKNOWLEDGED", "done"),
    "ARCHIVING": Box(560, 436, 130, 56, "bad", "ARCHIVING", "dead letter due"),
    "ARCHIVED": Box(770, 436, 130, 56, "bad", "ARCHIVED", "given up"),
}
LIFE: Final = {
    ("AVAILABLE", "ACQUIRED"): Arrow("M170 386 H322", "fetch", 246, 378),
    ("ACQUIRED", "AVAILABLE"): Arrow("M330 412 H178", "release, lock ends", 254, 430),
    ("ACQUIRED", "ACKNOWLEDGED"): Arrow("M480 384 C560 384 600 328 712 328", "accept", 560, 346),
    ("ACQUIRED", "ARCHIVING"): Arrow("M430 426 C430 464 480 464 552 464", "reject, or delivery limit", 462, 486),
    ("ARCHIVING", "ARCHIVED"): Arrow("M690 464 H762", "written", 726, 456),
    ("ACQUIRED", "ARCHIVED"): Arrow("M480 404 H700 C800 404 835 404 835 428", "gap, or no dead-letter topic", 640, 396),
    ("AVAILABLE", "ARCHIVED"): Arrow("M95 426 C95 524 835 530 835 500", "removed from the log", 300, 522),
}
"""Each change of state of a record, as the gateway's table has it (share_partition/runs.py, TRANSITIONS)."""


def text(x: int, y: int, kind: str, words: str) -> str:
    return f'<text class="{kind}" x="{x}" y="{y}">{escape(words)}</text>'


def box(drawn: Box) -> list[str]:
    middle = drawn.left + drawn.width // 2
    upper = drawn.top + drawn.height // 2 - 3
    return [
        f'<rect class="{drawn.kind}" x="{drawn.left}" y="{drawn.top}" width="{drawn.width}" height="{drawn.height}" rx="7"/>',
        text(middle, upper, "name", drawn.name),
        text(middle, upper + 17, "small", drawn.says),
    ]


def arrow(drawn: Arrow) -> list[str]:
    line = f'<path d="{drawn.path}" marker-end="url(#head)"/>'
    return [line, text(drawn.x, drawn.y, "small", drawn.label)] if drawn.label else [line]


CELLS: Final = (
    *(("good", "done"),) * 3,
    ("held", "held"),
    *(("good", "done"),) * 2,
    ("held", "held"),
    ("state", "waits"),
    ("good", "done"),
    *(("store", "new"),) * 4,
)
"""The state of each record of a partition for one group, from offset 0 on."""
CELL: Final = 64
START_OFFSET: Final = 3
NEXT_OFFSET: Final = 9


def picture() -> str:
    """The services and the life of a record."""
    return svg(
        "The services of sharequeue, and the life of a record in one group",
        HEIGHT,
        [
            text(20, 34, "title", "Three services, two stores"),
            *(line for drawn in CALLS for line in arrow(drawn)),
            *(line for drawn in SERVICES for line in box(drawn)),
            text(20, 274, "title", "The life of a record in one group"),
            *(line for drawn in LIFE.values() for line in arrow(drawn)),
            *(line for drawn in STATES.values() for line in box(drawn)),
        ],
    )


def window() -> str:
    """The records of a partition as one group knows them."""
    left = (WIDTH - CELL * len(CELLS)) // 2
    cells = [
        Box(left + CELL * offset, 56, CELL - 4, 44, kind, str(offset), says)
        for offset, (kind, says) in enumerate(CELLS)
    ]
    marks = []
    for offset, words in (START_OFFSET, f"start offset = {START_OFFSET}"), (NEXT_OFFSET, "new records begin here"):
        middle = left + CELL * offset + (CELL - 4) // 2
        marks += [*arrow(Arrow(f"M{middle} 132 V110")), text(middle, 150, "small", words)]
    return svg(
        "What a group remembers of a partition: its window",
        172,
        [
            text(20, 34, "title", "One partition, as one group knows it"),
            *(line for drawn in cells for line in box(drawn)),
            *marks,
        ],
    )


def svg(title: str, height: int, drawn: list[str]) -> str:
    """A whole picture. It brings its own background, so it is legible on any page, light or dark."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="title">',
        f'<title id="title">{escape(title)}</title>',
        f"<style>{STYLE}</style>",
        '<defs><marker id="head" viewBox="0 0 10 10" refX="2" refY="5" markerWidth="8" markerHeight="8" orient="auto">'
        '<path class="head" d="M0 0 L10 5 L0 10 z"/></marker></defs>',
        f'<rect class="page" x="1" y="1" width="{WIDTH - 2}" height="{height - 2}" rx="10"/>',
        *drawn,
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    TARGET.write_text(picture())
    WINDOW.write_text(window())
