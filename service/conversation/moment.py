"""Where the date and the time of a build stand, and the message that a session starts with."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from formatters.guard import one_line, without_marks
from formatters.model import Role, Row
from service.conversation.shapes import shape_of

#: The heading of a system prompt below which the moment goes.
ENVIRONMENT: Final = "# Environment"


def local_now() -> datetime:
    """Return the time in this machine's zone."""
    return datetime.now(UTC).astimezone()


def moment_line(now: datetime) -> str:
    """Return the line that tells date and time; ``now`` is in the zone of the reader."""
    return f"Current date: {now:%Y-%m-%d}, Current time: {now:%H:%M} (local)"


def session_start(now: datetime, details: Mapping[str, str] | None = None) -> str:
    """Return the text that a session starts with, and what else is known about it.

    It is one line, and role marks in what is known are broken.
    """
    told = "".join(f" | {name}: {value}" for name, value in (details or {}).items())
    known = without_marks(one_line(told))
    return f"[Session started: {now:%Y-%m-%d %H:%M} (local){known}]"


def in_prompt(prompt: str, line: str) -> str:
    """Put a line below the first heading "# Environment" of a prompt, else at its end."""
    lines = prompt.split("\n")
    headings = [place for place, each in enumerate(lines) if each.rstrip() == ENVIRONMENT]
    if not headings:
        return f"{prompt}\n\n{line}"
    lines.insert(headings[0] + 1, line)
    return "\n".join(lines)


def newest_of_user(rows: Sequence[Row]) -> int | None:
    """Return the place of the newest message in which a user says something."""
    for place in reversed(range(len(rows))):
        said = shape_of(rows[place]).read(rows[place], "")
        if any(message.role is Role.HUMAN for message in said):
            return place
    return None


def in_message(row: Row, line: str) -> Row:
    """Put a line before what a message says; behind its parts, since results come first there."""
    key = "parts" if "parts" in row else "content"
    value = row.get(key)
    if isinstance(value, Sequence) and not isinstance(value, str):
        plain = key == "parts" and all(isinstance(part, str) for part in value)
        return {**row, key: [*value, line if plain else _part(line, key)]}
    return {**row, key: f"{line}\n\n{value or ''}"}


def _part(line: str, key: str) -> Row:
    return {"text": line} if key == "parts" else {"type": "text", "text": line}
