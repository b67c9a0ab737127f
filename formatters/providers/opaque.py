"""What a provider wants back as it came: signed thinking, reasoning items, its own blocks.

Such parts are sent byte for byte, as the very objects that came in, or left out as a whole.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from formatters.model import ChatMessage
from formatters.native import WORDLESS


class PartKind(StrEnum):
    """What a part of a provider's own is."""

    TEXT = "text"
    CALL = "call"
    THOUGHT = "thought"
    MEDIA = "media"
    #: What the provider did on its own side, and the like.
    OTHER = "other"


#: What may stand in whose message. Parts of a tool's result are not sent.
_BY_ROLE: Final[Mapping[str, frozenset[PartKind]]] = {
    "assistant": frozenset({PartKind.TEXT, PartKind.CALL, PartKind.THOUGHT, PartKind.OTHER}),
    "user": frozenset({PartKind.TEXT, PartKind.MEDIA}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderPart:
    """A part, as far as its place among the others depends on it."""

    kind: PartKind
    #: The role that it names itself; None where its form has none.
    speaker: str | None = None
    #: Of a call.
    id: str | None = None
    name: str = ""


#: Read a part; None where it is not of the provider's shape.
ReadPart = Callable[[Mapping[str, object]], ProviderPart | None]


@dataclass(frozen=True, slots=True)
class OpaqueParts:
    """The parts of one message that are sent as they came."""

    items: tuple[object, ...] = ()
    parts: tuple[ProviderPart, ...] = ()

    @property
    def calls(self) -> tuple[ProviderPart, ...]:
        """Return the calls among the parts."""
        return tuple(part for part in self.parts if part.kind is PartKind.CALL)

    @property
    def replaces(self) -> bool:
        """Tell whether the parts are what the message says, not only what was thought before it."""
        return any(part.kind in (PartKind.TEXT, PartKind.CALL) for part in self.parts)

    def leaves_unsaid(self, message: ChatMessage) -> bool:
        """Tell whether the content is still to be sent: parts don't say it, and it says something.

        What stands in for no text isn't needed beside what the provider did on its own side, such
        as a compaction.
        """
        if self.replaces or not message.content.strip():
            return False
        stands_alone = any(part.kind is PartKind.OTHER for part in self.parts)
        return not (stands_alone and message.content == WORDLESS)

    @property
    def leads(self) -> bool:
        """Tell whether the first part is a thought, before which nothing may stand."""
        return bool(self.parts) and self.parts[0].kind is PartKind.THOUGHT


def read_opaque_parts(message: ChatMessage, read: ReadPart) -> OpaqueParts:
    """Return the parts of a message that are of a provider's shape, or none of them.

    Left out is what is no list, has a part of another shape or one that has no place in such a
    message, or has other calls than the message.
    """
    items = message.provider_parts
    if not isinstance(items, list):
        return OpaqueParts()
    allowed = _BY_ROLE.get(message.role, frozenset())
    parts: list[ProviderPart] = []
    for item in items:
        part = read(item) if isinstance(item, Mapping) else None
        if part is None or part.kind not in allowed or part.speaker not in (None, message.role):
            return OpaqueParts()
        parts.append(part)
    opaque = OpaqueParts(tuple(items), tuple(parts))
    return opaque if len(opaque.calls) in (0, len(message.tool_calls)) else OpaqueParts()
