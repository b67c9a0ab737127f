"""The names of functions, which an offered tool and its calls share, and of other references."""

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator
from itertools import count
from typing import Final, TypeGuard

#: Most characters of a made name, which all providers accept.
MAX_CHARS: Final = 64
#: A name of a function, or an id of a call, that OpenAI and Anthropic accept. Anthropic's newest
#: models accept 128 characters.
NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


def fits(name: object, form: re.Pattern[str]) -> TypeGuard[str]:
    """Return whether a name can be sent unchanged."""
    return isinstance(name, str) and form.fullmatch(name) is not None


def clean_name(name: str, form: re.Pattern[str] = NAME) -> str:
    """Return the name by which a function is offered and called; it has no structure.

    A name that isn't of the form is replaced, as by `fit_names`.
    """
    if fits(name, form):
        return name
    return next(_candidates(name)) if name else "unknown"


def fit_names(
    names: Iterable[str], form: re.Pattern[str], taken: Collection[str] = ()
) -> dict[str, str]:
    """Map each name to a unique name of the form that isn't ``taken``.

    A name that fits stays unchanged. Any other is cut to valid characters and gets a hash of
    itself, so that it is the same in the next request, whatever other names there are.
    """
    distinct = list(dict.fromkeys(names))
    fitted = {name: name for name in distinct if fits(name, form) and name not in taken}
    used = {*taken, *fitted}
    for name in distinct:
        if name not in fitted:
            fitted[name] = next(made for made in _candidates(name) if made not in used)
            used.add(fitted[name])
    return fitted


_INVALID: Final = re.compile(r"[^A-Za-z0-9_-]")
_BAD_START: Final = re.compile(r"^(?![A-Za-z_])")
#: Hexadecimal digits of the hash that makes a name unique.
_DIGITS: Final = 8


def _candidates(name: str) -> Iterator[str]:
    stem = _BAD_START.sub("_", _INVALID.sub("_", name))[: MAX_CHARS - _DIGITS - 1]

    def make(attempt: int) -> str:
        text = f"{attempt}:{name}" if attempt else name
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        return f"{stem}_{digest[:_DIGITS]}"

    return map(make, count())
