"""Messages as a recall shows them."""

from datetime import UTC, datetime

from formatters.fetched import FetchView, fetched
from formatters.handles import make_handle
from formatters.model import Message, PreviewLimit, Role, ToolCall

HANDLE = make_handle("m1")


def message(content: str, role: Role = Role.HUMAN, **fields: object) -> Message:
    """Return a message of a day."""
    given: dict[str, object] = {"timestamp": datetime(2025, 1, 1, 1, tzinfo=UTC), **fields}
    return Message(id="m1", role=role, content=content, **given)  # type: ignore[arg-type] # any field


def words(text: str) -> int:
    """Count words."""
    return len(text.split())


def test_a_message_has_its_speaker_handle_and_day() -> None:
    """As recalled rows have, in the client's time zone."""
    entry = fetched(message("Hello\n[THIS_MOMENT]"), FetchView(minutes_west=120))

    assert entry.text == f" Human [{HANDLE}]: Hello\n| [THIS_MOMENT]"
    assert entry.day == "[31 December 2024]"
    assert entry.rows == 1
    assert entry.reasons == {}


def test_calls_and_results_are_shown() -> None:
    """A call under its message, and a result with the name of its tool."""
    call = ToolCall(id="c1", name="find", arguments={"query": "key"})
    asking = fetched(message("", Role.AI, tool_calls=(call,)), FetchView())
    ada = fetched(message("Yes", Role.AI), FetchView(assistant_name="Ada"))
    result = fetched(message("Under the pot", Role.TOOL, name="find it"), FetchView())
    nameless = fetched(message("Under the pot", Role.TOOL), FetchView())

    assert ada.text.startswith(" Ada [")
    assert asking.text == f' Nexus [{HANDLE}]: [tool_use:find {{"query": "key"}}]'
    assert result.text == f" Tool find_it_8ca89c96 [{HANDLE}]: Under the pot"
    assert nameless.text.startswith(" Tool unknown [")


def test_calls_have_all_of_their_arguments() -> None:
    """As they were received, and guarded; ``lines`` and limits count them as text."""
    long = "x " * 350
    given = (
        ToolCall(id="1", name="write", arguments={"a": "[X]"}, text='{\n"a": "[X]"}'),
        ToolCall(id="2", name="write", arguments={"path": "a.txt", "text": long}),
        ToolCall(id="3", name="stop", arguments={}),
    )
    asking = message("Well", Role.AI, tool_calls=given)
    lines = ['{"path": "a.txt", "text": "', f'{long}"}}]']
    whole, part = fetched(asking, FetchView()), fetched(asking, FetchView(), (2, 3))
    short = fetched(asking, FetchView(limit=PreviewLimit(20, words)))

    assert whole.reasons == {}
    assert whole.text == (
        f' Nexus [{HANDLE}]: Well\n| [tool_use:write {{\n| "a": "[X]"}}]\n'
        f"| [tool_use:write {''.join(lines)}\n| [tool_use:stop {{}}]"
    )
    assert part.text == (
        f' Nexus [{HANDLE}] lines 2 to 3 of 6: [tool_use:write {{\n| "a": "[X]"}}]\n'
    )
    assert short.reasons == {"m1": "offloaded"}


def test_a_later_match_is_named_after_the_lines() -> None:
    """Where a searched text is in lines that aren't shown."""
    entry = fetched(message("a\nb\nc\nd\ne"), FetchView(), (1, 2), next_match=5)
    assert entry.text.partition(":")[0].endswith("lines 1 to 2 of 5 with the next match in line 5")


def test_what_was_not_read_is_not_whole() -> None:
    """Neither parts that are no text, nor arguments that are no JSON."""
    unread = ToolCall(id="1", name="find", arguments=None)
    asking = fetched(message("", Role.AI, tool_calls=(unread,)), FetchView())
    seen = fetched(message("Look", partial=True), FetchView())

    assert asking.text == f" Nexus [{HANDLE}]: [tool_use:find {{}}]"
    assert asking.reasons == seen.reasons == {"m1": "partial"}


def test_lines_can_be_chosen() -> None:
    """They are numbered from 1, and the message isn't whole."""
    entry = fetched(message("one\ntwo\nthree\nfour"), FetchView(), (2, 3))
    to_the_end = fetched(message("one\ntwo"), FetchView(), (2, 9))

    assert entry.text == f" Human [{HANDLE}] lines 2 to 3 of 4: two\nthree\n"
    assert entry.reasons == {"m1": "lines"}
    assert to_the_end.text == f" Human [{HANDLE}] lines 2 to 2 of 2: two"


def test_all_lines_are_the_whole_message() -> None:
    """Then nothing is said of lines."""
    entry = fetched(message("one\ntwo"), FetchView(), (1, 2))
    assert (entry.text, entry.reasons) == (f" Human [{HANDLE}]: one\ntwo", {})


def test_a_long_message_is_a_preview() -> None:
    """Within the limit of a view that has one; a short one stays whole."""
    view = FetchView(limit=PreviewLimit(30, words))
    long, short = fetched(message("word " * 100), view), fetched(message("word"), view)

    assert "[left out: lines 1 to 1 of 1; recall id" in long.text
    assert words(long.text) <= 33
    assert long.reasons == {"m1": "offloaded"}
    assert short.reasons == {}
