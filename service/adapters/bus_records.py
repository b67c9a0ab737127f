"""The records that buses keep: stored answers and dead letters, and the owner of each record."""

import json
import zlib
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Final, Literal

import structlog

from formatters.rows import fix_surrogates
from service.errors import InvalidRequestError
from service.ports.bus import DeadLetter, StoredResult
from service.ports.stream import Delivery
from service.wire.payload import canonical_json, read_json

#: Fast: at level 1, a context of 50 kB takes well under a millisecond.
LEVEL: Final = 1
#: Answers up to this many bytes are stored in zlib's format without compression, which takes a
#: seventh of the time and a few hundred bytes more.
PLAIN_BYTES: Final = 2048
#: Bytes that the format adds to an uncompressed answer: header, block header and checksum
#: (RFC 1950, section 2.2; RFC 1951, section 3.2.4).
_OVERHEAD: Final = 11
_CHECKSUM_BYTES: Final = 4
#: Replaces a response that is too large to store; includes the end of the record.
_PLACEHOLDER: Final = b"null}"
#: A stored answer that unpacks to more bytes was not written by this service.
UNPACKED_MAX_BYTES: Final = 64 * 1_048_576

#: The part of a record that names the owner: in a stored answer, and in a build report.
Holder = Literal["response", "request"]

log = structlog.get_logger(__name__)


# --- stored answers --------------------------------------------------------------------------


def pack(fingerprint: str, response: bytes, max_bytes: int) -> bytes:
    """Return the record to store; a response over ``max_bytes`` compressed is replaced by null."""
    head = _head(fingerprint)
    record = head + response + b"}"
    if len(record) <= min(PLAIN_BYTES, max_bytes - _OVERHEAD):
        return _plain(record)
    packed = zlib.compress(record, LEVEL)
    return packed if len(packed) <= max_bytes else _plain(head + _PLACEHOLDER)


def is_placeholder(packed: bytes) -> bool:
    """Return whether a record lacks its response, which was too large to store."""
    return packed[-_CHECKSUM_BYTES - len(_PLACEHOLDER) : -_CHECKSUM_BYTES] == _PLACEHOLDER


def unpack(packed: bytes | None) -> StoredResult | None:
    """Read a stored answer; None if there is none, or something else."""
    if packed is None:
        return None
    try:
        return _read(packed)
    except (ValueError, KeyError, TypeError, RecursionError, zlib.error) as error:
        log.warning("bus.result_unreadable", reason=type(error).__name__, size=len(packed))
        return None


def _plain(record: bytes) -> bytes:
    """Return a record in zlib's format, without compression."""
    # with the smallest window, as most of the time is spent on setting up tables for it
    return zlib.compress(record, 0, wbits=9)


def _head(fingerprint: str) -> bytes:
    return b'{"fingerprint":%b,"response":' % canonical_json(fingerprint)


def _read(packed: bytes) -> StoredResult:
    unpacker = zlib.decompressobj()
    text = unpacker.decompress(packed, UNPACKED_MAX_BYTES)
    if not unpacker.eof:
        raise ValueError("truncated or too large")
    value = json.loads(text)
    fingerprint, response = value["fingerprint"], value["response"]
    if not isinstance(fingerprint, str) or not isinstance(response, dict | None):
        raise TypeError("not a stored result")
    if response is None:
        return StoredResult(fingerprint=fingerprint, response=None)
    head = _head(fingerprint)
    # our own records yield the exact bytes that were sent: numbers and blanks stay as they were
    ours = text.startswith(head)
    sent = text[len(head) : -1] if ours else json.dumps(response, ensure_ascii=False).encode()
    return StoredResult(fingerprint=fingerprint, response=sent)


# --- dead letters ----------------------------------------------------------------------------


def dead_letter_fields(delivery: Delivery, reason: str, at: datetime) -> dict[str, bytes]:
    """Return the fields of an entry: the payload, the reason, and where it came from."""
    return {
        "data": delivery.payload,
        "reason": reason.encode(),
        "source": delivery.source.encode(),
        "entry": delivery.token.encode(),
        "attempts": b"%d" % delivery.attempt,
        "at": at.isoformat().encode(),
    }


def read_dead_letter(letter_id: str, fields: Mapping[str, bytes]) -> DeadLetter:
    """Read an entry, even one that another program wrote."""
    texts = {name: value.decode(errors="replace") for name, value in fields.items()}
    at, attempts = None, 0
    with suppress(ValueError):
        at = datetime.fromisoformat(texts.get("at", ""))
    with suppress(ValueError):
        attempts = int(texts.get("attempts", ""))
    return DeadLetter(
        id=letter_id,
        payload=fields.get("data", b""),
        reason=texts.get("reason", ""),
        source=texts.get("source", ""),
        entry=texts.get("entry", ""),
        attempts=attempts,
        at=at,
    )


# --- owners ----------------------------------------------------------------------------------


def owner_in(packed: bytes, holder: Holder) -> str | None:
    """Return the owner of a stored answer or a build report, or None if it names none.

    An answer that was too large to store names none: only its fingerprint is kept.
    """
    try:
        unpacked = zlib.decompressobj().decompress(packed, UNPACKED_MAX_BYTES)
        value = json.loads(unpacked)
    except (ValueError, RecursionError, zlib.error):
        return None
    part = value.get(holder) if isinstance(value, dict) else None
    owner = part.get("owner_key") if isinstance(part, dict) else None
    return owner if isinstance(owner, str) else None


def owners_of(payload: bytes) -> frozenset[str]:
    """Return the owners that a message names: its own, its run's, and those of the run's rows.

    Empty if it can't be read or names none.
    """
    try:
        raw = read_json(payload, max_bytes=len(payload))
    except InvalidRequestError:
        return frozenset()
    content = raw.get("content")
    objects: list[object] = [raw, content]
    if isinstance(content, dict) and isinstance(content.get("history"), list):
        objects += content["history"]
    keys = [item.get("owner_key") for item in objects if isinstance(item, dict)]
    return frozenset(fix_surrogates(key) for key in keys if isinstance(key, str))
