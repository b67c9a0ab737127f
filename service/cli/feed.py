"""What comes over the bus, told in a line each, without what was said."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final

import typer

from formatters.rows import fix_surrogates
from service.cli.tables import printable
from service.config.settings import Settings
from service.connect import open_survey
from service.errors import InvalidRequestError
from service.observe.logs import owner_hash
from service.ports.status import Heard
from service.wire.payload import MAX_ID, read_json
from service.wire.protocol import Topics

#: What would break a line, or have it read in another order than it is written.
_UNSEEN: Final = re.compile("[\t\n\u2028\u2029\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069]")

#: What events are called, and which of their numbers are told.
_EVENTS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    Topics.CONTEXT_PRUNED: ("pruned", ("removed", "token_reduction")),
    Topics.CONTEXT_SUMMARIZED: ("summarized", ("summarized", "kept")),
    Topics.CONTEXT_COMPACTED: ("compacted", ("original_tokens", "new_tokens")),
}
#: Numbers of a build that are told, and those of its usage.
_BUILD: Final = ("kept", "dropped")
_USAGE: Final = ("total", "available")


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a message of a channel comes to."""

    at: datetime
    #: ``built``, ``refused``, an event's name, or ``unreadable``.
    kind: str
    owner_key: str | None = None
    run_id: str | None = None
    request_id: str | None = None
    build_id: str | None = None
    #: The code of an error.
    error: str | None = None
    numbers: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which messages are told."""

    owner_key: str | None = None
    failed: bool = False
    #: So many at most.
    most: int | None = None

    def has(self, told: Told) -> bool:
        """Tell whether this is one of them."""
        if self.failed and told.kind != "refused":
            return False
        return self.owner_key is None or told.owner_key == self.owner_key


async def follow(settings: Settings, wanted: Wanted, shown: Callable[[Told], str]) -> None:
    """Print a line for each message that is wanted, as ``shown`` has it; raises `BusError`."""
    left = wanted.most
    async with open_survey(settings) as survey, survey.overhear() as heard:
        typer.echo("following; Ctrl-C ends it", err=True)
        async for each in heard:
            told = tell(each, datetime.now(UTC))
            if not wanted.has(told):
                continue
            typer.echo(shown(told))
            if left is not None:
                left -= 1
                if left == 0:
                    return


def tell(heard: Heard, at: datetime) -> Told:
    """Return what a message comes to, whoever sent it."""
    try:
        message = read_json(heard.payload, max_bytes=len(heard.payload))
    except InvalidRequestError:
        return Told(at=at, kind="unreadable", numbers={"bytes": len(heard.payload)})
    content, metadata = _mapping(message.get("content")), _mapping(message.get("metadata"))
    kind, names = _EVENTS.get(heard.topic, ("built", _BUILD))
    numbers = _numbers(content, names)
    error = None
    if kind == "built":
        numbers |= _numbers(_mapping(content.get("usage")), _USAGE)
        if content.get("status") == "error":
            kind, numbers, error = "refused", {}, _mapping(content.get("error")).get("code")
    return Told(
        at=at,
        kind=kind,
        owner_key=_text(message.get("owner_key")),
        run_id=_text(message.get("run_id")),
        request_id=_text(metadata.get("request_id")),
        build_id=_text(content.get("build_id") or metadata.get("build_id")),
        error=_text(error),
        numbers=numbers,
    )


def as_json(told: Told, *, owners: bool) -> str:
    """Return a line of ASCII, in which nothing could steer a terminal."""
    fields = asdict(told)
    if not owners:
        fields["owner"] = _owner(fields.pop("owner_key"), owners=False)
    return json.dumps({**fields, "at": told.at.isoformat()})


def as_line(told: Told, *, owners: bool) -> str:
    """Return a line in which nothing could steer a terminal."""
    numbers = [f"{name.replace('_', ' ')} {number:,}" for name, number in told.numbers.items()]
    named = (told.error, told.build_id, told.request_id and f"of {told.request_id}")
    parts = [
        f"{told.at:%H:%M:%S}",
        f"{told.kind:<10}",
        _owner(told.owner_key, owners=owners) or "-",
        *numbers,
        *(each for each in named if each),
    ]
    return "  ".join(_UNSEEN.sub("\N{REPLACEMENT CHARACTER}", printable(part)) for part in parts)


def _owner(owner_key: str | None, *, owners: bool) -> str | None:
    return owner_key if owners or owner_key is None else owner_hash(owner_key)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str | None:
    return fix_surrogates(value[:MAX_ID]) if isinstance(value, str) else None


def _numbers(fields: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, int]:
    return {name: fields[name] for name in names if type(fields.get(name)) is int}
