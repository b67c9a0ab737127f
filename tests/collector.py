"""A collector of traces as small as one can be: OTLP over HTTP, kept in memory."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass(frozen=True, slots=True)
class Sent:
    """A span as it came in, and the name of the service that it is of."""

    service: str
    span: Span

    @property
    def trace_id(self) -> str:
        """Return its trace, in hex digits."""
        return self.span.trace_id.hex()

    @property
    def attributes(self) -> dict[str, str | int]:
        """Return its texts and whole numbers."""
        return {
            each.key: each.value.string_value or each.value.int_value
            for each in self.span.attributes
        }


@dataclass
class Collector:
    """What came in so far; other threads add to it."""

    address: str = ""
    bodies: list[bytes] = field(default_factory=list)
    #: The value of `x-api-key` of each request.
    keys: list[str | None] = field(default_factory=list)

    @property
    def spans(self) -> list[Sent]:
        """Return all spans."""
        return [sent for body in list(self.bodies) for sent in _read(body)]

    def trace(self, trace_id: str) -> dict[str, Sent]:
        """Return the spans of a trace by service and name; each name is there once a service."""
        found = [sent for sent in self.spans if sent.trace_id == trace_id]
        by_name = {f"{sent.service}: {sent.span.name}": sent for sent in found}
        assert len(by_name) == len(found), [sent.span.name for sent in found]
        return by_name


@contextmanager
def collecting() -> Iterator[Collector]:
    """Collect what is sent to the address while the context lasts."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            known = self.path == "/v1/traces"
            if known:
                collector.keys.append(self.headers["x-api-key"])
                collector.bodies.append(body)
            self.send_response(200 if known else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector.address = f"http://127.0.0.1:{server.server_port}"
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    serving.start()
    try:
        yield collector
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


def _read(body: bytes) -> Iterator[Sent]:
    request = ExportTraceServiceRequest.FromString(body)
    for resource in request.resource_spans:
        reported = {each.key: each.value.string_value for each in resource.resource.attributes}
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield Sent(reported["service.name"], span)
