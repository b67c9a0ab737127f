"""The form in which a bus keeps answers: compressed JSON with the request's fingerprint."""

import json
import zlib

import structlog

from service.bus import StoredResult

#: Fast: at level 1, a context of 50 kB takes well under a millisecond.
LEVEL = 1
#: A stored answer that unpacks to more bytes than this was not written here.
UNPACKED_MAX_BYTES = 64 * 1_048_576

log = structlog.get_logger()


def pack(fingerprint: str, response: bytes, max_bytes: int) -> bytes:
    """Return what is stored; a response over ``max_bytes`` compressed is left out as null."""
    head = _head(fingerprint)
    packed = zlib.compress(head + response + b"}", LEVEL)
    return packed if len(packed) <= max_bytes else zlib.compress(head + b"null}", LEVEL)


def unpack(packed: bytes | None) -> StoredResult | None:
    """Return what was stored; None where there is nothing or something else."""
    if packed is None:
        return None
    try:
        return _read(packed)
    except (ValueError, KeyError, TypeError, RecursionError, zlib.error) as error:
        log.warning("bus.result_unreadable", reason=type(error).__name__, size=len(packed))
        return None


def _head(fingerprint: str) -> bytes:
    return b'{"fingerprint":%b,"response":' % json.dumps(fingerprint).encode()


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
    # The bytes as they were sent, where they are ours; numbers and blanks survive as they were.
    ours = text.startswith(head)
    sent = text[len(head) : -1] if ours else json.dumps(response, ensure_ascii=False).encode()
    return StoredResult(fingerprint=fingerprint, response=sent)
