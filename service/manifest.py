"""A build's manifest: what it was made of and what came of it, without anybody's words.

Contents stand in it as hashes, which tell whether something has changed and nothing more.
"""

import zlib
from typing import Any, Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, TypeAdapter

from service.result import Usage

#: The version of its form; one that is read under another is not understood.
VERSION: Final = 1
#: A manifest that unpacks to more bytes than this was not written here.
_UNPACKED_MAX_BYTES: Final = 64 * 1_048_576
#: Fast: higher levels save a twentieth, since most of it is hashes.
_LEVEL: Final = 1


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True)


class Ground(_Record):
    """What builds stand on for as long as a process runs."""

    #: The versions of the package and of the guard.
    package: str
    guard: int
    #: Hashes of the settings that a context depends on, by dotted path.
    settings: dict[str, str]


class RequestRecord(_Record):
    """The request, as far as it can be made again."""

    id: str
    run_id: str
    owner_key: str
    conversation_id: str | None
    fingerprint: str
    #: The input's row in the history, and the hash of its text.
    input_id: str
    input: str
    #: The moment of the request, in the client's zone.
    now: AwareDatetime
    #: Names of tools, [] for all, null for none; [] where ``brought`` has them.
    tools: list[str] | None
    #: Without those that hold words.
    options: dict[str, Any]
    #: Hashes of what came with the request and isn't kept: ``past``, ``blocks``, ``user_profile``,
    #: ``tools``, and the ``run`` behind the input.
    brought: dict[str, str]


class Candidate(_Record):
    """A row of history that was read, and what became of it."""

    id: str
    hash: str
    #: Null where a block of another package says nothing of it.
    decision: str | None
    reason: str | None
    #: The tokens before it, where the strategy goes by them.
    start: int | None = None


class MessageRecord(_Record):
    """A message that was sent."""

    role: str
    #: The tag that it opens with, if any.
    block: str | None
    hash: str


class ReadRecord(_Record):
    """How much of the history was read."""

    rows: int
    not_read: int
    #: Of the rows that were read, how many a search has found: the oldest.
    found: int = 0
    #: The bounds: of printed rows, and of the history's tokens.
    limit: int | None
    max_tokens: int | None


class Manifest(_Record):
    """What a build was made of and what came of it."""

    version: Literal[1] = VERSION
    build_id: str
    ground: Ground
    request: RequestRecord
    #: The strategy's name with its parameters; those of a list in ``strategies``.
    strategy: dict[str, Any]
    usage: Usage
    read: ReadRecord
    #: Oldest first; those of the current run last.
    candidates: list[Candidate]
    messages: list[MessageRecord]
    #: Hashes of the definitions, by name, in their order.
    tools: dict[str, str]
    #: The hash of the profile.
    profile: str
    #: The codes of the warnings.
    warnings: list[str]
    #: The ids of the summaries that were read.
    summaries: list[str] = []

    def packed(self) -> bytes:
        """Return it as it is stored: JSON, compressed by zlib."""
        return zlib.compress(_WRITTEN(self), _LEVEL)


#: A model's own method makes text of the bytes.
_WRITTEN: Final = TypeAdapter(Manifest).dump_json


def unpacked(packed: bytes) -> Manifest:
    """Read a manifest; raises `ValueError` where it is none, or of another version."""
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(packed, _UNPACKED_MAX_BYTES)
    except zlib.error as error:
        raise ValueError(f"not compressed by zlib: {error}") from error
    return Manifest.model_validate_json(text)
