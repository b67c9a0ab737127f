"""What a build leaves in the log and in the metrics."""

from datetime import timedelta

from structlog.testing import capture_logs

from service.build_log import note_build
from service.errors import BudgetExceededError
from service.inbox import Delivery
from service.wire import BuildResponse, failed
from tests.support import NOW, MakeBuilder, MakeRequest, Noted

DELIVERY = Delivery(source="s", token="1-0", payload=b"", received_at=NOW, attempt=2)


def noted(response: BuildResponse, queued: float, took: float) -> Noted:
    """Note a build that waited and took so many seconds."""
    metrics, began = Noted(), NOW + timedelta(seconds=queued)
    note_build(DELIVERY, response, began, began + timedelta(seconds=took), metrics)
    return metrics


async def test_a_context_is_counted_and_told_of(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """With the time that it waited and the time that it took."""
    response = await make_builder().build(make_request())
    with capture_logs() as logs:
        metrics = noted(response, 2, 0.5)

    assert metrics.counted == ["answered success"]
    assert metrics.took_seconds == [("queue", 2), ("build", 0.5)]
    (line,) = logs
    assert (line["event"], line["request_id"], line["attempt"]) == ("context.built", "msg_q", 2)
    assert line["milliseconds"] == 500


def test_an_error_is_counted_by_its_code(make_request: MakeRequest) -> None:
    """And the log names it; times do not run backwards where a clock was set back."""
    error = failed(make_request().envelope, BudgetExceededError("too small"), NOW)
    with capture_logs() as logs:
        metrics = noted(error, -3, -1)

    assert metrics.counted == ["answered budget_exceeded"]
    assert metrics.took_seconds == [("queue", 0), ("build", 0)]
    assert (logs[0]["event"], logs[0]["code"]) == ("context.refused", "budget_exceeded")
