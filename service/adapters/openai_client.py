"""A client for OpenAI's API, or a server compatible with it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from openai import APIStatusError, AsyncOpenAI, OpenAIError
from opentelemetry.trace import SpanKind

from service.config.content import EmbedderSettings, SummarizerSettings
from service.errors import EmbedderError, SummarizerError
from service.observe.tracing import Attributes, child_span

OPENAI_URL: Final = "https://api.openai.com/v1"

#: Sent to servers that need no key; the SDK refuses to send none.
NO_KEY: Final = "none"

#: The statuses with which a server refuses a text.
REFUSALS: Final = frozenset({400, 413, 422})


def open_client(settings: SummarizerSettings | EmbedderSettings, retries: int) -> AsyncOpenAI:
    """Return a client that retries as often, and as servers ask with Retry-After."""
    key, url = settings.api_key, settings.base_url
    client = AsyncOpenAI(
        api_key=key.get_secret_value() if key else NO_KEY,
        base_url=url.get_secret_value() if url else OPENAI_URL,
        timeout=None,  # callers limit all attempts together
        max_retries=retries,
    )
    # the SDK reads them from the environment, which may be meant for another server
    client.organization = client.project = None
    return client


@asynccontextmanager
async def calling(
    model: str,
    operation: str,
    seconds: float,
    errors: tuple[type[SummarizerError | EmbedderError], type[SummarizerError | EmbedderError]],
    **attributes: int,
) -> AsyncIterator[None]:
    """Limit the time of a call to a model's server, and record it as a span.

    Failures are raised as the first of the errors, refused texts as the second; neither quotes the
    texts, the answer or the key.
    """
    failed, refused = errors
    described: Attributes = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": "openai",  # the protocol, whichever server it is
        "gen_ai.request.model": model,
        **attributes,
    }
    try:
        async with asyncio.timeout(seconds):
            with child_span(f"{operation} {model}", SpanKind.CLIENT, described):
                yield
    except TimeoutError:
        raise failed(f"the model gave no answer within {seconds:g} s") from None
    # without the cause: servers repeat keys and texts in their messages
    except APIStatusError as error:
        kind = refused if error.status_code in REFUSALS else failed
        raise kind(f"the model's server answered with status {error.status_code}") from None
    except OpenAIError as error:
        name = type(error).__name__
        raise failed(f"the model's server can't be reached: {name}") from None
    except (ValueError, RecursionError):
        raise failed("the model's answer is not JSON") from None
