import pytest

from formatters.model import ChatMessage, ToolCall
from formatters.providers.canonical import read_arguments, read_canonical, read_parameters
from formatters.rows import MAX_DEPTH

CALL = {"id": "c", "type": "function", "function": {"name": "find", "arguments": '{"q": 1}'}}
MESSAGES: list[dict[str, object]] = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "", "tool_calls": [CALL], "provider_parts": ["own"]},
    {"role": "tool", "tool_call_id": "c", "content": "found"},
]


def test_messages_are_taken_apart() -> None:
    """The system prompt is separate, and every other message has what its role has."""
    chat = read_canonical(MESSAGES, [{"type": "function", "function": {"name": "find"}}], 2)

    assert chat.system == "Be kind."
    assert chat.tools == ({"name": "find"},)
    assert chat.messages == (
        ChatMessage(role="user", content="hi"),
        ChatMessage(
            role="assistant",
            tool_calls=(ToolCall(id="c", name="find", text='{"q": 1}'),),
            provider_parts=["own"],
        ),
        ChatMessage(role="tool", content="found", tool_call_id="c"),
    )


@pytest.mark.parametrize(
    ("stable", "system", "others"), [(0, False, 0), (1, True, 0), (3, True, 2)]
)
def test_the_stable_messages_are_counted_without_the_system_message(
    stable: int, system: bool, others: int
) -> None:
    """The system prompt is stable where at least one message is."""
    chat = read_canonical(MESSAGES, stable=stable)

    assert (chat.stable_system, chat.stable) == (system, others)


def test_without_a_system_message_there_is_no_system_prompt() -> None:
    """All that is stable is in the messages then."""
    chat = read_canonical(MESSAGES[1:], stable=1)

    assert (chat.system, chat.stable_system, chat.stable) == ("", False, 1)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{}", {}),
        ('{"b": [1, {"c": null}], "a": "é"}', {"b": [1, {"c": None}], "a": "é"}),
        ('{"q": ' * MAX_DEPTH + "1" + "}" * MAX_DEPTH, None),
        ('{"q": ' + "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1) + "}", None),
    ],
)
def test_arguments_are_an_object(text: str, value: object) -> None:
    """Their keys keep their order."""
    arguments = read_arguments(ToolCall(id="c", name="f", text=text))

    assert "arguments" not in arguments
    if value is not None:
        assert arguments == value


@pytest.mark.parametrize(
    "text",
    [
        "{broken",
        "[1]",
        "",
        '{"n": NaN}',
        '{"n": 1e999}',
        '{"q": "\\ud83d"}',
        '{"q": ' + "[" * MAX_DEPTH + "]" * MAX_DEPTH + "}",
        '{"q":' * (MAX_DEPTH + 1) + "1" + "}" * (MAX_DEPTH + 1),
        "[" * 100_000,
    ],
)
def test_arguments_that_can_not_be_sent_as_an_object_stay_a_text(text: str) -> None:
    """Nothing is lost, and the request can still be written as JSON."""
    assert read_arguments(ToolCall(id="c", name="f", text=text)) == {"arguments": text}


def test_arguments_without_a_text_are_an_empty_text() -> None:
    """A call of the canonical form always has one."""
    assert read_arguments(ToolCall(id="c", name="f")) == {"arguments": ""}


def test_parameters_have_a_schema() -> None:
    """A function without parameters has an empty schema."""
    schema = {"type": "object", "properties": {"q": {}}}

    assert read_parameters({"parameters": schema}) is schema
    assert read_parameters({"name": "f"}) == {"type": "object", "properties": {}}
