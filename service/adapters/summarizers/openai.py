"""Summaries by a model behind OpenAI's chat completions, or any server that speaks them."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any, Final

from openai import APIConnectionError, APIStatusError, AsyncOpenAI, OpenAIError
from opentelemetry.trace import Span, SpanKind

from formatters.rows import fix_surrogates
from service.adapters.summarizers.chunked import ChunkedSummarizer
from service.config.content import SummarizerSettings
from service.errors import NoSummaryError, SummarizerError
from service.observe.tracing import Attributes, child_span, current_span, set_attributes
from service.ports.services import Summarizer, TokenCounter

#: All up to the last sentence that is whole.
_WHOLE: Final = re.compile(r".*(?:[.!?](?=\s|$)|[。！？]|\n)", re.DOTALL)


def read_answer(body: bytes) -> str:
    """Return the text of a chat completion; an unfinished last sentence is left out.

    Raises `SummarizerError` where there is none.
    """
    try:
        completion = json.loads(body)
    except (ValueError, RecursionError):
        raise SummarizerError("the model's answer is no JSON") from None
    match completion:
        case {"choices": [{"message": {"content": str(text)}, **choice}, *_]}:
            text = _without_thoughts(fix_surrogates(text)).strip()
        case {"choices": [{"message": {}}, *_]}:
            raise SummarizerError("the model's answer has no text")
        case _:
            raise SummarizerError("the model's answer is no chat completion")
    if choice.get("finish_reason") == "content_filter":
        raise NoSummaryError("the model's answer was withheld by a filter")
    if choice.get("finish_reason") == "length" and (whole := _WHOLE.match(text)):
        text = whole[0].strip()
    if not text:
        raise SummarizerError("the model's answer has no text")
    return text


def _without_thoughts(text: str) -> str:
    """Return an answer without the thoughts that some servers leave before it."""
    thinks = text.lstrip().startswith("<think>")
    return text.partition("</think>")[2] if thinks else text


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
    return child_span(f"chat {model}", SpanKind.CLIENT, attributes)


def tell_answer(body: bytes) -> None:
    """Tell what the server says of its answer, as far as it can be read."""
    if current_span() is None:
        return
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return
    match answer:
        case {"model": str(model)}:
            set_attributes({"gen_ai.response.model": model[:NAME_CHARS]})
    match answer:
        case {"usage": {"prompt_tokens": int(taken), "completion_tokens": int(given)}}:
            usage = {"gen_ai.usage.input_tokens": taken, "gen_ai.usage.output_tokens": given}
            set_attributes(usage)
    match answer:
        case {"choices": [{"finish_reason": str(reason)}, *_]} if reason in REASONS:
            set_attributes({"gen_ai.response.finish_reasons": [reason]})


#: Before the second attempt; each further wait is twice as long. Seconds.
BACKOFF_SECONDS: Final = 0.5

OPENAI_URL: Final = "https://api.openai.com/v1"

#: Stands where a server asks for no key; the SDK takes none for a mistake.
NO_KEY: Final = "none"

_TOO_MANY_REQUESTS: Final = 429
_TIMEOUTS: Final = frozenset({408, 409})
_SERVER_ERRORS: Final = 500
#: What a server answers to a prompt that it does not take.
_REFUSALS: Final = frozenset({400, 413, 422})


@asynccontextmanager
async def open_openai_summarizer(
    settings: SummarizerSettings, counter: TokenCounter
) -> AsyncIterator[Summarizer]:
    """Open a client; nothing is sent before there is something to summarise."""
    async with make_client(settings) as client:
        model = OpenAIModel(client, settings)
        yield ChunkedSummarizer(model.name, model.ask, counter.count, settings)


def make_client(settings: SummarizerSettings) -> AsyncOpenAI:
    """Return a client that makes one attempt a call."""
    key, url = settings.api_key, settings.base_url
    client = AsyncOpenAI(
        api_key=key.get_secret_value() if key else NO_KEY,
        base_url=url.get_secret_value() if url else OPENAI_URL,
        timeout=settings.timeout_seconds,
        max_retries=0,
    )
    # the SDK takes them from the environment, which may mean another server than this one
    client.organization = client.project = None
    return client


class OpenAIModel:
    """A model that answers prompts, with a few attempts in a bounded time."""

    def __init__(
        self,
        client: AsyncOpenAI,
        settings: SummarizerSettings,
        *,
        backoff_seconds: float = BACKOFF_SECONDS,
    ) -> None:
        self.name = settings.model or ""
        self._client = client
        self._settings = settings
        self._backoff = backoff_seconds

    async def ask(self, prompt: str, max_tokens: int) -> str:
        """Return the model's answer.

        Raises `SummarizerError`, whose text has nothing of prompt, answer or key.
        """
        seconds = self._settings.timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                return await self._attempts(prompt, max_tokens)
        except TimeoutError:
            raise SummarizerError(f"the model gave no answer within {seconds:g} s") from None

    async def _attempts(self, prompt: str, max_tokens: int) -> str:
        for attempt in range(self._settings.retries):
            try:
                return await self._once(prompt, max_tokens)
            except OpenAIError as error:
                if not _may_pass(error):
                    raise _failed(error) from None
            await asyncio.sleep(self._backoff * 2**attempt)
        try:
            return await self._once(prompt, max_tokens)
        except OpenAIError as error:
            # without its cause: servers repeat keys and prompts in what they answer
            raise _failed(error) from None

    async def _once(self, prompt: str, max_tokens: int) -> str:
        options: dict[str, Any] = {self._settings.limit_field: max_tokens}
        if self._settings.temperature is not None:
            options["temperature"] = self._settings.temperature
        with asking(self.name, max_tokens):
            response = await self._client.chat.completions.with_raw_response.create(
                model=self.name, messages=[{"role": "user", "content": prompt}], **options
            )
            tell_answer(response.content)
        return read_answer(response.content)


def _may_pass(error: OpenAIError) -> bool:
    """Tell whether the same request may succeed a little later."""
    if isinstance(error, APIStatusError):
        status = error.status_code
        return status in {*_TIMEOUTS, _TOO_MANY_REQUESTS} or status >= _SERVER_ERRORS
    return isinstance(error, APIConnectionError)


def _failed(error: OpenAIError) -> SummarizerError:
    if isinstance(error, APIStatusError):
        kind = NoSummaryError if error.status_code in _REFUSALS else SummarizerError
        return kind(f"the model's server answered with status {error.status_code}")
    return SummarizerError(f"the model's server can't be asked: {type(error).__name__}")
