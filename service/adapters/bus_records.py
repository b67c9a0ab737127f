"""The records that buses keep: dead letters, stored answers, and whose each record is."""

import json
import struct
import zlib
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Literal

import structlog

from formatters.rows import fix_surrogates
from service.errors import InvalidRequestError
from service.ports.bus import DeadLetter, StoredResult
from service.ports.stream import Delivery
from service.wire.payload import canonical, read_json


def dead_letter_fields(delivery: Delivery, reason: str, at: datetime) -> dict[str, bytes]:
    """Return the fields of an entry: the payload, why it is there, and where it came from."""
    return {
        "data": delivery.payload,
        "reason": reason.encode(),
        "source": delivery.source.encode(),
        "entry": delivery.token.encode(),
        "attempts": b"%d" % delivery.attempt,
        "at": at.isoformat().encode(),
    }


def read_dead_letter(letter_id: str, fields: Mapping[str, bytes]) -> DeadLetter:
    """Read an entry, also one that something else wrote."""
    said = {name: value.decode(errors="replace") for name, value in fields.items()}
    at, attempts = None, 0
    with suppress(ValueError):
        at = datetime.fromisoformat(said.get("at", ""))
    with suppress(ValueError):
        attempts = int(said.get("attempts", ""))
    return DeadLetter(
        id=letter_id,
        payload=fields.get("data", b""),
        reason=said.get("reason", ""),
        source=said.get("source", ""),
        entry=said.get("entry", ""),
        attempts=attempts,
        at=at,
    )


#: Fast: at level 1, a context of 50 kB takes well under a millisecond.
LEVEL = 1
#: Bytes up to which an answer is put into zlib's form as it is, which takes a tenth of the time:
#: compressed, it would take a few hundred bytes less.
PLAIN_BYTES = 2048
#: Zlib's head and that of a stored block: last, length and its complement; and the checksum
#: (RFC 1950, section 2.2; RFC 1951, section 3.2.4).
_STORED = struct.Struct("<BBBHH")
_SUM = struct.Struct(">I")
_OVERHEAD = _STORED.size + _SUM.size
#: In place of a response that is too large to keep, with what closes the answer.
_NOTHING = b"null}"
#: A stored answer that unpacks to more bytes than this was not written here.
UNPACKED_MAX_BYTES = 64 * 1_048_576

log = structlog.get_logger()


def pack(fingerprint: str, response: bytes, max_bytes: int) -> bytes:
    """Return what is stored; a response over ``max_bytes`` compressed is left out as null."""
    head = _head(fingerprint)
    whole = head + response + b"}"
    if len(whole) <= min(PLAIN_BYTES, max_bytes - _OVERHEAD):
        return _plain(whole)
    packed = zlib.compress(whole, LEVEL)
    return packed if len(packed) <= max_bytes else _plain(head + _NOTHING)


def is_note(packed: bytes) -> bool:
    """Say whether what was packed only notes that there was an answer, too large to keep."""
    return packed[-_SUM.size - len(_NOTHING) : -_SUM.size] == _NOTHING


def unpack(packed: bytes | None) -> StoredResult | None:
    """Return what was stored; None where there is nothing or something else."""
    if packed is None:
        return None
    try:
        return _read(packed)
    except (ValueError, KeyError, TypeError, RecursionError, zlib.error) as error:
        log.warning("bus.result_unreadable", reason=type(error).__name__, size=len(packed))
        return None


def _plain(text: bytes) -> bytes:
    """Return a short text in zlib's form, not compressed: one last block, stored as it is.

    zlib does the same, but sets up its tables first, which takes longer than all the rest.
    """
    size = len(text)
    return _STORED.pack(0x78, 0x01, 1, size, size ^ 0xFFFF) + text + _SUM.pack(zlib.adler32(text))


def _head(fingerprint: str) -> bytes:
    return b'{"fingerprint":%b,"response":' % canonical(fingerprint)


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


#: Where the owner stands: in a stored answer, and in a build report.
Holder = Literal["response", "request"]


def owner_in(packed: bytes, holder: Holder) -> str | None:
    """Return whose a stored answer or a build report is; None where it doesn't say.

    An answer that was too large to be stored says nothing: its fingerprint is all that there is.
    """
    try:
        unpacked = zlib.decompressobj().decompress(packed, UNPACKED_MAX_BYTES)
        value = json.loads(unpacked)
    except (ValueError, RecursionError, zlib.error):
        return None
    held = value.get(holder) if isinstance(value, dict) else None
    owner = held.get("owner_key") if isinstance(held, dict) else None
    return owner if isinstance(owner, str) else None


def owners_of(payload: bytes) -> frozenset[str]:
    """Return the owners that a message names: its own, its run's, and those of the run's rows.

    Empty where it can't be read or names none.
    """
    try:
        raw = read_json(payload, max_bytes=len(payload))
    except InvalidRequestError:
        return frozenset()
    content = raw.get("content")
    named: list[object] = [raw, content]
    if isinstance(content, dict) and isinstance(content.get("history"), list):
        named += content["history"]
    keys = [each.get("owner_key") for each in named if isinstance(each, dict)]
    return frozenset(fix_surrogates(key) for key in keys if isinstance(key, str))
