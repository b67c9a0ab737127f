"""What all shapes are read by."""

import pytest

from formatters.model import Message, Role, ToolCall
from service.conversation.messages import as_mapping, is_opaque, is_same_message, is_system, role_of
from tests.unit.service.conversation.talk import said


@pytest.mark.parametrize(
    ("role", "who", "system"),
    [
        ("user", Role.HUMAN, False),
        ("HUMAN", Role.HUMAN, False),
        ("assistant", Role.AI, False),
        (" Model ", Role.AI, False),
        ("tool", Role.TOOL, False),
        ("System", Role.OTHER, True),
        ("developer", Role.OTHER, True),
        ("command", Role.OTHER, False),
        (None, Role.OTHER, False),
    ],
)
def test_roles_of_all_sources_are_known(role: object, who: Role, *, system: bool) -> None:
    """In any case; only instructions are system messages."""
    message = {"role": role, "content": "hi"}

    assert role_of(message) is who
    assert is_system(message) is system


def test_how_arguments_were_written_makes_no_difference() -> None:
    """All else does."""

    def message(content: str = "hi", *ids: str, text: str | None = None) -> Message:
        calls = tuple(ToolCall(id=id_, name="f", arguments={}, text=text) for id_ in ids)
        return Message(id="m", role=Role.AI, content=content, tool_calls=calls)

    assert is_same_message(message("hi", "1"), message("hi", "1", text="{ }"))
    assert not is_same_message(message("hi", "1"), message("hi", "2"))
    assert not is_same_message(message("hi", "1"), message("hi", "1", "2"))
    assert not is_same_message(message("hi"), message("ho"))


def test_what_no_provider_knows_is_not_opaque() -> None:
    """Parts that can't be sent say nothing; one that may be known says something."""
    assert not is_opaque([1, None, {}, {"type": "text"}, "hi"])
    assert is_opaque(["hi", {"type": "input_audio"}])
    assert is_opaque(5)
    assert not is_opaque(None)


def test_only_what_has_keys_is_a_mapping() -> None:
    """Anything else has none."""
    assert as_mapping(said("user", "hi")) == said("user", "hi")
    assert as_mapping(["role"]) == {}
