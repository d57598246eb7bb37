"""`/ui` in Chromium: each page and each action on a real stack, hostile texts, keys, outages, and what axe-core finds.

`python -m tests.browser.ui FOLDER` keeps its pictures in a folder.
"""

import base64
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

import click
import httpx

from sharequeue.cli import main
from sharequeue.stack.stack import Stack, temporary_stack
from tests.browser.chromium import Page, browser
from tests.browser.ui_story import PAYLOADS, REASONS, Story
from tests.http.access import SETTINGS, Access

HERE: Final = Path(__file__).parent
TOOLS: Final = HERE.parents[1] / "dist/browser"
SIZES: Final = {"desktop": (1280, 860, False), "phone": (390, 844, True), "picture": (1280, 812, False)}
REFUSED: Final = ("Failed to load resource", "The specified value")
"""How Chromium begins to complain of an answer that refuses, and of a field that does not take what an address has."""
CHECKS: Final = 15
ASKED: Final = "sharequeue_http_request_seconds_count{"
MOST_ASKED: Final = 40
"""Requests of a page in a minute, as a mean of all views."""
FIND: Final = """
  const inside = (title) => title ? [...document.querySelectorAll('section,dialog')].find((it) => it.getAttribute('aria-label').startsWith(title)) : document;
"""


SIDEWAYS: Final = """
  [...document.querySelectorAll('.scroll, nav')].filter((it) => it.scrollWidth > it.clientWidth).map((it) => it.ariaLabel)
"""
"""Parts of the page that are wider than their place."""
TAB, ENTER = ("Tab", 9), ("Enter", 13)


class Player:
    """A person at the page: presses what it shows, by its words."""

    def __init__(self, page: Page, url: str, folder: Path) -> None:
        self.page = page
        self.url = url
        self.folder = folder

    def open(self, path: str) -> None:
        self.page.open(f"{self.url}{path}")
        self.page.wait("document.querySelector('main h1') !== null || document.body?.innerText", lambda it: it is True)
        self.page.wait("![...document.querySelectorAll('.none')].some((it) => it.innerText.startsWith('Loading'))")

    def press(self, words: str, panel: str = "") -> None:
        """Press the button or link that begins with these words, once it is there and may be pressed."""
        found = f"[...(inside({panel!r})?.querySelectorAll('button,summary,a') ?? [])].find((it) => it.innerText.trim().startsWith({words!r}) && !it.disabled)"
        self.page.wait(f"(() => {{ {FIND} return {found} !== undefined; }})()")
        self.page.run(f"(() => {{ {FIND} {found}.click(); }})()")

    def fill(self, label: str, text: str, panel: str = "") -> None:
        """Type into a field, or choose of a list."""
        field = f"[...(inside({panel!r})?.querySelectorAll('label') ?? [])].find((it) => it.innerText.trim().startsWith({label!r}))?.querySelector('input,select,textarea')"
        self.page.wait(f"(() => {{ {FIND} return {field} != null; }})()")
        self.page.run(f"""(() => {{ {FIND} const field = {field};
          Object.getOwnPropertyDescriptor(Object.getPrototypeOf(field), "value").set.call(field, {json.dumps(text)});
          for (const kind of ["input", "change"]) field.dispatchEvent(new Event(kind, {{ bubbles: true }})); }})()""")

    def key(self, name: str, code: int, count: int = 1) -> None:
        """Press a key of the keyboard."""
        text = {"text": "\r"} if name == "Enter" else {}
        for kind in ("keyDown", "keyUp") * count:
            self.page.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code, **text)

    def tab_to(self, words: str, panel: str) -> None:
        """Go on with the key Tab, until the button of a panel that begins with these words has the focus."""
        here = f"(() => {{ {FIND} return inside({panel!r}).contains(document.activeElement) && document.activeElement.innerText.startsWith({words!r}); }})()"
        for _ in range(200):
            if self.page.run(here):
                return
            self.key(*TAB)
        raise TimeoutError(f"the keyboard does not reach {words}")

    def lines(self, panel: str = "") -> list[str]:
        """The lines for a shell that the page or a panel shows."""
        script = f"(() => {{ {FIND} return [...inside({panel!r}).querySelectorAll('.shell pre')].map((it) => it.textContent); }})()"
        return list(self.page.run(script))

    def says(self, words: str, panel: str = "") -> str:
        """The text of the page or of a panel, once it has these words."""
        script = f"(() => {{ {FIND} return (inside({panel!r}) === document ? document.body : inside({panel!r}))?.innerText; }})()"
        return str(self.page.wait(script, lambda text: words in (text or "")))

    def picture(self, name: str) -> Path:
        target = self.folder / f"{name}.png"
        target.write_bytes(base64.b64decode(self.page.call("Page.captureScreenshot", format="png")["data"]))
        return target

    def look(self, scheme: str, size: str, scale: float = 1) -> None:
        width, height, mobile = SIZES[size]
        self.page.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=mobile
        )
        self.page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def clean(self) -> None:
        """Nothing was refused by the policy, no script failed, and nothing came from elsewhere."""
        complaints = [each for each in self.page.complaints() if not each.startswith(REFUSED)]
        assert complaints == [], complaints
        elsewhere = [asked for asked in self.page.requested() if not asked.startswith((f"{self.url}/", "data:"))]
        assert elsewhere == [], elsewhere


