"""Each message on the bus is printed as a line, from any sender."""

import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest

from service.cli.tail import TailLine, as_json_line, as_line, is_wanted, read_line
from service.observe.logs import owner_hash
from service.ports.status import ChannelMessage
from service.wire.protocol import Topics

AT = datetime(2026, 11, 20, 17, 30, 5, tzinfo=UTC)


def reported(topic: str, owner: str = "ana", **content: Any) -> TailLine:
    """Return what a message comes to."""
    metadata = {"request_id": "msg_1", "build_id": "bld_9"}
    message = {"owner_key": owner, "run_id": "run_1", "content": content, "metadata": metadata}
    return read_line(ChannelMessage(topic=topic, payload=json.dumps(message).encode()), AT)


BUILT: dict[str, Any] = {
    "status": "success",
    "messages": [{"content": "a secret"}],
    "usage": {"total": 1234, "available": 6000},
    "build_id": "bld_1",
    "kept": 14,
    "dropped": 6,
}
RECALLED: dict[str, Any] = {
    "status": "success",
    "messages": [{"id": "msg_1"}],
    "left_out": 7,
    "usage": {"total": 90},
}


def test_a_build_is_reported_without_its_words() -> None:
    """Its tokens, what was kept, and the ids to look it up by; the owner as logs have it."""
    built = reported(Topics.CONTEXT_BUILD_RESPONSE, **BUILT)
    assert re.split(" {2,}", as_line(built, owners=False)) == [
        *("17:30:05", "built", owner_hash("ana"), "kept 14", "dropped 6"),
        *("total 1,234", "available 6,000", "bld_1", "of msg_1"),
    ]
    assert "secret" not in as_json_line(built, owners=True)
    assert json.loads(as_json_line(built, owners=True))["owner_key"] == "ana"
    assert "ana" not in as_json_line(built, owners=False).replace(owner_hash("ana"), "")


def test_an_answer_to_a_channel_of_its_sender_is_reported_too() -> None:
    """Most answers go there."""
    assert reported("reply", **BUILT).kind == "built"


@pytest.mark.parametrize(
    ("topic", "content", "kind", "numbers"),
    [
        ("reply", {"status": "error", "error": {"code": "internal"}}, "refused", {}),
        ("reply", RECALLED, "recalled", {"shown": 1, "left_out": 7, "total": 90}),
        ("reply", {**RECALLED, "messages": {}}, "recalled", {"left_out": 7, "total": 90}),
        ("context.pruned", {"removed": 3, "token_reduction": 90}, "pruned", "same"),
        ("context.summarized", {"summarized": 3, "kept": 9}, "summarized", "same"),
        ("context.compacted", {"original_tokens": 9, "new_tokens": 3}, "compacted", "same"),
        ("context.pruned", {"removed": True, "rows": []}, "pruned", {}),
    ],
)
def test_each_kind_of_message_has_its_numbers(
    topic: str, content: dict[str, Any], kind: str, numbers: object
) -> None:
    """Errors have their code instead; what is no number is left out."""
    found = reported(topic, **content)
    assert (found.kind, found.numbers) == (kind, content if numbers == "same" else numbers)
    assert found.error == content.get("error", {}).get("code")


@pytest.mark.parametrize("payload", [b"", b"\xff", b"[]", b"{" * 99, b'{"content": [1]}'])
def test_anything_at_all_can_be_reported(payload: bytes) -> None:
    """Channels are everybody's."""
    found = read_line(ChannelMessage(topic="reply", payload=payload), AT)
    assert found.kind in {"unreadable", "built"}
    assert as_line(found, owners=True)


def test_strangers_words_steer_no_terminal() -> None:
    """No control character, no line of its own and no turn of direction gets through."""
    hostile = "a\x1b[2J\x9b31m\r\nb\u202ec\u2028d\ud800\te"
    content: dict[str, Any] = {"status": "error", "error": {"code": hostile}}
    found = reported(Topics.CONTEXT_BUILD_RESPONSE, owner=hostile, **content)
    line = as_line(found, owners=True)
    assert line.isprintable()
    assert as_json_line(found, owners=True).isascii()
    assert as_json_line(found, owners=True).isprintable()


def test_only_what_is_wanted_is_reported() -> None:
    """By owner, or by failure."""
    built = reported("reply", **BUILT)
    refused = reported("reply", owner="bo", status="error", error={"code": "internal"})
    assert [is_wanted(each) for each in (built, refused)] == [True, True]
    assert [is_wanted(each, owner_key="ana") for each in (built, refused)] == [True, False]
    assert [is_wanted(each, failed=True) for each in (built, refused)] == [False, True]
