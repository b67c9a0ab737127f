"""Messages as passages of text, so that a model can read a conversation without being in it."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from formatters.guard import one_line, quoted
from formatters.lookalikes import HINT, readings
from formatters.model import Message, Role, ToolCall
from formatters.redaction import redacted
from formatters.rows import well_formed
from formatters.structure import OPEN

_SPEAKERS: Final = {
    Role.HUMAN: "USER",
    Role.AI: "ASSISTANT",
    Role.TOOL: "TOOL",
    Role.OTHER: "OTHER",
}

#: What the guard of contexts knows nothing of: the other lines of these passages, and the markers
#: around them.
_OWN_LINE: Final = re.compile(
    rf"{OPEN}"
    r"(?:conversation|summary|user|human|assistant|ai|system|developer|other"
    r"|tool[\s_|-]*+(?:\[[^\]]{0,64}\])?+)(?:\s*+\(continued\))?\s*+:"
    r"|(?:[\s>_|#=+\"']|-(?!-{0,8}>))*+-{1,9}>"
)


@dataclass(frozen=True, slots=True)
class Passage:
    """What one message says, or a piece of it."""

    #: Who speaks: ``USER``, or ``TOOL[call_1]``.
    label: str
    #: Guarded; lines that are ours begin with two blanks and an arrow.
    body: str

    @property
    def text(self) -> str:
        """Return the passage as it stands in a prompt."""
        return f"{self.label}: {self.body}"

    def pieces(self, bodies: Iterator[str]) -> Iterator["Passage"]:
        """Yield a passage for each piece of the body, all but the first marked as continued."""
        for place, body in enumerate(bodies):
            yield Passage(self.label if place == 0 else f"{self.label} (continued)", body)


def passage(message: Message, *, redact: bool = True) -> Passage:
    """Return what a message says, with its calls below; secrets in it are redacted.

    No line of a message can be read as another speaker's, as a call or as a marker: such lines get
    a leading backslash.
    """
    clean = redacted if redact else str
    # callers in process may hold a message without a text
    said = guarded(clean(well_formed(message.content or "")))
    calls = (f"  -> {guarded(clean(_call(call)))}" for call in message.tool_calls)
    return Passage(_label(message), "\n".join([said, *calls] if said else calls))


def guarded(text: str) -> str:
    """Escape the lines of a text that could be read as ours, whatever it is made of."""
    return "\n".join(f"\\{line}" if _is_ours(line) else line for line in quoted(text).splitlines())


def _is_ours(line: str) -> bool:
    return bool(HINT.search(line)) and any(map(_OWN_LINE.match, readings(line)))


def _label(message: Message) -> str:
    speaker = _SPEAKERS[message.role]
    if message.role is not Role.TOOL:
        return speaker
    named = message.tool_call_id or message.name
    return f"{speaker}[{_name(named)}]" if named else speaker


def _call(call: ToolCall) -> str:
    arguments = call.text if call.text is not None else _json(call.arguments)
    return f"{_name(call.name)}({one_line(well_formed(arguments))})"


def _json(arguments: object) -> str:
    if arguments is None:
        return ""
    try:
        return json.dumps(arguments, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):  # keys of any type, circles, great depth
        return "…"


def _name(name: str) -> str:
    """Return a name without what could end a label."""
    return re.sub(r"[^\w.-]", "_", name[:64])