def until(true: Callable[[], bool], page: Page) -> None:
    for _ in range(300):
        if true():
            return
        page.gather(0.1)
    raise TimeoutError("it did not happen")


def axe() -> str:
    """The source of axe-core, in the version of package.json. Raises: CalledProcessError: npm cannot install it."""
    if not (TOOLS / "node_modules/axe-core/axe.min.js").exists():
        TOOLS.mkdir(parents=True, exist_ok=True)
        shutil.copy(HERE / "package.json", TOOLS)
        command = ("npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--silent")
        subprocess.run(command, cwd=TOOLS, check=True, timeout=600)
    return (TOOLS / "node_modules/axe-core/axe.min.js").read_text()


def views(offset: int) -> dict[str, str]:
    return {
        "overview": "/ui",
        "groups": "/ui/groups",
        "group": f"/ui/groups/fulfilment?topic=orders&partition=0&offset={offset}&open=share.heartbeat.interval.ms",
        "dead-letters": "/ui/groups/fulfilment/dead-letters",
        "topics": "/ui/topics",
        "topic": "/ui/topics/orders?partition=1&offset=7&open=8",
        "due": "/ui/scheduled",
        "scheduled": "/ui/scheduled?topic=mails&open=nightly",
        "transactions": "/ui/transactions",
    }


def check_views(player: Player, offset: int) -> None:
    """Each view in light and dark, on a desktop and a phone: whole, without a fault of accessibility."""
    page, source = player.page, axe()
    for name, path in views(offset).items():
        for size in ("desktop", "phone"):
            for scheme in ("light", "dark"):
                player.look(scheme, size)
                player.open(path)
                page.gather(1)
                player.picture(f"{name}-{size}-{scheme}")
                assert page.run("document.documentElement.scrollWidth <= innerWidth"), f"{name} is wider than a {size}"
                assert size == "desktop" or page.run(SIDEWAYS) == [], f"{name} scrolls sideways: {page.run(SIDEWAYS)}"
                assert "open=" not in path or page.run(
                    "document.querySelector('tr.below .act, tr.below .value') !== null"
                )
                player.clean()
                page.run(f"{source}; 0")
                script = "axe.run({runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']}).then((it) => it.violations.map((each) => [each.id, each.nodes.map((node) => node.html).slice(0, 3)]))"
                assert page.run(script) == [], (name, size, scheme, page.run(script))
    player.look("light", "desktop")
    print(f"/ui: {len(views(0))} views, light and dark, on a desktop and a phone; axe-core finds nothing")


