"""Messages that a recall fetches: an entry each, in the form of recalled rows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from formatters.guard import GUARD, Guard, Place
from formatters.handles import make_handle, preview, split_lines
from formatters.model import Entry, Message, PreviewLimit, Role, ToolCall
from formatters.names import clean_name
from formatters.printed import dump_value
from formatters.repair.matching import match_results
from formatters.rows import fix_surrogates
from formatters.times import format_day


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchView:
    """How fetched messages are shown."""

    guard: Guard = GUARD
    #: The time zone of days, in minutes west of UTC.
    minutes_west: int = 0
    assistant_name: str = "Nexus"
    #: Return what names a message in recalls, if anything does.
    name: Callable[[str], str | None] = make_handle
    #: The names of tools by the ids of results that don't name theirs.
    tools: Mapping[str, str] = field(default_factory=dict)
    #: From how many tokens on only the beginning and the end are shown; None shows all.
    limit: PreviewLimit | None = None


def fetched(
    message: Message,
    view: FetchView,
    lines: tuple[int, int] | None = None,
    *,
    chars: tuple[int, int] | None = None,
    next_match: int | None = None,
) -> Entry:
    """Show a message with its name; with ``lines`` only these of `full_text`, counted from 1.

    With ``chars`` only this slice of the lines' text is shown. ``next_match`` is the line after
    them that is to be named as the next with a searched text.
    The reason code of a message that isn't shown whole is ``lines``, ``offloaded`` or ``partial``.
    """
    text, about = full_text(message), ""
    unread = message.partial or any(call.arguments is None for call in message.tool_calls)
    reason = "partial" if unread else None
    if lines is not None:
        all_lines = split_lines(text)
        first, last = lines[0], min(lines[1], len(all_lines))
        text = "".join(all_lines[first - 1 : last])
        if (first, last) != (1, len(all_lines)):
            reason, about = "lines", f" lines {first} to {last} of {len(all_lines)}"
        if chars is not None:
            reason, (start, end) = "lines", chars
            about = f" lines {first} to {last} of {len(all_lines)} in part"
            before, after = "…" if start else "", "…" if end < len(text.rstrip()) else ""
            text = f"{before}{text[start:end]}{after}"
    if next_match is not None:
        about += f" with the next match in line {next_match}"
    name, part = view.name(message.id), None
    if view.limit:
        part = preview(text, name, view.guard, view.limit, native=False)
        reason = "offloaded" if part else reason
    text = part or view.guard.quote(text, Place.ROW)
    shown = f" {_speaker(message, view)}{f' [{name}]' if name else ''}{about}:"
    shown += f" {text}" if text.strip() else ""
    return Entry(
        text=shown,
        messages=(message,),
        rows=1,
        reasons={message.id: reason} if reason else {},
        day=format_day(message.timestamp, view.minutes_west),
    )


def full_text(message: Message) -> str:
    """Return the text of a message, then its calls with all of their arguments."""
    return "\n".join(filter(None, [message.content, *map(_format_call, message.tool_calls)]))


def find_tool_names(messages: Sequence[Message]) -> dict[str, str]:
    """Return the names of the tools that were called, by the ids of their results."""
    return {
        messages[result].id: messages[caller].tool_calls[call].name
        for (caller, call), result in match_results(messages).by_call.items()
    }


def _format_call(call: ToolCall) -> str:
    text = call.text
    # a context shows the letters themselves, not their escapes
    if text is None or (call.arguments is not None and "\\u" in text):
        text = dump_value(call.arguments or {})
    return f"[tool_use:{call.name} {fix_surrogates(text)}]"


def _speaker(message: Message, view: FetchView) -> str:
    if message.role is Role.TOOL:
        name = message.name or view.tools.get(message.id, "")
        return f"Tool {clean_name(name)}"
    return "Human" if message.role is Role.HUMAN else view.assistant_name
