"""The dead letters that buses keep, and the owners that are named by what a bus has."""

import json
import re
import zlib
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Final, Literal

from formatters.rows import fix_surrogates
from service.errors import InvalidRequestError
from service.ports.bus import DeadLetter, DeadLetters, Delivery
from service.wire.payload import read_json
from service.wire.response import UNPACKED_MAX_BYTES

#: The part of a record that names the owner: in a stored answer, and in a build report.
Holder = Literal["response", "request"]
#: Dead letters deleted in one command.
DROP_COUNT: Final = 100


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


def written_ids(entry_id: str, recall: bytes) -> list[str]:
    """Return the ids of an entry and of the one that was moved there, which ``recall`` may name.

    That is its `RECALL_FIELD`, which anyone may write.
    """
    moved = _ENTRY_ID.fullmatch(recall)
    return [entry_id, moved[0].decode()] if moved else [entry_id]


_ENTRY_ID: Final = re.compile(rb"[0-9]{1,20}-[0-9]{1,20}")


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


async def forget_letters(letters: DeadLetters, owner_key: str, *, dry_run: bool) -> tuple[int, int]:
    """Delete an owner's dead letters; return how many there were, and how many name no owner."""
    owned: list[str] = []
    unreadable = 0
    async for letter in letters.scan():
        owners = owners_of(letter.payload)
        unreadable += not owners
        if owner_key in owners:
            owned.append(letter.id)
    for start in range(0, 0 if dry_run else len(owned), DROP_COUNT):
        await letters.drop(owned[start : start + DROP_COUNT])
    return len(owned), unreadable


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


def owner_of(payload: bytes) -> str | None:
    """Read a request's owner, as the worker will when it decodes it; None if it has none."""
    try:
        owner_key = read_json(payload, max_bytes=len(payload)).get("owner_key")
    except InvalidRequestError:
        return None
    return fix_surrogates(owner_key) if isinstance(owner_key, str) else None


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