def check_weight(player: Player) -> None:
    player.open("/ui")
    files = "performance.getEntriesByType('resource').filter((it) => it.name.includes('/ui/')).reduce((sum, it) => sum + it.transferSize, 0)"
    weight = player.page.run(files)
    assert 50_000 < weight <= 200_000, weight
    paint = player.page.run("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? -1")
    print(f"/ui: {weight:,} bytes over the wire, first paint after {paint:.0f} ms")


def check_topic(player: Player, story: Story) -> None:
    """Browse by offset and time, produce, delete with a dry run, change a setting."""
    player.open("/ui/topics/orders?partition=0&offset=5")
    player.press("5", "Records")
    player.says("12345678901234567890", "Records")
    player.press("Oldest", "Records")
    player.page.wait("location.search", lambda query: "offset=0" in query)
    for partition in ("1", "0"):  # what was open is a record of the other partition
        player.fill("Partition", partition, "Records")
        player.page.wait(
            "location.search", lambda query, of=partition: f"partition={of}" in query and "open=" not in query
        )
    player.fill("Key", "by-hand", "Produce")
    player.fill("Value", '{"id": 98765432109876543210}', "Produce")
    player.press("Produce", "Produce")
    player.says("Produced to partition", "Produce")
    run_shell(player.lines("Produce")[0])
    topic = story.call("GET", "topics/orders")["partitions"]
    sent = [
        story.call("GET", f"topics/orders/partitions/{p['partition']}/records?offset={p['log_end_offset'] - 1}")[
            "records"
        ][0]
        for p in topic
    ]
    assert {"id": 98765432109876543210} in [record["value"] for record in sent]
    player.fill("Key", "by-hand", "Find by key")
    player.press("Find", "Find by key")
    player.says("98765432109876543210", "Find by key")
    assert (
        player.page.run("[...document.querySelectorAll('[aria-label=\"Records with the key\"] tbody tr')].length") == 2
    )
    player.fill("Delete what", "3", "Delete")
    player.press("Count them", "Delete")
    player.says("3 offsets of partition 0, from 0 on, would be deleted", "Delete")
    assert story.call("GET", "topics/orders")["partitions"][0]["log_start_offset"] == 0, "the first press deleted"
    player.press("Delete 3", "Delete")
    player.says("begins at offset 3", "Delete")
    assert story.call("GET", "topics/orders")["partitions"][0]["log_start_offset"] == 3
    player.press("retention.ms", "Settings")
    player.fill("Value", "86400000", "Settings")
    player.press("Save", "Settings")
    until(lambda: story.call("GET", "topics/orders")["config"]["retention.ms"] == "86400000", player.page)
    player.clean()
    print("/ui: records are browsed, produced and deleted, a setting is changed")


