"""The health port of a worker: /livez for a platform, /metrics for Prometheus. In a thread of its own."""

import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from sharequeue.worker.feeding import Feeding


class Health:
    """Answers on a port until `close`. Raises: OSError: the port cannot be used."""

    def __init__(self, port: int, feedings: Sequence[Feeding]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path == "/livez":
                    alive = all(feeding.alive for feeding in feedings)
                    status, text = (200, "alive\n") if alive else (503, "no gateway has answered for a minute\n")
                elif self.path == "/metrics":
                    status, text = 200, metrics(feedings)
                else:
                    status, text = 404, "there are /livez and /metrics\n"
                self.send_response(status)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, format: str, *arguments: Any) -> None:
                """A look of a platform is no news."""

        self._server = ThreadingHTTPServer(("", port), Handler)
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="sharequeue health", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def metrics(feedings: Sequence[Feeding]) -> str:
    """The figures of each task, as Prometheus reads them."""
    lines = [
        "# HELP sharequeue_worker_records_total Records by what became of them.",
        "# TYPE sharequeue_worker_records_total counter",
    ]
    lanes = [lane for feeding in feedings for lane in feeding.lanes]
    for lane in lanes:
        for outcome, count in sorted(lane.counts.items()):
            lines.append(f'sharequeue_worker_records_total{{task="{lane.task.name}",outcome="{outcome}"}} {count}')
    lines += ["# HELP sharequeue_worker_running Records in hand.", "# TYPE sharequeue_worker_running gauge"]
    lines += [f'sharequeue_worker_running{{task="{lane.task.name}"}} {len(lane.running)}' for lane in lanes]
    lines += ["# HELP sharequeue_worker_slowed Whether the breaker is open.", "# TYPE sharequeue_worker_slowed gauge"]
    lines += [f'sharequeue_worker_slowed{{task="{lane.task.name}"}} {int(lane.breaker.open)}' for lane in lanes]
    return "\n".join(lines) + "\n"
