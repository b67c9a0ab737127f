"""Context management by the provider: what its API is to do when the context has grown long.

Sources: "Compaction" and "Context editing" in the Claude Platform documentation, and "Compaction"
in OpenAI's.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from formatters.providers.canonical import JsonObject

#: The strategy of Anthropic's API that replaces older messages with a summary.
COMPACT: Final = "compact_20260112"


@dataclass(frozen=True, slots=True)
class ContextEdit:
    """One edit; ``strategy`` is its type in the provider's documentation."""

    strategy: str = COMPACT
    #: The other fields of the edit, such as ``trigger``, in the provider's form.
    options: Mapping[str, object] = field(default_factory=dict)

    def as_dict(self) -> JsonObject:
        """Return the edit in the form of a request."""
        return {"type": self.strategy, **self.options}


@dataclass(frozen=True, slots=True)
class ContextManagement:
    """The edits that a provider is to make, in order."""

    edits: tuple[ContextEdit, ...] = (ContextEdit(),)

    def as_dict(self) -> JsonObject:
        """Return the edits in the form of requests to the context builder and to Anthropic."""
        return {"edits": [edit.as_dict() for edit in self.edits]}


#: The value of ``context_management`` in each format that has it: Anthropic's is an object of
#: edits, OpenAI's a list.
FIELDS: Final[Mapping[str, Callable[[ContextManagement], object]]] = {
    "anthropic": ContextManagement.as_dict,
    "openai_responses": lambda management: management.as_dict()["edits"],
}

#: The format of each documented edit; others are sent in the format that the request has.
_FORMAT_OF: Final[Mapping[str, str]] = {
    COMPACT: "anthropic",
    "clear_tool_uses_20250919": "anthropic",
    "clear_thinking_20251015": "anthropic",
    "compaction": "openai_responses",
}


def format_management(format_: str, management: ContextManagement) -> JsonObject:
    """Return the field ``context_management`` of a format; no field if no edit is supported."""
    edits = tuple(edit for edit in management.edits if _supports(format_, edit))
    if not edits:
        return {}
    return {"context_management": FIELDS[format_](ContextManagement(edits))}


def find_unsupported_edits(format_: str, management: ContextManagement) -> Sequence[int]:
    """Return the indexes of the edits that a format doesn't support: those of other providers."""
    return [i for i, edit in enumerate(management.edits) if not _supports(format_, edit)]


def _supports(format_: str, edit: ContextEdit) -> bool:
    return format_ in FIELDS and _FORMAT_OF.get(edit.strategy, format_) == format_
