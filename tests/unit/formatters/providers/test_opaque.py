from collections.abc import Mapping

import pytest

from formatters.model import ChatMessage, ToolCall
from formatters.providers.opaque import OpaqueParts, PartKind, ProviderPart, read_opaque_parts

CALLS = (ToolCall(id="c", name="f", text="{}"),)


def read(part: Mapping[str, object]) -> ProviderPart | None:
    """Read a part that names its kind."""
    kind = part.get("kind")
    if kind not in [each.value for each in PartKind]:
        return None
    speaker = part.get("speaker")
    return ProviderPart(kind=PartKind(kind), speaker=str(speaker) if speaker else None)


def an_answer(parts: object, *calls: ToolCall, role: str = "assistant") -> ChatMessage:
    """Return a message with provider parts."""
    return ChatMessage(
        role=role,  # type: ignore[arg-type]  # given by the tests
        content="said",
        tool_calls=calls,
        provider_parts=parts,
    )


def test_the_parts_are_the_very_objects() -> None:
    """What is signed may not even be copied by hand."""
    parts = [{"kind": "thought"}, {"kind": "text"}]
    opaque = read_opaque_parts(an_answer(parts), read)

    assert [id(item) for item in opaque.items] == [id(part) for part in parts]


@pytest.mark.parametrize(
    ("kinds", "replaces", "leads"),
    [
        (["thought"], False, True),
        (["thought", "other"], False, True),
        (["other", "thought"], False, False),
        (["text"], True, False),
        (["thought", "text"], True, True),
        (["call"], True, False),
        ([], False, False),
    ],
)
def test_what_the_parts_say(kinds: list[str], replaces: bool, leads: bool) -> None:
    """Texts and calls replace what the message says; thoughts precede it."""
    opaque = read_opaque_parts(an_answer([{"kind": kind} for kind in kinds], *CALLS), read)

    assert (opaque.replaces, opaque.leads) == (replaces, leads)


@pytest.mark.parametrize(
    "parts", [None, "text", 7, {}, {"kind": "text"}, [7], [None], [{}], [{"kind": "text"}, {}]]
)
def test_parts_of_another_shape_are_left_out(parts: object) -> None:
    """One of them is enough: the parts of a message belong together."""
    assert read_opaque_parts(an_answer(parts), read) == OpaqueParts()


def test_parts_with_other_calls_than_the_message_are_left_out() -> None:
    """Results could not find the call that they answer."""
    two = [{"kind": "call"}, {"kind": "call"}]

    assert read_opaque_parts(an_answer(two, *CALLS), read) == OpaqueParts()
    assert read_opaque_parts(an_answer(two[:1]), read) == OpaqueParts()
    assert len(read_opaque_parts(an_answer(two[:1], *CALLS), read).calls) == 1


@pytest.mark.parametrize(
    ("role", "part", "kept"),
    [
        ("user", {"kind": "media"}, True),
        ("user", {"kind": "text"}, True),
        ("user", {"kind": "thought"}, False),
        ("user", {"kind": "text", "speaker": "assistant"}, False),
        ("user", {"kind": "text", "speaker": "user"}, True),
        ("assistant", {"kind": "media"}, False),
        ("tool", {"kind": "text"}, False),
    ],
)
def test_parts_stand_only_where_their_kind_may(
    role: str, part: dict[str, object], kept: bool
) -> None:
    """A user has no thoughts of a model, and no part has another role."""
    assert bool(read_opaque_parts(an_answer([part], role=role), read).items) is kept
