"""Strangers' bytes as plain JSON values, or a clear refusal."""

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import orjson

from formatters.printed import truncate
from formatters.rows import fix_surrogates
from service.errors import InvalidRequestError, Problem

#: Bytes of the largest message that is read.
MAX_BYTES: Final = 4 * 1024 * 1024
#: Characters of the longest owner key and the longest id.
MAX_OWNER_KEY: Final = 128
MAX_ID: Final = 256
#: Characters of a stranger's key that a place in an error or a warning has at most.
POINTER_CHARS: Final = 128
#: Levels of the deepest nesting that is read.
MAX_DEPTH: Final = 64

JsonObject = dict[str, object]

#: Turns every digit into a zero, so that one search finds long numbers.
_ZEROS: Final = bytes.maketrans(b"123456789", b"000000000")
#: What a number has in it that may not fit into 64 bits.
_LONG: Final = b"0" * 19

#: What stands wherever orjson may write something in another way than the standard library: the
#: delete character, numbers below 0.0001 and other negative exponents.
_ODD: Final = (b"\x7f", b"0.0000", b"e-")

#: Made once, since each request needs it several times.
_CANONICAL: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=str)


def read_json(payload: bytes, *, max_bytes: int = MAX_BYTES) -> JsonObject:
    """Read one JSON object in UTF-8; what is in it still has to be `cleaned`.

    Raises:
        InvalidRequestError: It is too large, no UTF-8, no JSON or no object.
    """
    if len(payload) > max_bytes:
        raise InvalidRequestError(f"the message has {len(payload)} bytes, {max_bytes} are allowed")
    try:
        value = json.loads(payload.decode())
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"not UTF-8 at byte {error.start}: {error.reason}") from error
    except RecursionError as error:
        raise InvalidRequestError(f"nested deeper than {MAX_DEPTH} levels") from error
    except ValueError as error:
        raise InvalidRequestError(f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidRequestError(f"a JSON object is needed, not {_kind(value)}")
    return value


def read_plain(payload: bytes, *, max_bytes: int = MAX_BYTES) -> JsonObject | None:
    """Read an object that needs no cleaning, in a quarter of the time; None where that isn't sure.

    It is what `read_json` and `cleaned` make of it. orjson refuses lone surrogates, numbers that
    are not finite and whatever is no JSON, but takes long integers for floats; few brackets can't
    be nested too deeply.
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


def cleaned(value: object) -> object:
    """Return a JSON value with lone surrogates replaced, in keys and strings.

    Raises:
        InvalidRequestError: It is nested deeper than `MAX_DEPTH`, or holds a number that is not
            finite.
    """
    return value if _clean(value, MAX_DEPTH) else _cleaned(value)


def _clean(value: object, levels: int) -> bool:
    """Tell whether there is nothing to do: most values are clean, and looking is cheap."""
    if isinstance(value, str):
        return value.isascii() or fix_surrogates(value) == value
    if isinstance(value, dict):
        return levels > 0 and _clean_items(value, 0) and _clean_items(value.values(), levels - 1)
    if isinstance(value, list):
        return levels > 0 and _clean_items(value, levels - 1)
    return not isinstance(value, float) or math.isfinite(value)


def _clean_items(items: Iterable[object], levels: int) -> bool:
    for item in items:  # noqa: SIM110 - `all` takes three times as long
        if not _clean(item, levels):
            return False
    return True


def _cleaned(value: object, depth: int = 0, pointer: str = "") -> object:
    if isinstance(value, str):
        return fix_surrogates(value)
    if isinstance(value, float) and not math.isfinite(value):
        detail = f"{value} is no JSON number"
        raise InvalidRequestError(detail, [Problem(pointer, detail)])
    if not isinstance(value, dict | list):
        return value
    if depth >= MAX_DEPTH:
        detail = f"nested deeper than {MAX_DEPTH} levels"
        raise InvalidRequestError(detail, [Problem(pointer, detail)])
    if isinstance(value, list):
        return [_cleaned(item, depth + 1, f"{pointer}/{place}") for place, item in enumerate(value)]
    keys = {key: fix_surrogates(str(key)) for key in value}
    return {
        keys[key]: _cleaned(item, depth + 1, f"{pointer}/{escaped(keys[key])}")
        for key, item in value.items()
    }


def payload_id(payload: bytes) -> str:
    """Name a request that has no id: every worker that hears the same bytes finds this one."""
    return f"msg_{hashlib.sha256(payload).hexdigest()[:32]}"


def canonical(value: object) -> bytes:
    """Return JSON that two requests share only if they say the same; other types as text."""
    return _CANONICAL.encode(value).encode()


def canonical_plain(value: object) -> bytes:
    """Return what `canonical` does of values that `read_plain` gave, in a tenth of the time.

    orjson sorts keys as well, and writes all but three things alike: what is no ASCII, the
    delete character, and numbers next to zero.
    """
    written = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    if written.isascii() and not any(odd in written for odd in _ODD):
        return written
    return canonical(value)


def fingerprint(request: Mapping[str, object], write: Callable[[object], bytes] = canonical) -> str:
    """Return what tells two requests with one id apart: SHA-256 of what they ask for."""
    asked = {key: request.get(key) for key in ("content", "run_id", "conversation_id")}
    return hashlib.sha256(write(asked)).hexdigest()


def digest(*parts: str) -> str:
    """Return 32 hex digits that stand for these strings in this order."""
    return written_digest(map(canonical, parts))


def written_digest(parts: Iterable[bytes]) -> str:
    """Return the `digest` of strings that are `canonical` JSON already."""
    return hashlib.sha256(b"[%b]" % b",".join(parts)).hexdigest()[:32]


def escaped(key: str) -> str:
    """Escape a key for a JSON pointer (RFC 6901, section 3); a long one is cut, with "..."."""
    return truncate(key, POINTER_CHARS).replace("~", "~0").replace("/", "~1")


def _kind(value: object) -> str:
    names: dict[type, str] = {
        list: "an array",
        str: "a string",
        bool: "a boolean",
        type(None): "null",
    }
    return names.get(type(value), "a number")
