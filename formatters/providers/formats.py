"""The forms that a context can be asked for in."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from formatters.model import Tool
from formatters.providers.anthropic import anthropic
from formatters.providers.canonical import Canonical, ChatDict, JsonObject, read_canonical
from formatters.providers.context_management import ContextManagement, format_management
from formatters.providers.gemini import gemini
from formatters.providers.openai_responses import openai_responses

#: Give the body fields of a provider's call.
Convert = Callable[[Canonical], JsonObject]

#: None where the canonical messages are the form already.
FORMATS: Final[Mapping[str, Convert | None]] = {
    "openai": None,
    "openai_responses": openai_responses,
    "anthropic": anthropic,
    "gemini": gemini,
}


def provider_request(
    format_: str,
    messages: Sequence[ChatDict],
    tools: Iterable[Tool] = (),
    stable: int | None = 0,
    management: ContextManagement | None = None,
) -> JsonObject | None:
    """Return the body fields to splat into a provider's call; None where it takes ``messages``.

    ``messages`` are canonical, as `tests.validity.canonical` has them, and ``tools`` OpenAI
    function definitions. The first ``stable`` messages are the same in the next build, so that the
    provider may cache them; None says that not even the tools before them are. ``management`` is
    what the provider is asked to do on its side; what it doesn't take is left out. Nothing that is
    given is changed.
    """
    convert = FORMATS[format_]
    if convert is None:
        return None
    body = convert(read_canonical(messages, tools, stable))
    return {**body, **format_management(format_, management)} if management else body
