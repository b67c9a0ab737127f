"""Vectors by a model over OpenAI's embeddings API, or a server compatible with it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from math import isfinite
from typing import Final

from openai import AsyncOpenAI
from openai.types import CreateEmbeddingResponse

from formatters.redaction import redact_secrets
from service.adapters.openai_client import calling, open_client
from service.config.content import EmbedderSettings
from service.errors import EmbedderError, NoVectorError
from service.ports.services import Embedder

#: Retries of a request that a server fails to answer.
RETRIES: Final = 2
#: Time limit of a request, with all its attempts. Builds have a limit of their own.
SECONDS: Final = 60.0
#: Characters of a text that are sent; models read some 8,000 tokens.
MAX_CHARS: Final = 4_000


@asynccontextmanager
async def open_openai_embedder(settings: EmbedderSettings) -> AsyncIterator[Embedder]:
    """Open a client; it connects when there is something to embed."""
    async with open_client(settings, RETRIES) as client:
        yield OpenAIEmbedder(client, settings.model or "")


class OpenAIEmbedder:
    """An `Embedder` over HTTP; secrets are removed from what it sends."""

    def __init__(self, client: AsyncOpenAI, model: str) -> None:
        self.name = model
        self._client = client

    async def embed(
        self,
        texts: Sequence[str],
        *,
        question: bool = False,  # noqa: ARG002 - the API doesn't distinguish them
    ) -> list[list[float]]:
        """Return the server's vectors.

        Raises `EmbedderError`, whose message quotes neither the texts, nor the answer, nor the key.
        """
        # servers refuse an empty text
        sent = [redact_secrets(text[:MAX_CHARS]).strip() or "-" for text in texts]
        async with calling(self.name, "embeddings", SECONDS, (EmbedderError, NoVectorError)):
            answer = await self._client.embeddings.create(
                model=self.name, input=sent, encoding_format="float"
            )
        return read_vectors(answer, len(texts))


def read_vectors(answer: object, count: int) -> list[list[float]]:
    """Return the vectors of an answer in the order of the texts.

    The SDK doesn't validate answers, so any field may be missing or of another type. Raises
    `EmbedderError` unless there are ``count`` vectors of one length.
    """
    listed = answer.data if isinstance(answer, CreateEmbeddingResponse) else None
    found: dict[int, list[float]] = {}
    for item in listed if isinstance(listed, list) else ():
        index, vector = getattr(item, "index", None), getattr(item, "embedding", None)
        if isinstance(index, int) and isinstance(vector, list) and all(map(_is_number, vector)):
            found[index] = list(map(float, vector))
    vectors = [found[index] for index in range(count) if found.get(index)]
    if len(vectors) != count or len(set(map(len, vectors))) != 1:
        raise EmbedderError("the model's answer is not a vector for each text")
    return vectors


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and isfinite(value)
