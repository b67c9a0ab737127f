"""A client for OpenAI's API, or a server compatible with it."""

from typing import Final

from openai import AsyncOpenAI

from service.config.content import EmbedderSettings, SummarizerSettings

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
