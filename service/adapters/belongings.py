"""Tells whose something on a bus is, from what it says itself."""

import json
import zlib
from typing import Literal

from formatters.rows import well_formed
from service.adapters.stored_results import UNPACKED_MAX_BYTES
from service.errors import InvalidRequestError
from service.payload import read_json

#: Where the owner stands: in a stored answer, and in a manifest.
Holder = Literal["response", "request"]


def owner_in(packed: bytes, holder: Holder) -> str | None:
    """Return whose a stored answer or a manifest is; None where it doesn't say.

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
    return frozenset(well_formed(key) for key in keys if isinstance(key, str))