def check_group(player: Player, story: Story, offset: int) -> None:
    """The strip down to one record, a release by hand, a setting, a pause, a reset."""
    page = player.page
    player.open("/ui/groups/fulfilment?topic=orders&partition=0")
    player.press("Whole log", "Window")
    page.run("document.querySelector('.cells').focus()")
    player.key("ArrowRight", 39)
    player.key(*ENTER)
    page.wait("location.search", lambda query: "to=" in query or "offset=" in query)
    player.open(f"/ui/groups/fulfilment?topic=orders&partition=0&offset={offset}")
    player.says("Dead letters are open", "Needs attention")
    holder = player.says("It is held by", "Record").partition("It is held by ")[2].partition(",")[0]
    player.says(holder, "Workers")
    player.says(REASONS[1], "Why records came back")
    player.fill("Reason", "its worker hangs", "Record")
    player.press("Release", "Record")
    player.says("may still be running it", "Record")
    player.press("Release", "Record")
    player.says("its worker hangs", "Record")
    life = story.call("GET", f"share-groups/fulfilment/topics/orders/partitions/0/records/{offset}")
    assert life["state"] == "ready", life
    assert life["in_flight"]["reason"] == "its worker hangs"
    player.press("share.record.lock.duration.ms", "Settings")
    player.fill("Value", "45000", "Settings")
    player.press("Save", "Settings")
    config = "share-groups/fulfilment/config"
    until(lambda: story.call("GET", config)["share.record.lock.duration.ms"] == "45000", page)
    player.press("Pause", "Pause")
    player.press("Pause the group", "Pause")
    until(lambda: story.call("GET", config)["share.paused"] == "true", page)
    player.says("paused")
    player.press("Resume", "Pause")
    until(lambda: story.call("GET", config)["share.paused"] == "false", page)
    for partition, said in ((2, "offset"), (99, "99")):  # as in the address, and no other one
        player.open(f"/ui/groups/fulfilment?partition={partition}&offset=1")
        player.says(said, f"Window of partition {partition} of orders")
        player.says("Record 1 of orders", f"Record 1 of orders, partition {partition}")
    player.open("/ui/groups/audit?topic=orders&partition=2")
    before = starts(story)
    player.press("Show what would change", "Reset")
    player.says("The group would begin again at: orders/2:", "Reset")
    assert starts(story) == before, "the first press reset"
    player.press("Reset 1 partition", "Reset")
    player.says("Reset. orders/2:", "Reset")
    player.clean()
    print("/ui: the strip leads to a record; a release by hand, a setting, a pause and a reset are done")


def starts(story: Story) -> list[tuple[int, int]]:
    """What a reset changes of each partition: where the group begins, and the epoch of its leader."""
    (topic,) = story.call("GET", "share-groups/audit/offsets")["topics"]
    return [(each["start_offset"], each["leader_epoch"]) for each in topic["partitions"]]


def check_zoom(player: Player, story: Story) -> None:
    """From a million offsets to one, with the keyboard, in a few steps."""
    story.call("POST", "topics", {"name": "million", "partitions": 1})
    for _ in range(100):
        story.call("POST", "topics/million/records", {"records": [{"value": 0}] * 10_000})
    story.work("zoomers", "million", "worker", 100, [{"type": "accept"}, None])
    player.open("/ui/groups/zoomers?topic=million&partition=0")
    player.press("Whole log", "Window")
    player.says("1,000,000 offsets", "Window")
    player.page.run("document.querySelector('.cells').focus()")
    player.key("ArrowRight", 39)
    steps = 0
    while "offset=" not in (before := player.page.run("location.search")):
        steps += 1
        assert steps <= 8
        player.key(*ENTER)
        player.page.wait("location.search", lambda now, before=before: now != before)
        player.page.gather(1)
    player.says("Record", "Record")
    player.clean()
    print(f"/ui: from 1,000,000 offsets to one record in {steps} steps")


def check_long_list(player: Player, story: Story) -> None:
    """2,000 ranges in flight are asked for less often than the other numbers of their group."""
    story.call("POST", "topics", {"name": "long", "partitions": 1})
    for _ in range(2):
        story.produce("long", 1000)
        story.work("long", "long", "worker", 1000, [{"type": "release", "delay_ms": 1_800_000}, {"type": "accept"}])
    player.open("/ui/groups/long")
    player.page.wait("document.querySelector('tbody')?.innerText", lambda text: "1,000" in (text or ""))
    player.page.events.clear()

    def asked(call: str) -> int:
        return sum(each.partition("?")[0].endswith(f"/{call}") for each in player.page.requested())

    until(lambda: asked("offsets") >= 3, player.page)
    assert asked("in-flight") == 0
    print("/ui: a long list of what is in flight is asked for less often")


