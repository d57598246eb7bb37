"""Spans of the client and the worker, in programs with OpenTelemetry and without."""

import json
import subprocess
import sys
from typing import Any

from opentelemetry import trace

from sharequeue.client import tracing
from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway

SHOP = """
import asyncio, json, sys
from sharequeue.client import NewRecord, Producer
from sharequeue.client.sync import ShareConsumer
from sharequeue.worker import Context, Reject, Worker
from sharequeue.worker.process import Process

url, name = sys.argv[1:]
app = Worker(url, set_retries=False)
seen = []

def traces():
    api = sys.modules.get("opentelemetry.trace")
    return api and format(api.get_current_span().get_span_context().trace_id, "032x")

async def note(payload, context):
    seen.append((payload, traces(), context.headers.get("traceparent")))
    if len(seen) == 3:
        process.stop()
    if payload == "hopeless":
        raise Reject("no address")

@app.task(name, group=name)
async def fulfil(payload: str, context: Context) -> None:
    await note(payload, context)

@app.task(name, group=name)
def in_a_thread(payload: str, context: Context) -> None:
    asyncio.run(note(payload, context))

async def main():
    global process
    await fulfil.send("first")
    await in_a_thread.send("hopeless")
    async with Producer(url) as producer:
        await producer.send_many(name, [NewRecord("own", headers={"traceparent": "00-" + 32 * "a" + "-" + 16 * "b" + "-01"})])
        await producer.send(name + "-later", 1, delay_ms=3600000)
        for later in {}, {"delay_ms": 3600000}:
            again = [await producer.send(name + "-once", 1, idempotency_key="order-17", **later) for _ in range(2)]
            assert again[0] == again[1], again
    process = Process(app, grace_s=10)
    await process.run()
"""
TRACED = f"""
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
{SHOP}
exporter = InMemorySpanExporter()
trace.set_tracer_provider(TracerProvider())
trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(exporter))
with trace.get_tracer("shop").start_as_current_span("request"):
    trace_id = traces()
    asyncio.run(main())
def of(span):
    return dict(
        name=span.name, kind=span.kind.name, trace=format(span.context.trace_id, "032x"),
        parent=span.parent and format(span.parent.span_id, "016x"), id=format(span.context.span_id, "016x"),
        links=[format(link.context.trace_id, "032x") for link in span.links], status=span.status.status_code.name,
        **span.attributes,
    )
print(json.dumps([trace_id, seen, [of(span) for span in exporter.get_finished_spans()]]))
"""
UNTRACED = f"""{SHOP}
asyncio.run(main())
print(json.dumps([[name for name in sys.modules if name.startswith("opentelemetry")], seen]))
"""


def run(program: str, *arguments: str) -> Any:
    """What a program prints."""
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_record_carries_its_trace_to_the_function_that_gets_it(
    shared_stack: Stack, gateway: Gateway, name: str
) -> None:
    trace_id, seen, spans = run(TRACED, shared_stack.url, name)
    own = 32 * "a"
    by_payload = {payload: (trace, header.split("-")[1]) for payload, trace, header in seen}
    assert by_payload == {"first": 2 * (trace_id,), "hopeless": 2 * (trace_id,), "own": 2 * (own,)}
    sent = {span["id"]: span for span in spans if span["name"] == f"send {name}"}
    processed = {span["messaging.message.id"]: span for span in spans if span["name"] == f"process {name}"}
    settled = [span for span in spans if span["name"] == f"settle {name}"]
    assert {span["kind"] for span in sent.values()} == {"PRODUCER"}
    assert sorted(span["name"] for span in spans if span["kind"] == "PRODUCER") == [
        *3 * [f"send {name}"],
        f"send {name}-later",
        *4 * [f"send {name}-once"],
    ]
    first, hopeless, copied = (processed[f"{name}-0-{offset}"] for offset in range(3))
    assert first["parent"] in sent
    assert hopeless["parent"] in sent
    assert copied["parent"] == 16 * "b"
    assert [first["links"], copied["links"]] == [[trace_id], [own]]
    assert (first["kind"], first["status"], "error.type" in first) == ("CONSUMER", "UNSET", False)
    assert (hopeless["status"], hopeless["error.type"]) == ("ERROR", "Reject")
    assert first["messaging.system"] == "sharequeue"
    assert (first["messaging.operation.type"], first["messaging.operation.name"]) == ("process", "process")
    assert (first["messaging.destination.name"], first["messaging.consumer.group.name"]) == (name, name)
    assert {span["kind"] for span in settled} == {"CLIENT"}
    assert {span["messaging.sharequeue.outcome"] for span in settled} == {"accept", "reject"}
    assert sum(span["messaging.batch.message_count"] for span in settled) == 3
    assert {link for span in settled for link in span["links"]} == {trace_id, own}


def test_a_program_without_opentelemetry_imports_nothing_of_it(
    shared_stack: Stack, gateway: Gateway, name: str
) -> None:
    imported, seen = run(UNTRACED, shared_stack.url, name)
    assert imported == []
    own = "00-" + 32 * "a" + "-" + 16 * "b" + "-01"
    assert sorted(map(tuple, seen)) == [("first", None, None), ("hopeless", None, None), ("own", None, own)]


def test_a_program_that_has_no_provider_makes_no_spans() -> None:
    """Other libraries import OpenTelemetry, too: a worker would pay for spans that go nowhere."""
    assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
    assert not tracing.wanted()
    assert tracing.start("send", "orders", "PRODUCER") is None
