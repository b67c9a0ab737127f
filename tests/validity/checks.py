"""What the validators of several forms ask."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

#: A name or an id of letters, digits, ``_`` and ``-``.
WORD: Final = re.compile(r"[A-Za-z0-9_-]+")


def mapping(value: object) -> Mapping[str, object]:
    """Return an object, or an empty one where there is none."""
    return value if isinstance(value, Mapping) else {}


def listed(value: object) -> Sequence[object]:
    """Return a list, or an empty one where there is none."""
    return value if isinstance(value, list | tuple) else ()


def is_blank(value: object) -> bool:
    """Return whether a value is no text, or one of blanks alone."""
    return not isinstance(value, str) or not value.strip()


def is_name(value: object, pattern: re.Pattern[str], longest: int) -> bool:
    """Return whether a value is a text of a pattern, of at most ``longest`` characters."""
    return isinstance(value, str) and len(value) <= longest and pattern.fullmatch(value) is not None


def is_object_json(value: object) -> bool:
    """Return whether a value is the JSON text of an object."""
    if not isinstance(value, str):
        return False
    try:
        return isinstance(json.loads(value, parse_constant=_refuse), dict)
    except (ValueError, RecursionError):
        return False


def unknown_keys(body: Mapping[str, object], known: Iterable[str]) -> Iterator[str]:
    """Report keys of a body that are not of the form."""
    yield from (f"{key}: is no field of this form" for key in body if key not in set(known))


def bad_edits(edits: object, body: Mapping[str, object]) -> Iterator[str]:
    """Report what is wrong with the edits of a ``context_management``, where the body has one."""
    if "context_management" not in body:
        return
    if not listed(edits):
        yield "context_management: asks for nothing"
    for place, edit in enumerate(listed(edits)):
        if is_blank(mapping(edit).get("type")):
            yield f"context_management: edit {place} has no type"


def bad_schema(schema: object, at: str) -> Iterator[str]:
    """Report what is no JSON schema of an object."""
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        yield f"{at}: is no JSON schema of an object"


def repeated(named: Iterable[tuple[str, object]], what: str) -> Iterator[str]:
    """Report a value that was at an earlier place; takes pairs of a place and a value."""
    seen: dict[object, str] = {}
    for at, value in named:
        if value in seen:
            yield f"{at}: the {what} {value!r} was used before, at {seen[value]}"
        seen.setdefault(value, at)


def changed_parts(
    expected: Iterable[Sequence[object]], sequences: Sequence[Sequence[object]]
) -> Iterator[str]:
    """Report parts whose order is in none of the sequences.

    ``expected`` has the parts of each message, in the order of the messages.
    """
    written = [[_written(item) for item in sequence] for sequence in sequences]
    place, start = 0, 0
    for number, parts in enumerate(expected):
        wanted = [_written(part) for part in parts]
        found = _find(wanted, written, place, start)
        if found is None:
            yield f"provider_parts {number}: are not in the request as they came"
        else:
            place, start = found


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is no JSON")


def _find(
    wanted: list[str], written: list[list[str]], place: int, start: int
) -> tuple[int, int] | None:
    """Return the sequence, and the place behind the run in it, from a place on."""
    for index in range(place, len(written)):
        sequence = written[index]
        for at in range(start if index == place else 0, len(sequence) - len(wanted) + 1):
            if sequence[at : at + len(wanted)] == wanted:
                return index, at + len(wanted)
    return None


def _written(item: object) -> str:
    return json.dumps(item, ensure_ascii=False)
