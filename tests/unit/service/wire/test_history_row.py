"""Rows of history from the bus."""

import json
from typing import Any

import pytest

from service.errors import InvalidRequestError
from service.wire.history_row import ImportRow, ResultRow, read_row


def payload(**fields: Any) -> bytes:
    """Return a row of an assistant as it is on the bus."""
    return json.dumps({"id": "m1", "owner_key": "ana", "role": "ai", **fields}).encode()


@pytest.mark.parametrize(
    ("role", "meant"),
    [("assistan", "did you mean assistant?"), ("user", "history.import takes rows of all roles")],
)
def test_a_wrong_role_is_explained(role: str, meant: str) -> None:
    """Without its text, which is a stranger's: logs have the error, too."""
    with pytest.raises(InvalidRequestError) as raised:
        read_row(ResultRow, payload(role=role, content="Hello"), max_bytes=1_000)
    expected = f"/role: Input should be 'ai', 'assistant' or 'tool'; {meant}"
    assert str(raised.value) == expected


@pytest.mark.parametrize("model", [ImportRow, ResultRow])
@pytest.mark.parametrize("key", ["Content", "text", "message", "parts"])
def test_content_at_another_key_is_refused(model: type[ImportRow], key: str) -> None:
    """A blank row would be stored under this id, which no later row can correct."""
    with pytest.raises(InvalidRequestError, match=f"^the row: has no content, but '{key}'"):
        read_row(model, payload(**{key: "Hello"}), max_bytes=1_000)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"content": None, "text": "Hello"},
        {"tool_calls": [{"id": "c"}], "message": "x"},
        {"metadata": {"tool_calls": [{"id": "c"}]}, "body": "x"},
        {"state": "done"},
    ],
)
def test_a_row_may_say_nothing(fields: dict[str, Any]) -> None:
    """As one that only calls tools, or a writer that leaves out empty texts."""
    assert read_row(ImportRow, payload(**fields), max_bytes=1_000).content is None
