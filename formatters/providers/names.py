"""Names and ids in the form that a provider takes, each still telling one thing."""

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Final

_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]")
_BAD_START: Final = re.compile(r"^(?![A-Za-z_])")
#: Hex digits of the hash that keeps two names apart.
_DIGITS: Final = 8


@dataclass(frozen=True, slots=True)
class NameForm:
    """What a provider takes as a name or an id."""

    #: The whole of a name, its length aside.
    pattern: re.Pattern[str]
    #: Characters of the longest.
    longest: int

    def fits(self, name: object) -> bool:
        """Tell whether a name can be sent as it is."""
        if not isinstance(name, str) or not 0 < len(name) <= self.longest:
            return False
        return self.pattern.fullmatch(name) is not None


def fitted(names: Iterable[str], form: NameForm, taken: Collection[str] = ()) -> dict[str, str]:
    """Map each name to one of the form, and no two to the same, nor to one that is ``taken``.

    A name that fits stays as it is. Another keeps what it can and gets a hash of itself, so that it
    is called the same in the next request, whatever stands beside it.
    """
    wanted = list(dict.fromkeys(names))
    found = {name: name for name in wanted if form.fits(name) and name not in taken}
    used = {*taken, *found}
    for name in wanted:
        if name not in found:
            found[name] = next(made for made in _candidates(name, form) if made not in used)
            used.add(found[name])
    return found


def _candidates(name: str, form: NameForm) -> Iterator[str]:
    stem = _BAD_START.sub("_", _OTHER.sub("_", name))[: form.longest - _DIGITS - 1]
    texts = (f"{attempt}:{name}" if attempt else name for attempt in count())
    return (f"{stem}_{_hash(text)}" for text in texts)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
