"""Who has to be answered for a payload, determined by another parser than the service's."""

import hashlib
from typing import Final, NamedTuple

from pydantic_core import from_json

#: As docs/wire.md has it: bytes of a message, characters of an owner key and of an id.
MOST_BYTES: Final = 4_194_304
MOST_OWNER: Final = 128
MOST_ID: Final = 256


class Sender(NamedTuple):
    """The recipient of an answer."""

    owner_key: str
    id: str


def sender(payload: bytes) -> Sender | None:
    """Return the recipient of a payload, if it can be read; None does not say that it can't.

    The parser refuses what the service may read: numbers that are none, halves of characters, and
    nesting beyond 200 levels.
    """
    if len(payload) > MOST_BYTES:
        return None
    try:
        value = from_json(payload, allow_inf_nan=False)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    owner_key, request_id = value.get("owner_key"), value.get("id")
    if request_id is None:
        request_id = f"msg_{hashlib.sha256(payload).hexdigest()[:32]}"
    if not isinstance(owner_key, str) or not 0 < len(owner_key) <= MOST_OWNER:
        return None
    if not isinstance(request_id, str) or not 0 < len(request_id) <= MOST_ID:
        return None
    return Sender(owner_key, request_id)
