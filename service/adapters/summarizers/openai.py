"""Summaries by a model, over OpenAI's chat completions API or a server compatible with it."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from openai import AsyncOpenAI
from openai.types import CompletionUsage
from openai.types.chat import ChatCompletion, ChatCompletionMessage
from openai.types.chat.chat_completion import Choice

from formatters.rows import fix_surrogates
from service.adapters.openai_client import calling, open_client
from service.adapters.summarizers.chunked import ChunkedSummarizer
from service.config.content import SummarizerSettings
from service.errors import NoSummaryError, SummarizerError
from service.observe.tracing import Attributes, set_attributes
from service.ports.services import Summarizer, TokenCounter

#: The finish reasons that go into spans; a server may invent others.
_FINISH_REASONS: Final = frozenset({"stop", "length", "content_filter", "tool_calls"})
#: The longest model name that goes into spans.
_MAX_NAME_CHARS: Final = 128
#: Everything up to the end of the last complete sentence.
_COMPLETE: Final = re.compile(r".*(?:[.!?](?=\s|$)|[。！？]|\n)", re.DOTALL)


@asynccontextmanager
async def open_openai_summarizer(
    settings: SummarizerSettings, counter: TokenCounter
) -> AsyncIterator[Summarizer]:
    """Open a client; it connects when there is something to summarise."""
    async with open_client(settings, settings.retries) as client:
        model = OpenAIModel(client, settings)
        yield ChunkedSummarizer(model.name, model.ask, counter.count, settings)


class OpenAIModel:
    """A model that answers prompts within a time limit."""

    def __init__(self, client: AsyncOpenAI, settings: SummarizerSettings) -> None:
        self.name = settings.model or ""
        self._client = client
        self._settings = settings

    async def ask(self, prompt: str, max_tokens: int) -> str:
        """Return the model's answer.

        Raises `SummarizerError`, whose text contains nothing of the prompt, the answer or the key.
        """
        options: dict[str, Any] = {self._settings.limit_field: max_tokens}
        if self._settings.temperature is not None:
            options["temperature"] = self._settings.temperature
        errors = SummarizerError, NoSummaryError
        limits = {"gen_ai.request.max_tokens": max_tokens}
        async with calling(self.name, "chat", self._settings.timeout_seconds, errors, **limits):
            completion: object = await self._client.chat.completions.create(
                model=self.name, messages=[{"role": "user", "content": prompt}], **options
            )
            set_attributes(answer_attributes(completion))
        return read_answer(completion)


def read_answer(completion: object) -> str:
    """Return the text of a chat completion, without an unfinished last sentence.

    The SDK doesn't validate answers, so any field may be missing or of another type. Raises
    `SummarizerError` if there is no text.
    """
    match completion:
        case ChatCompletion(choices=[Choice(message=ChatCompletionMessage()) as choice, *_]):
            content = getattr(choice.message, "content", None)
        case _:
            raise SummarizerError("the model's answer is not a chat completion")
    reason = getattr(choice, "finish_reason", None)
    if reason == "content_filter":
        raise NoSummaryError("the model's answer was withheld by a filter")
    text = fix_surrogates(content).strip() if isinstance(content, str) else ""
    if text.startswith("<think>"):  # some servers put the reasoning before the answer
        text = text.partition("</think>")[2].strip()
    if reason == "length" and (complete := _COMPLETE.match(text)):
        text = complete[0].strip()
    if not text:
        raise SummarizerError("the model's answer has no text")
    return text


def answer_attributes(completion: object) -> Attributes:
    """Return what a chat completion reports about itself, as attributes of a span."""
    attributes: dict[str, str | int | list[str]] = {}
    match completion:
        case ChatCompletion(model=str(model)):
            attributes["gen_ai.response.model"] = model[:_MAX_NAME_CHARS]
    match completion:
        case ChatCompletion(usage=CompletionUsage(prompt_tokens=int(i), completion_tokens=int(o))):
            attributes |= {"gen_ai.usage.input_tokens": i, "gen_ai.usage.output_tokens": o}
    match completion:
        case ChatCompletion(choices=[Choice(finish_reason=str(reason)), *_]):
            if reason in _FINISH_REASONS:
                attributes["gen_ai.response.finish_reasons"] = [reason]
    return attributes
