"""What a provider is asked to do on its side with a context that has grown long.

After "Compaction" and "Context editing" of the Claude Platform documentation, and "Compaction" of
OpenAI's.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from formatters.providers.canonical import JsonObject

#: The strategy by which Anthropic's API puts a summary in place of older messages.
COMPACT: Final = "compact_20260112"


@dataclass(frozen=True, slots=True)
class ContextEdit:
    """One thing to do; ``strategy`` is the type that the provider's documentation gives it."""

    strategy: str = COMPACT
    #: The other fields of the edit, such as ``trigger``, as the provider takes them.
    options: Mapping[str, object] = field(default_factory=dict)

    def as_dict(self) -> JsonObject:
        """Return it as it stands in a request."""
        return {"type": self.strategy, **self.options}


@dataclass(frozen=True, slots=True)
class ContextManagement:
    """What a provider is asked to do, in this order."""

    edits: tuple[ContextEdit, ...] = (ContextEdit(),)

    def as_dict(self) -> JsonObject:
        """Return it as it stands in a request to the context builder, and to Anthropic."""
        return {"edits": [edit.as_dict() for edit in self.edits]}


#: The field of each form that has one: Anthropic's object of edits, and OpenAI's list of them.
FIELDS: Final[Mapping[str, Callable[[ContextManagement], object]]] = {
    "anthropic": ContextManagement.as_dict,
    "openai_responses": lambda management: management.as_dict()["edits"],
}

#: Whose the documented edits are; others go wherever they are asked for.
_FORM_OF: Final[Mapping[str, str]] = {
    COMPACT: "anthropic",
    "clear_tool_uses_20250919": "anthropic",
    "clear_thinking_20251015": "anthropic",
    "compaction": "openai_responses",
}


def format_management(form: str, management: ContextManagement) -> JsonObject:
    """Return the field ``context_management`` of a form, or none where nothing is left to ask."""
    edits = tuple(edit for edit in management.edits if _takes(form, edit))
    if not edits:
        return {}
    return {"context_management": FIELDS[form](ContextManagement(edits))}


def unsupported_edits(form: str, management: ContextManagement) -> Sequence[int]:
    """Return the places of the edits that a form doesn't take: those of another provider."""
    return [place for place, edit in enumerate(management.edits) if not _takes(form, edit)]


def _takes(form: str, edit: ContextEdit) -> bool:
    return form in FIELDS and _FORM_OF.get(edit.strategy, form) == form
