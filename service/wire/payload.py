"""Read JSON from untrusted bytes, and write it in a canonical form for ids and fingerprints.

Reading and canonical writing have two paths each: `read_json_fast` and `canonical_json_fast` use
orjson and return None or fall back if the result could differ from that of the standard library.
Every request passes through both; the benchmark `bench.bus` shows the gain.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import orjson

from formatters.rows import MAX_DEPTH, fix_surrogates
from service.errors import InvalidRequestError, Problem, escape_key

#: Bytes of the largest message that is read.
MAX_BYTES: Final = 4 * 1024 * 1024
#: Characters of the longest owner key and the longest id.
MAX_OWNER_KEY: Final = 128
MAX_ID: Final = 256
#: The keys of a request that its fingerprint covers.
FINGERPRINTED: Final = ("content", "run_id", "conversation_id")

JsonObject = dict[str, object]

#: Maps every digit to zero, so that one search finds long numbers.
_ZEROS: Final = bytes.maketrans(b"123456789", b"000000000")
#: Part of every number that may not fit into 64 bits.
_LONG: Final = b"0" * 19

#: Created once, since each request uses it several times.
_CANONICAL: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=str)


def read_json(payload: bytes, *, max_bytes: int = MAX_BYTES) -> JsonObject:
    """Read one JSON object in UTF-8; pass the result to `clean_json` before use.

    Raises:
        InvalidRequestError: It is too large, not UTF-8, not JSON or not an object.
    """
    if len(payload) > max_bytes:
        size = f"the message has {len(payload)} bytes, {max_bytes} are allowed"
        raise InvalidRequestError(f"{size} (bus.max_payload_bytes)")
    try:
        value = json.loads(payload.decode())
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"not UTF-8 at byte {error.start}: {error.reason}") from error
    except RecursionError as error:
        raise InvalidRequestError(f"nested deeper than {MAX_DEPTH} levels") from error
    except json.JSONDecodeError as error:
        raise InvalidRequestError(f"not JSON: {error}") from error
    except ValueError as error:  # Python's limit for whole numbers
        raise InvalidRequestError("a number has too many digits; write it as a text") from error
    if not isinstance(value, dict):
        raise InvalidRequestError(f"must be a JSON object, not {_kind(value)}")
    return value


def _kind(value: object) -> str:
    """Return what a value is, without the value: logs have no texts of strangers."""
    names: dict[type, str] = {
        list: "an array",
        str: "a string",
        bool: "a boolean",
        type(None): "null",
    }
    return names.get(type(value), "a number")


def read_json_fast(payload: bytes, *, max_bytes: int = MAX_BYTES) -> JsonObject | None:
    """Return what `read_json` and `clean_json` would, in a quarter of the time; None if unsure.

    orjson refuses lone surrogates and numbers that are not finite, but reads long integers as
    floats: a payload with one is left to `read_json`. So is one with more brackets than levels are
    allowed, as it may be nested too deeply.
    """
    if len(payload) > max_bytes or payload.count(b"{") + payload.count(b"[") > MAX_DEPTH:
        return None
    if _LONG in payload.translate(_ZEROS):
        return None
    try:
        value = orjson.loads(payload)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def clean_json(value: object) -> object:
    """Return a JSON value with lone surrogates replaced, in keys and strings.

    Raises:
        InvalidRequestError: It is nested deeper than `MAX_DEPTH`, or holds a number that is not
            finite.
    """
    return value if _is_clean(value, MAX_DEPTH) else _clean(value)


def _is_clean(value: object, levels: int) -> bool:
    """Return whether a value needs no change; most don't, and the check is cheaper than a copy."""
    if isinstance(value, str):
        return value.isascii() or fix_surrogates(value) == value
    if isinstance(value, dict):
        return levels > 0 and _are_clean(value, 0) and _are_clean(value.values(), levels - 1)
    if isinstance(value, list):
        return levels > 0 and _are_clean(value, levels - 1)
    return not isinstance(value, float) or math.isfinite(value)


def _are_clean(items: Iterable[object], levels: int) -> bool:
    for item in items:  # noqa: SIM110 - `all` takes three times as long
        if not _is_clean(item, levels):
            return False
    return True


def _clean(value: object, depth: int = 0, pointer: str = "") -> object:
    if isinstance(value, str):
        return fix_surrogates(value)
    if isinstance(value, float) and not math.isfinite(value):
        detail = f"{value} is not a JSON number"
        raise InvalidRequestError(detail, [Problem(pointer, detail)])
    if not isinstance(value, dict | list):
        return value
    if depth >= MAX_DEPTH:
        detail = f"nested deeper than {MAX_DEPTH} levels"
        raise InvalidRequestError(detail, [Problem(pointer, detail)])
    if isinstance(value, list):
        return [_clean(item, depth + 1, f"{pointer}/{index}") for index, item in enumerate(value)]
    keys = {key: fix_surrogates(str(key)) for key in value}
    return {
        keys[key]: _clean(item, depth + 1, f"{pointer}/{escape_key(keys[key])}")
        for key, item in value.items()
    }


def encode_json(value: object) -> bytes:
    """Return compact JSON in UTF-8, in which text takes no more bytes than its sender sent."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode(errors="backslashreplace")  # lone surrogates, as JSON escapes them


def derive_id(payload: bytes) -> str:
    """Return the id of a request that has none, which every worker derives from its bytes."""
    return f"msg_{hashlib.sha256(payload).hexdigest()[:32]}"


def canonical_json(value: object) -> bytes:
    """Return JSON that is the same for equal values; values of other types are written as text."""
    return _CANONICAL.encode(value).encode()


def canonical_json_fast(value: object) -> bytes:
    """Return the `canonical_json` of a value from `read_json_fast`, in a tenth of the time.

    orjson writes the same but for characters beyond ASCII, the delete character, and numbers near
    zero.
    """
    written = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    # numbers below 0.0001 begin so, or have a negative exponent
    is_odd = b"\x7f" in written or b"0.0000" in written or b"e-" in written
    return written if written.isascii() and not is_odd else canonical_json(value)


def fingerprint(
    request: Mapping[str, object], write: Callable[[object], bytes] = canonical_json
) -> str:
    """Return the SHA-256 of a request's content; it distinguishes two requests with one id."""
    wanted = {key: request.get(key) for key in FINGERPRINTED}
    return hashlib.sha256(write(wanted)).hexdigest()


def digest(*parts: str) -> str:
    """Return 32 hex digits that identify these strings in this order."""
    return digest_json(map(canonical_json, parts))


def digest_json(parts: Iterable[bytes]) -> str:
    """Return the `digest` of strings that are `canonical_json` already."""
    return hashlib.sha256(b"[%b]" % b",".join(parts)).hexdigest()[:32]