def check_gateways(player: Player, folder: Path) -> None:
    """Three gateways show the same, and each settles a record by hand, whoever leads it."""
    with temporary_stack(folder / "three", gateways=3) as stack:
        story = Story(stack.url)
        story.shop()
        url, shown, texts = player.url, {}, {"Needs": "Dead letters", "Partitions": "orders", "Workers": "worker-3"}
        for player.url in stack.urls:
            player.open("/ui/groups/fulfilment?topic=orders&partition=0")
            found = " ".join(player.says(words, panel) for panel, words in texts.items())
            shown[re.sub(r"(in )?[\d.]+ (s|min|h)( ago)?|–", "a time", found)] = player.url
        assert len(shown) == 1, shown
        for player.url in stack.urls:
            offset = first_held(story)
            player.open(f"/ui/groups/fulfilment?topic=orders&partition=0&offset={offset}")
            player.press("Release", "Record")
            player.press("Release", "Record")
            player.says("It waits to be delivered again", "Record")
            life = story.call("GET", f"share-groups/fulfilment/topics/orders/partitions/0/records/{offset}")
            assert life["state"] == "ready", life
        player.url = url
    print("/ui: three gateways show the same, and each releases a record by hand")


def check_keyboard(player: Player, story: Story) -> None:
    """Without a mouse: Enter twice changes nothing; Tab leads from the question to the button that acts."""
    before = starts(story)
    player.open("/ui/groups/audit?topic=orders&partition=1")
    player.tab_to("Show what would change", "Reset")
    for _ in range(2):
        player.key(*ENTER)
        player.says("Cancel", "Reset")
        assert player.page.run("document.activeElement.innerText") == "Cancel"
        player.key(*ENTER)
        player.page.wait("document.activeElement.innerText", lambda text: text == "Show what would change")
    assert starts(story) == before
    player.key(*ENTER)
    player.says("Cancel", "Reset")
    player.tab_to("Reset 1 partition", "Reset")
    player.key(*ENTER)
    player.says("Reset. orders/1:", "Reset")
    assert player.page.run("document.activeElement.innerText") == "Show what would change"
    player.page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
    moving = "[...document.querySelectorAll('*')].some((it) => getComputedStyle(it).transitionDuration !== '0s' || getComputedStyle(it).animationName !== 'none')"
    assert player.page.run(moving) is False
    player.look("light", "desktop")
    print("/ui: the keyboard alone resets a partition, and nothing moves for those who ask for that")


def check_shells(player: Player, offset: int) -> None:
    """The lines that do the same in a shell: each command has its options, each look by curl is answered."""
    seen: dict[str, str] = {}
    for path in views(offset).values():
        player.open(path)
        player.page.run("document.querySelectorAll('td button.link[aria-expanded=false]').forEach((it) => it.click())")
        player.page.gather(1)
        seen |= {" ".join(line.split()[:4]): line for line in player.lines()}
    for line in seen.values():
        words = shlex.split(line.rpartition(" | ")[2])
        if words[0] == "sharequeue":
            parse(words[1:])
        elif not {"-X", "-d"}.intersection(words):
            assert "detail" not in json.loads(run_shell(line)), line
    print(f"/ui: {len(seen)} kinds of commands and calls stand beside what the page shows and does")


def parse(words: list[str]) -> None:
    """Read a command line as the program does, without running it. Raises: click.UsageError."""
    command: click.Command = main
    context = click.Context(command)
    while isinstance(command, click.Group):
        _, found, words = command.resolve_command(context, words)
        assert found is not None
        command = found
    command.make_context("", words, parent=context)


