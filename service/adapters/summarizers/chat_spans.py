"""The span of a question to a model, after the field's conventions, without a word of it."""

import json
from contextlib import AbstractContextManager
from typing import Final

from opentelemetry.trace import Span, SpanKind

from service.tracing import Attributes, current, tell, within

#: Of a model's name that a server gives back, characters at most.
NAME_CHARS: Final = 128
#: What finish reasons there are; a server may make up others.
REASONS: Final = frozenset({"stop", "length", "content_filter", "tool_calls"})


def asking(model: str, max_tokens: int) -> AbstractContextManager[Span | None]:
    """Return the span of one attempt, below the one that is current."""
    attributes: Attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",  # whoever speaks its protocol
        "gen_ai.request.model": model,
        "gen_ai.request.max_tokens": max_tokens,
    }
    return within(f"chat {model}", SpanKind.CLIENT, attributes)


def tell_answer(body: bytes) -> None:
    """Tell what the server says of its answer, as far as it can be read."""
    if current() is None:
        return
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return
    match answer:
        case {"model": str(model)}:
            tell({"gen_ai.response.model": model[:NAME_CHARS]})
    match answer:
        case {"usage": {"prompt_tokens": int(taken), "completion_tokens": int(given)}}:
            usage = {"gen_ai.usage.input_tokens": taken, "gen_ai.usage.output_tokens": given}
            tell(usage)
    match answer:
        case {"choices": [{"finish_reason": str(reason)}, *_]} if reason in REASONS:
            tell({"gen_ai.response.finish_reasons": [reason]})
