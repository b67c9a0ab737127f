"""Spans, the traces of callers, and where in them logs say they were written."""

import asyncio
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from structlog.testing import capture_logs

from service.errors import BudgetExceededError
from service.observe.metrics import UNMEASURED, timed
from service.observe.tracing import (
    TraceHeaders,
    active_span,
    child_span,
    current_ids,
    current_span,
    find_tracer,
    is_traced,
    log_ignored_header,
    record_failure,
    remote_context,
    remote_span,
    trace_headers,
    with_caller_trace,
)
from tests.tracing import Collected

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CALLER = f"00-{TRACE}-{SPAN}-01"

#: Headers that violate W3C's form, in each of its parts.
HOSTILE = [
    "",
    "garbage",
    CALLER.upper(),
    f"ff-{TRACE}-{SPAN}-01",
    f"00-{'0' * 32}-{SPAN}-01",
    f"00-{TRACE}-{'0' * 16}-01",
    f"00-{TRACE}-{SPAN}-01x",
    f"00-{TRACE}-{SPAN}-01-more",
    f"00-{TRACE[1:]}-{SPAN}-01",
    f"\ud800{CALLER}",
    "9" * 256,
]


@pytest.fixture(autouse=True)
def _untold() -> Iterator[None]:
    log_ignored_header.cache_clear()
    yield
    log_ignored_header.cache_clear()


def test_without_a_provider_there_is_no_tracer() -> None:
    """Then nothing is begun, and what a caller said is carried on as it is."""
    assert find_tracer() is None
    with child_span("anything") as span, timed(UNMEASURED, "fit"):
        assert (span, current_span(), is_traced()) == (None, None, False)
        assert trace_headers("00-ab", "x=1") == TraceHeaders("00-ab", "x=1")
        assert trace_headers() == TraceHeaders(None, None)


def test_a_provider_that_is_switched_off_gives_no_tracer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its spans would have no ids, which logs and responses would name in place of the caller's."""
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    off = TracerProvider(shutdown_on_exit=False)
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: off)

    assert find_tracer() is None


def test_spans_within_a_span_hang_below_it() -> None:
    """What is timed is one too; behind it, the span above is current again."""
    collected = Collected()
    with active_span(collected.tracer, "whole") as whole:
        with timed(UNMEASURED, "fit"), child_span("render"):
            assert current_span() is not whole
        assert current_span() is whole

    assert [span.name for span in collected.spans] == ["render", "fit", "whole"]
    assert [collected.above(span) for span in collected.spans] == ["fit", "whole", None]
    assert not is_traced()


async def test_threads_take_their_span_along() -> None:
    """The heavy part of a build is done in one."""
    collected = Collected()

    def work() -> None:
        with child_span("part"):
            pass

    with active_span(collected.tracer, "whole"):
        await asyncio.to_thread(work)

    assert collected.above(collected.named("part")) == "whole"


def test_a_span_says_what_failed_and_not_why() -> None:
    """By the code of our errors and the class of others: their words may be anybody's."""
    collected = Collected()
    for error in (BudgetExceededError("of Ana"), KeyError("of Ana")):
        with pytest.raises(type(error)), active_span(collected.tracer, "x"):
            raise error
    with active_span(collected.tracer, "x"):
        record_failure(current_span(), "overloaded")

    reported = [dict(span.attributes or {})["error.type"] for span in collected.spans]
    assert reported == ["budget_exceeded", "KeyError", "overloaded"]
    assert {span.status.status_code.name for span in collected.spans} == {"ERROR"}
    assert not any("Ana" in span.to_json() for span in collected.spans)


def test_a_message_names_the_span_that_it_is_sent_in() -> None:
    """And keeps what other systems noted of the trace."""
    collected = Collected()
    context = remote_context(CALLER, "vendor=1")
    with active_span(collected.tracer, "x", context=context):
        said = trace_headers("00-what-the-caller-said", None)
    (span,) = collected.spans

    assert said == TraceHeaders(f"00-{TRACE}-{collected.ids(span)[1]}-01", "vendor=1")
    assert collected.place(span) == (TRACE, SPAN)


def test_a_span_that_is_not_sampled_still_carries_the_trace() -> None:
    """Later calls see that it is off."""
    collected = Collected(ALWAYS_OFF)
    with active_span(collected.tracer, "x", context=remote_context(CALLER)):
        assert current_span() is None
        said = trace_headers().traceparent or ""

    assert (said[3:35], said[-2:]) == (TRACE, "00")
    assert SPAN not in said


@pytest.mark.parametrize("named", HOSTILE, ids=ascii)
def test_a_trace_that_cannot_be_read_begins_another(named: str) -> None:
    """It is logged at most once per process, and not quoted."""
    with capture_logs() as logs:
        for _ in range(3):
            assert remote_span(remote_context(named)) is None

    assert logs in ([], [{"event": "trace.ignored", "key": "traceparent", "log_level": "warning"}])


def test_a_later_version_of_the_header_is_read() -> None:
    """As far as it is known, which is what its authors ask for."""
    found = remote_span(remote_context(f"01-{TRACE}-{SPAN}-01-more"))

    assert found is not None
    assert format(found.span_id, "x") == SPAN


@pytest.mark.parametrize(
    "state", ["", "=", "a=1," * 200, "a=\ud800", "A B=ü", "a=1,a=2"], ids=ascii
)
def test_a_state_that_cannot_be_read_costs_no_trace(
    state: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What is known of the caller's span stays, and no library quotes strangers in a log."""
    found = remote_span(remote_context(CALLER, state))

    assert found is not None
    assert format(found.trace_id, "032x") == TRACE
    assert not [each for each in caplog.records if each.name.startswith("opentelemetry")]


@pytest.mark.parametrize("state", ["a=1", "a@b=1, c*/-_=2", "a= !-~ ~\t,,b=x"])
def test_a_state_of_w3c_is_passed_on(state: str) -> None:
    """With all of its members."""
    found = remote_span(remote_context(CALLER, state))

    assert found is not None
    assert len(found.trace_state) == len([each for each in state.split(",") if each])


def test_a_line_is_written_in_our_span_or_below_the_callers() -> None:
    """The caller's counts where nobody collects ours; what is no trace names none."""
    collected = Collected()
    assert current_ids() is None
    with with_caller_trace(CALLER):
        assert current_ids() == (TRACE, SPAN)
        with active_span(collected.tracer, "x", context=remote_context(CALLER)):
            ours = current_ids()
    for named in HOSTILE:
        with with_caller_trace(named):
            assert current_ids() is None
    with with_caller_trace(None):
        assert current_ids() is None

    assert ours == collected.ids(collected.named("x"))
