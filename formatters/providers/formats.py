"""The formats that can be requested for a context."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal

from formatters.model import Tool
from formatters.providers.anthropic import anthropic
from formatters.providers.canonical import Canonical, ChatDict, JsonObject, read_canonical
from formatters.providers.context_management import ContextManagement, format_management
from formatters.providers.gemini import gemini
from formatters.providers.openai_responses import openai_responses

#: Returns the body fields of a provider's call.
Convert = Callable[[Canonical], JsonObject]

Format = Literal["openai", "openai_responses", "anthropic", "gemini"]
#: None for the format of the canonical messages.
FORMATS: Final[Mapping[str, Convert | None]] = {
    "openai": None,
    "openai_responses": openai_responses,
    "anthropic": anthropic,
    "gemini": gemini,
}


def build_provider_request(
    format_: str,
    messages: Sequence[ChatDict],
    tools: Iterable[Tool] = (),
    stable: int | None = 0,
    management: ContextManagement | None = None,
) -> JsonObject | None:
    """Return the body fields to splat into a provider's call; None if it takes ``messages``.

    ``messages`` must be valid as `tests.validity.canonical` defines it, and ``tools`` be OpenAI
    function definitions; neither is changed. The first ``stable`` messages are the same in the
    next build, so that the provider may cache them; None if not even the tools are. Edits of
    ``management`` that the provider doesn't support are omitted.
    """
    convert = FORMATS[format_]
    if convert is None:
        return None
    body = convert(read_canonical(messages, tools, stable))
    return {**body, **format_management(format_, management)} if management else body
