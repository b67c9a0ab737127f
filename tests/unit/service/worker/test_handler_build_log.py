"""What a build leaves in the log and in the metrics."""

from datetime import timedelta

from structlog.testing import capture_logs

from service.builder import Answered
from service.errors import BudgetExceededError, InvalidRequestError, Problem
from service.observe.metrics import Sizes
from service.ports.bus import Delivery
from service.wire.response import BuildResponse, BuildSuccess, error_response
from service.worker.handler import record_build
from tests.support import NOW, MakeBuilder, MakeRequest, Noted, row

DELIVERY = Delivery(source="s", token="1-0", payload=b"", received_at=NOW, attempt=2)


def noted(answered: Answered[BuildResponse], queued: float = 0, took: float = 0) -> Noted:
    """Record a build that waited and took n seconds."""
    metrics, began = Noted(), NOW + timedelta(seconds=queued)
    record_build(DELIVERY, answered, began, began + timedelta(seconds=took), metrics)
    return metrics


async def test_a_context_is_reported(make_builder: MakeBuilder, make_request: MakeRequest) -> None:
    """With the time that it waited and the time that it took."""
    answered = await make_builder().answer(make_request())
    with capture_logs() as logs:
        metrics = noted(answered, 2, 0.5)

    assert metrics.counted == []  # it is not sent yet
    assert metrics.took_seconds == [("queue", 2), ("build", 0.5)]
    (line,) = logs
    assert (line["event"], line["request_id"], line["attempt"]) == ("context.built", "msg_q", 2)
    assert line["milliseconds"] == 500


def test_an_error_is_reported_by_its_code(make_request: MakeRequest) -> None:
    """In the log; times do not run backwards where a clock was set back."""
    error = error_response(
        BuildResponse, make_request().envelope, BudgetExceededError("too small"), NOW
    )
    with capture_logs() as logs:
        metrics = noted(Answered(error), -3, -1)

    assert metrics.counted == []
    assert metrics.sizes == []
    assert metrics.took_seconds == [("queue", 0), ("build", 0)]
    assert (logs[0]["event"], logs[0]["code"]) == ("context.refused", "budget_exceeded")


def test_a_wrong_reply_address_is_reported_with_the_reason(make_request: MakeRequest) -> None:
    """Other details may quote the request, so the log has only their places."""
    problems = [
        Problem("/metadata/reply_to", "must begin with one of context.reply."),
        Problem("/content/current_input", "not 'my secret'"),
    ]
    refusal = InvalidRequestError("my secret", problems)
    with capture_logs() as logs:
        noted(Answered(error_response(BuildResponse, make_request().envelope, refusal, NOW)))

    assert logs[0]["reason"] == "must begin with one of context.reply."
    assert logs[0]["places"] == ["/metadata/reply_to", "/content/current_input"]
    assert "secret" not in str(logs)


async def sized(
    make_builder: MakeBuilder, make_request: MakeRequest, **context: object
) -> tuple[BuildSuccess, Sizes]:
    """Build over twenty turns; return what was answered, and the sizes that were noted."""
    builder = make_builder()
    rows = [row(n, ("HUMAN", "AI")[n % 2], f"words of message {n} " * 9) for n in range(20)]
    await builder.history.append("o", rows)
    answered = await builder.answer(make_request(**context))
    content = answered.response.content
    assert content.status == "success"
    (sizes,) = noted(answered).sizes
    return content, sizes


async def test_the_tokens_of_a_context_are_noted_by_block(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """Together with those of the tools they are its total."""
    content, sizes = await sized(make_builder, make_request)

    assert dict(sizes.blocks) == {**content.usage.blocks, "tools": 0}
    assert (sizes.utilization, sizes.strategy) == (content.usage.utilization, "oldest_first")
    assert (sizes.saved, sizes.yielded) == (0, [])


async def test_what_a_request_calls_its_blocks_is_no_label(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """Tags of strangers have one name in the metrics, whether the blocks were sent or not."""
    blocks = {"ANA_SECRET": "x " * 500, "BOB_SECRET": "x"}
    _, sizes = await sized(make_builder, make_request, blocks=blocks)
    assert [name for name, _ in sizes.blocks].count("custom") == 2

    content, sizes = await sized(
        make_builder, make_request, blocks=blocks, max_tokens=2_100, reserve_tokens=0
    )
    assert "block_dropped" in [warning.code for warning in content.warnings]
    assert sizes.yielded == [("custom", "block_dropped")] * 2
    assert "SECRET" not in str(sizes)


async def test_what_a_strategy_left_out_is_noted(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """The tokens of turns that were read and not sent; a list of strategies has one name."""
    for layout in ("tagged", "chat"):
        content, sizes = await sized(
            make_builder,
            make_request,
            memory_tokens=400,
            explain=True,
            layout=layout,
            strategy=["tool_result_clearing", "middle_out"],
        )
        left_out = [each.tokens or 0 for each in content.decisions if each.decision == "dropped"]
        assert sizes.strategy == "composite"
        assert sizes.saved == sum(left_out) > 100
