"""Builds are repeated with other options, on the history as it is now."""

import pytest

from service.audit.reports import BuildReport, ContentMode, make_report
from service.audit.what_if import NotReplayableError, build_with_options
from service.builder import ContextBuilder
from service.errors import InvalidRequestError
from service.wire.request import BuildRequest
from tests.support import NOW, MakeBuilder, MakeRequest, row


@pytest.fixture
async def builder(make_builder: MakeBuilder) -> ContextBuilder:
    """A builder over a history that has the input, too."""
    builder = make_builder()
    rows = [row(n, "ai" if n % 2 else "human", f"Number {n}.") for n in range(8)]
    await builder.history.append("o", rows)
    return builder


async def reported(
    builder: ContextBuilder, request: BuildRequest, content: ContentMode
) -> BuildReport:
    """Record the input, build, and return the report as it is read from the bus."""
    recorded = row(100, "human", "Hello there", id=request.input_id)
    await builder.history.append("o", [recorded])
    made = make_report(await builder.build_or_raise(request), at=NOW, content=content, settings={})
    return BuildReport.model_validate_json(made.model_dump_json())


@pytest.mark.parametrize("content", ["full", "redacted"])
async def test_the_same_options_come_to_the_same(
    builder: ContextBuilder, make_request: MakeRequest, content: ContentMode
) -> None:
    """As long as nothing has changed; a redacted report takes the input from the history."""
    report = await reported(builder, make_request(memory_limit=4), content)
    again = await build_with_options(report, {}, builder)

    assert again.content.build_id
    assert [each.digest for each in report.messages] == [
        each.digest for each in make_report(again, at=NOW, content="redacted", settings={}).messages
    ]
    assert again.plan.now == report.request.now


async def test_a_problem_is_at_the_option_that_was_given(
    builder: ContextBuilder, make_request: MakeRequest
) -> None:
    """Not where the request has it."""
    report = await reported(builder, make_request(), "full")
    options = {"strategy": {"name": "window_size", "max_messages": 0}}
    for given, pointer in ((options, "/strategy"), ({"reserve_tokens": 90_000}, "/reserve_tokens")):
        with pytest.raises(InvalidRequestError) as refused:
            await build_with_options(report, given, builder)
        assert [problem.pointer for problem in refused.value.problems] == [pointer]


async def test_the_history_is_that_of_now(
    builder: ContextBuilder, make_request: MakeRequest
) -> None:
    """What was said since then is part of it."""
    report = await reported(builder, make_request(), "redacted")
    await builder.history.append("o", [row(200, "human", "Since then.")])
    again = await build_with_options(report, {"memory_limit": 2}, builder)
    assert "Since then." in str(again.content.messages)


async def test_a_full_report_repeats_what_the_request_brought(
    builder: ContextBuilder, make_request: MakeRequest
) -> None:
    """A redacted one can't, and says what is missing."""
    request = make_request(blocks={"MOOD": "calm"}, past=[row(1, "human", "Brought along.")])
    again = await build_with_options(await reported(builder, request, "full"), {}, builder)
    assert "Brought along." in str(again.content.messages)

    with pytest.raises(NotReplayableError, match=r"past, blocks"):
        await build_with_options(await reported(builder, request, "redacted"), {}, builder)


async def test_the_report_stays_as_it_was(
    builder: ContextBuilder, make_request: MakeRequest
) -> None:
    """Other options are those of the new build alone."""
    report = await reported(builder, make_request(memory_limit=4), "full")
    before = report.model_dump_json()
    await build_with_options(report, {"memory_limit": 2}, builder)
    assert report.model_dump_json() == before


async def test_an_input_that_is_gone_cannot_be_repeated(
    builder: ContextBuilder, make_request: MakeRequest
) -> None:
    """As after an erasure."""
    report = await reported(builder, make_request(), "redacted")
    await builder.history.erase("o")
    with pytest.raises(NotReplayableError, match="erased"):
        await build_with_options(report, {}, builder)


async def test_bad_options_are_refused(builder: ContextBuilder, make_request: MakeRequest) -> None:
    """As they are on the bus."""
    report = await reported(builder, make_request(), "full")
    with pytest.raises(InvalidRequestError):
        await build_with_options(report, {"max_tokens": 0}, builder)
