"""The tour: one request after the other, what comes back, and whether it is right."""

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any, Final, Literal

from service.cli.demo import requests
from service.cli.demo.stage import OWNER, DemoError, Stage
from service.cli.output import (
    console,
    print_context,
    print_decisions,
    print_outline,
    print_summary,
    print_text,
    print_tokens,
)
from service.wire.protocol import Topics
from service.wire.response import BuildResponse, BuildSuccess, ErrorBody
from service.worker.client import NoWorkerError

#: Seconds for the worker to start, and for a row to be recorded.
WAIT_SECONDS: Final = 30.0
#: Seconds between two attempts.
RETRY_SECONDS: Final = 0.05


async def tour(stage: Stage) -> None:
    """Show what the service does; raises `DemoError` if it does something else."""
    stored = (await stage.history.recent(OWNER)).total
    print_text(f"A history of {stored} messages is stored: Ines and Tomas plan a surprise.")
    print_text(f"Bus: {stage.where}.")
    await _send_question(stage)
    await _record_answer(stage)
    full = await _send_run(stage)
    await _limit_history(stage)
    await _send_impossible(stage)
    await _send_malformed(stage)
    await _send_again(stage, full)


async def send_comparisons(stage: Stage) -> None:
    """Send one question with different options, so that the inspector has builds to compare."""
    print_heading("7. The same question in other ways, to be compared in the inspector")
    for request in requests.COMPARED:
        print_summary(_context(await _send(stage, request, "stream")))
    hidden = await stage.history.prune(OWNER, requests.HIDDEN)
    _check(hidden == len(requests.HIDDEN), "rows can be hidden by hand")
    print_summary(_context(await _send(stage, requests.AFTER_PRUNING, "stream")))


# --- the steps -------------------------------------------------------------------------------


async def _send_question(stage: Stage) -> None:
    print_heading("1. A question, by PUBLISH on context.build.request")
    content = _context(await _send(stage, requests.PLAIN, "channel"))
    print_context(content, lines=6)
    print_summary(content)
    _check(len(content.messages) == 5, "a context has five messages")
    _check(content.usage.total <= content.usage.available, "a context fits into its budget")


async def _record_answer(stage: Stage) -> None:
    print_heading("The model answers; its rows go to llm.results and tools.results")
    for topic, row in (
        (Topics.LLM_RESULTS, requests.CALL),
        (Topics.TOOLS_RESULTS, requests.TOOL_RESULT),
        (Topics.LLM_RESULTS, requests.ANSWER_ROW),
    ):
        await stage.bus.append(topic, json.dumps(row).encode())
    rows = (requests.CALL, requests.TOOL_RESULT, requests.ANSWER_ROW)
    await _wait_until_recorded(stage, {row["id"] for row in rows})
    print_text(f"Recorded, and in the next context: {requests.ANSWER}")


async def _send_run(stage: Stage) -> BuildResponse:
    print_heading("2. A run with tools, a profile and an account, by XADD")
    response = await _send(stage, requests.FULL, "stream")
    content = _context(response)
    print_outline(content.messages)
    print_tokens(content.usage)
    print_decisions(content)
    sent = json.dumps(content.messages)
    usage = content.usage
    _check(requests.ANSWER in sent, "the model's answer is part of the next context")
    _check("They like short answers" in sent, "the request's profile is used")
    _check(len(content.tools) == 2, "the requested tools are sent along")
    _check(sum(usage.blocks.values()) + usage.tools == usage.total, "the tokens add up")
    return response


async def _limit_history(stage: Stage) -> None:
    print_heading(
        f"3. Only {requests.MEMORY_TOKENS} tokens for history: what stays, what goes, and why"
    )
    content = _context(await _send(stage, requests.SHORT_OF_MEMORY, "stream"))
    print_decisions(content)
    used = content.usage.blocks["SHARED_MEMORY"]
    print_text(f"[SHARED_MEMORY] has {used} tokens.")
    _check(used <= requests.MEMORY_TOKENS, "history stays within its tokens")
    _check(content.dropped > 0, "what does not fit is left out")
    decided = [name for decision in content.decisions for name in decision.message_ids]
    _check(len(decided) == len(set(decided)), "each message is decided on once")


async def _send_impossible(stage: Stage) -> None:
    print_heading("4. A window too small for what has to be sent")
    error = _error(await _send(stage, requests.IMPOSSIBLE, "stream"))
    _check(error.code == "budget_exceeded", "an impossible budget is refused")
    _check("CORE_IDENTITY" in error.detail, "the error names what is too large")


async def _send_malformed(stage: Stage) -> None:
    print_heading("5. A request with a mistake")
    error = _error(await _send(stage, requests.MALFORMED, "channel"))
    _check(error.code == "invalid_request", "a mistake is refused")
    pointers = [problem["pointer"] for problem in error.errors]
    _check(requests.WRONG_POINTER in pointers, "the error names the position of the mistake")


async def _send_again(stage: Stage, first: BuildResponse) -> None:
    print_heading("6. The second request once more, as after a lost answer")
    response = await _send(stage, requests.FULL, "stream")
    _check(response.id == first.id, "a retry gets the same response")
    _check(response.content == first.content, "a retry is not built again")
    print_text(f"The same response, not built again: {response.id}")


# --- sending and checking --------------------------------------------------------------------


async def _send(
    stage: Stage, request: Mapping[str, Any], via: Literal["stream", "channel"]
) -> BuildResponse:
    """Send a request, to a channel as soon as a worker listens, and print how long it took."""
    until = time.monotonic() + WAIT_SECONDS
    while True:
        stage.check_worker()
        before = time.perf_counter()
        try:
            response = await stage.client.send(request, timeout_seconds=WAIT_SECONDS, via=via)
        except NoWorkerError:
            if time.monotonic() > until:
                raise
            await asyncio.sleep(RETRY_SECONDS)
            continue
        milliseconds = (time.perf_counter() - before) * 1000
        print_text(f"{request['id']}: {response.content.status} after {milliseconds:.0f} ms")
        return response


async def _wait_until_recorded(stage: Stage, ids: set[str]) -> None:
    """Wait until the recorder has stored rows; raises `DemoError` if it doesn't."""
    until = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < until:
        stage.check_worker()
        page = await stage.history.recent(OWNER, max_rows=10)
        if ids <= {str(row["id"]) for row in page.rows}:
            return
        await asyncio.sleep(RETRY_SECONDS)
    raise DemoError("the rows on the results streams were not recorded")


def _context(response: BuildResponse) -> BuildSuccess:
    content = response.content
    if content.status == "error":
        raise DemoError(f"a context was expected, not {content.error.code}: {content.error.detail}")
    return content


def _error(response: BuildResponse) -> ErrorBody:
    content = response.content
    if content.status == "success":
        raise DemoError("an error was expected, not a context")
    error = content.error
    print_text(f"{error.code}: {error.detail}")
    return error


def _check(holds: bool, claim: str) -> None:
    if not holds:
        raise DemoError(f"this does not hold: {claim}")


def print_heading(text: str) -> None:
    """Print a line that begins a part of the tour."""
    console().print()
    console().rule(text, align="left")