def run_shell(line: str) -> str:
    """What a line of the page prints in a shell. Raises: CalledProcessError: it failed."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["sh", "-c", line], check=True, timeout=60, env={**os.environ, "PATH": path}, stdout=subprocess.PIPE, text=True
    ).stdout


def check_dead_letters(player: Player, story: Story) -> None:
    """37 of 100 go back, three that were chosen too, and one is dropped. A first press changes nothing."""
    story.call("POST", "topics", {"name": "deaths", "partitions": 2})
    for start in range(0, 100, 10):
        story.produce("deaths", 10, partition=start % 20 // 10)
    verdicts: list[dict[str, Any] | None] = [
        {"type": "reject", "reason": f"reason {number % 3}"} for number in range(100)
    ]
    assert sum(story.work("undertakers", "deaths", "w", 100, verdicts) for _ in range(2)) == 100

    def opened() -> int:
        return len(story.call("GET", "share-groups/undertakers/dead-letters?page_size=1000")["dead_letters"])

    until(lambda: opened() == 100, player.page)
    player.open("/ui/groups/undertakers")
    assert "–" not in player.says("Dead letters are open", "Needs attention"), "nothing waits, so it has no age"
    player.open("/ui/groups/undertakers/dead-letters?partition=first")
    player.press("Count all", "Drop")
    player.says("(422 INVALID_REQUEST)", "Drop")
    player.open("/ui/groups/undertakers/dead-letters")
    player.says("reason 2", "Why they died")
    player.fill("At most", "37", "Send back")
    player.press("Count all", "Send back")
    player.says("37 dead letters would go back for this group alone", "Send back")
    assert opened() == 100, "the first press redrove"
    player.press("Redrive 37", "Send back")
    player.says("37 dead letters sent back", "Send back")
    assert opened() == 63
    player.fill("Reason contains", "reason 1", "Filter")
    player.page.wait("location.search", lambda query: "reason" in query)
    player.page.wait("document.querySelectorAll('td input').length", lambda count: 0 < count < 63)
    player.page.run("[...document.querySelectorAll('td input')].slice(0, 3).forEach((it) => it.click())")
    player.press("Count 3 chosen", "Send back")
    player.press("Redrive 3", "Send back")
    until(lambda: opened() == 60, player.page)
    player.fill("At most", "1", "Drop")
    player.press("Count all", "Drop")
    player.says("closed for good", "Drop")
    player.press("Cancel", "Drop")
    assert opened() == 60
    player.press("Count all", "Drop")
    player.press("Drop 1", "Drop")
    until(lambda: opened() == 59, player.page)
    player.clean()
    print("/ui: 37 of 100 dead letters go back, then three that were chosen; one is dropped")


def check_time(player: Player, story: Story) -> None:
    """A scheduled record is cancelled, a schedule runs and pauses, a transaction is aborted."""
    player.open("/ui/scheduled")  # all topics: the first one due is the schedule of each five minutes
    player.press("every-5-minutes", "Due next")
    player.press("Pause", "Due next")
    until(lambda: story.call("GET", "topics/mails/schedules/every-5-minutes")["paused"] is True, player.page)
    player.page.wait("document.querySelector('td button')?.innerText !== 'every-5-minutes'")
    player.open("/ui/scheduled?topic=mails")
    player.page.run("document.querySelector('td button').click()")
    player.press("Cancel this record", "Waiting")
    player.press("Cancel the record", "Waiting")
    until(lambda: story.call("GET", "topics/mails/scheduled")["scheduled_count"] == 5, player.page)
    player.press("nightly", "Schedules")
    player.press("Run now", "Schedules")
    player.press("Make the record", "Schedules")
    player.says("Made the record at offset", "Schedules")
    player.press("Pause", "Schedules")
    until(lambda: story.call("GET", "topics/mails/schedules/nightly")["paused"] is True, player.page)
    player.open("/ui/transactions")
    player.page.run("document.querySelector('td button').click()")
    player.press("Abort", "Open transactions")
    player.press("Abort the transaction", "Open transactions")
    until(lambda: story.call("GET", "transactions")["transactions"] == [], player.page)
    player.clean()
    print("/ui: a scheduled record is cancelled, a schedule runs and pauses, a transaction is aborted")


def check_hostile(player: Player, story: Story) -> None:
    """Texts that would run in a page that trusts them are shown as they are."""
    group = quote(story.hostile(), safe="")
    until(
        lambda: len(story.call("GET", f"share-groups/{group}/dead-letters?page_size=500")["dead_letters"]) >= 27,
        player.page,
    )
    paths = [
        "/ui", "/ui/groups", "/ui/topics", f"/ui/groups/{group}", f"/ui/groups/{group}?topic=hostile&partition=0&offset=0",
        f"/ui/groups/{group}/dead-letters?reason={quote(story_text())}", f"/ui/groups/{group}/dead-letters?closed=true",
        "/ui/topics/hostile?offset=0", f"/ui/topics/{quote('<img src=x onerror=window.pwned=1>', safe='')}",
        "/ui/scheduled", "/ui/scheduled?topic=hostile", f"/ui/scheduled?topic={quote('<svg onload=window.pwned=1>')}", "/ui/transactions?state=%3Cscript%3E",
    ]  # fmt: skip
    of_name = ["groups/{}", "groups/{}/dead-letters", "topics/{}", "scheduled", "transactions", "groups", "topics"]
    asked = "topic partition offset from to range open page all waiting id state filter reason key after cause closed"
    for number, text in enumerate(PAYLOADS):  # in each part of an address
        view = of_name[number % len(of_name)].format(quote(text, safe="").replace("%2F", ""))
        paths.append(f"/ui/{view}?{urlencode(dict.fromkeys(asked.split(), text))}")
    for path in paths:
        player.open(path)
        player.page.run("document.querySelectorAll('td button.link, summary').forEach((it) => it.click())")
        player.page.gather(1.2)
        assert player.page.run("window.pwned") is None, path
        strange = "document.querySelectorAll('main :is(script,iframe,object,embed,base,meta,link,video,body), main img').length"
        assert player.page.run(strange) == 0, path
        assert player.page.run("[...document.querySelectorAll('a')].every((it) => it.protocol === 'http:')"), path
        player.clean()
    player.open("/ui/topics/hostile?offset=0")
    assert "<script>window.pwned=1</script>" in player.says("onerror")
    print(f"/ui: hostile names, keys, values, headers and reasons in {len(paths)} places are texts")


def story_text() -> str:
    return "<img src=x onerror=window.pwned=1>"


def check_calm(player: Player, stack: Stack) -> None:
    """A hidden tab asks for nothing; an outage is said, asked about ever more rarely, and its end is noticed."""
    page = player.page
    player.open("/ui/groups")
    player.says("fulfilment")
    hide = "Object.defineProperty(document, 'hidden', {{ configurable: true, get: () => {} }}); document.dispatchEvent(new Event('visibilitychange'))"
    page.run(hide.format("true"))
    page.gather(1)
    page.events.clear()
    page.gather(12)
    assert page.requested() == [], "a hidden tab asks"
    page.run(hide.format("false"))
    page.gather(1)
    assert page.requested() != [], "a tab that is shown again asks at once"
    gateway = stack.service("gateway")
    gateway.kill()
    player.says("The gateway does not answer")
    player.says("Not live")
    page.events.clear()
    page.gather(12)
    assert len(page.requested()) <= 4, page.requested()
    gateway.start()
    player.press("Ask now")
    page.wait("document.body.innerText", lambda text: "Not live" not in text)
    # The gateway that starts again has loaded nothing, and a page that is looked at for a while leaves it so.
    player.open("/ui/groups/audit?topic=orders&partition=0")
    for _ in range(6):
        player.says("No gateway has this partition of the group in use", "Window")
        page.gather(1)
    print("/ui: a hidden tab is quiet, an outage is said and ends, and a page loads no idle share-partition")


def check_crowd(player: Player, stack: Stack) -> None:
    """20 pages that are looked at ask a bounded number of times a minute, and load no idle share-partition."""
    gateway = stack.service("gateway")
    gateway.kill()
    gateway.start()
    until(gateway.ready, player.page)  # it has loaded nothing
    paths = [*views(0).values(), "/ui/groups/audit?topic=orders&partition=0&offset=1", "/ui/groups/audit/dead-letters"]
    player.page.open("about:blank")
    before = measured(stack)
    tabs = [
        player.page.call("Target.createTarget", url=f"{player.url}{path}", newWindow=True)["targetId"]
        for path in paths * 2
    ]
    seconds = 600 if os.environ.get("SOAK") else 60
    player.page.gather(seconds)
    after = measured(stack)
    asked = {call: count - before.get(call, 0) for call, count in after.items() if call.startswith(ASKED)}
    asked = {call.split('"')[1]: count for call, count in asked.items() if count}
    minutes = seconds / 60
    assert len(tabs) * 8 <= sum(asked.values()) / minutes <= len(tabs) * MOST_ASKED, asked
    assert after["sharequeue_led_share_partitions"] == 0, "a page has loaded an idle share-partition"
    for tab in tabs:
        player.page.call("Target.closeTarget", targetId=tab)
    print(f"/ui: {len(tabs)} pages ask {sum(asked.values()) / minutes:.0f} times a minute, and load nothing")
    print("  ".join(f"{call} {count / minutes:.0f}" for call, count in sorted(asked.items())))


def measured(stack: Stack) -> dict[str, float]:
    """The gateway's metrics."""
    lines = [line.rsplit(" ", 1) for line in httpx.get(f"{stack.url}/metrics").text.splitlines() if line[0] != "#"]
    return {name: float(value) for name, value in lines}


