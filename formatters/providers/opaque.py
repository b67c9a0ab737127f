"""Provider parts: what a provider needs back unchanged, such as signed thinking or reasoning items.

The parts of a message are sent as the very objects that were received, or not at all.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from formatters.model import ChatMessage
from formatters.native import WORDLESS


class PartKind(StrEnum):
    """The kind of a provider part."""

    TEXT = "text"
    CALL = "call"
    THOUGHT = "thought"
    MEDIA = "media"
    #: Calls and results of tools that the provider ran itself, compactions and the like.
    OTHER = "other"


#: The kinds that may be in a message, by its role. Parts of tool results are not sent.
_KINDS_BY_ROLE: Final[Mapping[str, frozenset[PartKind]]] = {
    "assistant": frozenset({PartKind.TEXT, PartKind.CALL, PartKind.THOUGHT, PartKind.OTHER}),
    "user": frozenset({PartKind.TEXT, PartKind.MEDIA}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderPart:
    """The fields of a part that are read."""

    kind: PartKind
    #: The role that the part itself names; None if its form has none.
    speaker: str | None = None
    #: Of a call.
    id: str | None = None
    name: str = ""


#: Reads a part; returns None if it doesn't have the provider's form.
ReadPart = Callable[[Mapping[str, object]], ProviderPart | None]


@dataclass(frozen=True, slots=True)
class OpaqueParts:
    """The parts of a message that are sent unchanged."""

    items: tuple[object, ...] = ()
    parts: tuple[ProviderPart, ...] = ()

    @property
    def calls(self) -> tuple[ProviderPart, ...]:
        """Return the calls among the parts."""
        return tuple(part for part in self.parts if part.kind is PartKind.CALL)

    @property
    def replaces(self) -> bool:
        """Return whether the parts replace the content: they have its text or calls."""
        return any(part.kind in (PartKind.TEXT, PartKind.CALL) for part in self.parts)

    @property
    def leads(self) -> bool:
        """Return whether the first part is a thought, which must be the first of a message."""
        return bool(self.parts) and self.parts[0].kind is PartKind.THOUGHT

    def needs_content(self, message: ChatMessage) -> bool:
        """Return whether the content of the message has to be sent in addition to the parts.

        The placeholder for no text isn't needed next to parts that can be sent alone, such as a
        compaction.
        """
        if self.replaces or not message.content.strip():
            return False
        stands_alone = any(part.kind is PartKind.OTHER for part in self.parts)
        return not (stands_alone and message.content == WORDLESS)


def read_opaque_parts(message: ChatMessage, read: ReadPart) -> OpaqueParts:
    """Return the parts of a message if all of them have the provider's form, else none.

    None are returned either if a part isn't allowed in such a message, or if the parts have
    another number of calls than the message.
    """
    items = message.provider_parts
    if not isinstance(items, list):
        return OpaqueParts()
    allowed = _KINDS_BY_ROLE.get(message.role, frozenset())
    parts: list[ProviderPart] = []
    for item in items:
        part = read(item) if isinstance(item, Mapping) else None
        if part is None or part.kind not in allowed or part.speaker not in (None, message.role):
            return OpaqueParts()
        parts.append(part)
    opaque = OpaqueParts(tuple(items), tuple(parts))
    return opaque if len(opaque.calls) in (0, len(message.tool_calls)) else OpaqueParts()
