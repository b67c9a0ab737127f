"""Spans as a test collects them, in the memory of its process."""

from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler
from opentelemetry.trace import format_span_id, format_trace_id


class Collected:
    """A tracer of its own, and the spans that were requested and have ended."""

    def __init__(self, sampler: Sampler = ALWAYS_ON) -> None:
        self._exporter = InMemorySpanExporter()
        self._provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        self._provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self._provider.get_tracer("tests")

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        """Return the spans, in the order of their ends."""
        return list(self._exporter.get_finished_spans())

    def named(self, name: str) -> ReadableSpan:
        """Return the one span of a name."""
        (span,) = (each for each in self.spans if each.name == name)
        return span

    def ids(self, span: ReadableSpan) -> tuple[str, str]:
        """Return a span's trace and its own id, as they are on the wire."""
        found = span.get_span_context()
        assert found is not None
        return format_trace_id(found.trace_id), format_span_id(found.span_id)

    def place(self, span: ReadableSpan) -> tuple[str, str] | None:
        """Return the trace and the id of the span that this one hangs below, if it does."""
        above = span.parent
        return above and (format_trace_id(above.trace_id), format_span_id(above.span_id))

    def above(self, span: ReadableSpan) -> str | None:
        """Return the name of the span that this one hangs below, if that was collected."""
        place = self.place(span)
        return next((each.name for each in self.spans if self.ids(each) == place), None)