def check_keys(player: Player, folder: Path) -> None:
    """Without a key the page says so; with one it shows what the key may see; the key is in no address."""
    with temporary_stack(folder / "keys", settings=SETTINGS) as stack:
        access = Access(stack, folder / "keys")
        key, poor = access.key("User:admin"), access.key("User:poor")
        url, player.url = player.url, stack.url
        player.open("/ui/topics")
        player.says("This gateway asks for a key.")
        for text, answer in (
            (f"{key[:-1]}!", "does not take this key"),
            (poor, "There is no topic"),
            (key, "No topic here"),
        ):
            player.press("Key")
            player.fill("Key", text, "Key")
            player.press("Use the key", "Key")
            if text != poor:  # a list leaves out what a key may not see
                player.says(answer)
        player.page.run("history.pushState(null, '', location.pathname)")
        player.open("/ui/groups/none")
        assert not any(text in asked for asked in player.page.requested() for text in (key, poor))
        player.page.run("sessionStorage.clear()")
        access.close()
        player.url = url
    print("/ui: a key is asked for, kept for the tab, and in no address")


def first_held(story: Story) -> int:
    batches = story.call("GET", "share-groups/fulfilment/in-flight?topic=orders&partition=0")["partitions"][0][
        "batches"
    ]
    return int(next(batch["first_offset"] for batch in batches if batch.get("member_id") and batch["first_offset"] > 2))


def run(program: str, folder: Path | None = None) -> None:
    with tempfile.TemporaryDirectory(prefix="sharequeue-ui-") as home:
        pictures = folder or Path(home) / "pictures"
        pictures.mkdir(parents=True, exist_ok=True)
        with temporary_stack(Path(home) / "stack") as stack, browser(program, Path(home) / "profile") as page:
            story, player = Story(stack.url), Player(page, stack.url, pictures)
            story.shop()
            held = first_held(story)
            player.look("light", "desktop")
            check_weight(player)
            check_views(player, held)
            check_topic(player, story)
            check_group(player, story, held)
            check_keyboard(player, story)
            check_zoom(player, story)
            check_long_list(player, story)
            check_shells(player, held)
            check_dead_letters(player, story)
            check_time(player, story)
            check_hostile(player, story)
            check_calm(player, stack)
            check_crowd(player, stack)
            check_keys(player, Path(home))
            check_gateways(player, Path(home))


if __name__ == "__main__":
    run(shutil.which("chromium") or "chromium", Path(sys.argv[1]) if len(sys.argv) > 1 else None)
