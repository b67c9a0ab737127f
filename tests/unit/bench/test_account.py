"""What is found where an account is false."""

from typing import Any

import pytest

from bench.account import Account
from service.app import open_builder
from service.wire.request import BuildRequest
from service.wire.response import BuildSuccess
from tests.support import row

SAID = "We liked the Grebe best of all, since it hardly leaks."


def account(content: BuildSuccess, rows: list[Any]) -> list[int]:
    """Return how many rows are kept, how many of these are absent, and left out but present."""
    found = Account()
    found.add("a build", rows, "hi", content)
    return [found.kept_rows, len(found.kept_but_absent), len(found.left_out_but_present)]


@pytest.mark.parametrize("form", ["openai", "anthropic"])
async def test_false_accounts_are_found(form: str) -> None:
    """Of a row that is cut, in the messages or a form, and of one that is said to be dropped."""
    rows: list[Any] = [row(1, "HUMAN", SAID), row(2, "AI", "too short")]
    options = {"past": rows, "explain": True, "format": form}
    sent = {"owner_key": "o", "content": {"current_input": "hi", "context": options}}
    async with open_builder() as builder:
        content = (await builder.build(BuildRequest.model_validate(sent))).content
    assert isinstance(content, BuildSuccess)
    assert account(content, rows) == [1, 0, 0]

    cut = content.model_dump_json().replace(SAID, SAID[:-1])
    assert account(BuildSuccess.model_validate_json(cut), rows) == [1, 1, 0]
    dropped = content.model_copy(
        update={"decisions": [content.decisions[0].model_copy(update={"decision": "dropped"})]}
    )
    assert account(dropped, rows) == [0, 0, 1]
    assert account(content.model_copy(update={"decisions": []}), rows) == [0, 0, 1]
    assert account(dropped, [*rows, row(3, "AI", f"As you said: {SAID}")]) == [0, 0, 0]
