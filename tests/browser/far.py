"""A gateway at an address that is not loopback, by plain http: there a browser sends no Sec-Fetch-Site.

`run` starts this file in a network namespace of its own, with the two addresses of the gateway and of another site.
A page of that site asks for streams, as a page may without asking first, and no record of the group is acquired. The
same request from a page of the gateway gets its stream: so the refusal is not of the browser's making.
"""

import os
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx

from sharequeue.stack.stack import temporary_stack
from tests.browser.chromium import browser

GATEWAY = "10.77.0.1"
OTHER = "10.77.0.2"
ASK = """fetch("{url}/v1/share-groups/victims/stream?topic=victim&window=100&resume_ms=0&member_id={member}",
  {{mode: "{mode}", headers: {{Accept: "text/event-stream"}}}}).then(answer => answer.status, fault => String(fault))"""


class Page(BaseHTTPRequestHandler):
    """Any path is an empty page."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<title>another site</title>")

    def log_message(self, *_: object) -> None:
        pass


def run(chromium: str) -> None:
    """Check it in a namespace. Raises: CalledProcessError: it does not hold, or this user may make no namespace."""
    inside = f"ip link set lo up && ip address add {GATEWAY}/32 dev lo && ip address add {OTHER}/32 dev lo"
    inside += ' && exec "$0" -m tests.browser.far "$1"'
    mapped = () if os.geteuid() == 0 else ("--map-root-user",)
    subprocess.run(["unshare", *mapped, "--net", "sh", "-c", inside, sys.executable, chromium], check=True, timeout=600)


def main(chromium: str) -> None:
    """Inside of the namespace."""
    site = ThreadingHTTPServer((OTHER, 0), Page)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    settings = {"SHAREQUEUE_GATEWAY_HOST": GATEWAY, "SHAREQUEUE_GATEWAY_ALLOW_ANONYMOUS_FROM_NETWORK": "true"}
    with (
        tempfile.TemporaryDirectory() as folder,
        temporary_stack(Path(folder) / "stack", settings=settings) as stack,
        httpx.Client(base_url=stack.url, timeout=60) as client,
        browser(chromium, Path(folder) / "profile") as page,
    ):
        assert GATEWAY in stack.url, stack.url
        client.post("/v1/topics/victim/records", json={"records": [{"value": 1}]}).raise_for_status()
        page.open(f"http://{OTHER}:{site.server_port}/")
        page.run("new Promise(done => setTimeout(done, 500))")
        assert page.run("location.hostname") == OTHER
        for number in range(5):
            page.run(ASK.format(url=stack.url, member=f"evil{number}", mode="no-cors"))
        refused = client.get("/metrics").text
        assert 'sharequeue_http_refused_total{status="403"} 5.0' in refused, "the requests did not arrive"
        wanted = {"topics": ["victim"], "member_id": "good", "max_wait_ms": 0}
        (batch,) = client.post("/v1/share-groups/victims/fetch", json=wanted).json()["batches"]
        assert batch["delivery_count"] == 1
        page.open(f"{stack.url}/docs")
        page.run("new Promise(done => setTimeout(done, 500))")
        status = page.run(ASK.format(url=stack.url, member="own", mode="same-origin"))
        assert status == 200, status
    print("a page of another site acquires nothing at an address that is not loopback")


if __name__ == "__main__":
    main(sys.argv[1])
