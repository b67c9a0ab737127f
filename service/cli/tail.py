"""``ctxb tail``: builds and events as they come over the bus, in a line each, without any text."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Final

import typer

from formatters.rows import fix_surrogates
from service.cli.exits import run_until_stopped
from service.cli.options import ShowOwners, check_owner
from service.cli.output import printable
from service.cli.start import require_shared_bus, start
from service.config.settings import Settings
from service.connect import open_survey
from service.errors import InvalidRequestError
from service.observe.logs import owner_hash
from service.ports.status import ChannelMessage
from service.wire.payload import MAX_ID, read_json
from service.wire.protocol import Topics

#: Characters that would break a line, or change the direction in which it is read.
_INVISIBLE: Final = re.compile("[\t\n\u2028\u2029\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069]")

#: By topic: the name of an event, and its numbers that are shown.
_EVENTS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    Topics.CONTEXT_PRUNED: ("pruned", ("removed", "token_reduction")),
    Topics.CONTEXT_SUMMARIZED: ("summarized", ("summarized", "kept")),
    Topics.CONTEXT_COMPACTED: ("compacted", ("original_tokens", "new_tokens")),
}
#: The numbers of a build, and those of its usage, that are shown.
_BUILD_NUMBERS: Final = ("kept", "dropped")
_USAGE_NUMBERS: Final = ("total", "available")

OnlyOwner = Annotated[
    str | None,
    typer.Option("--owner", "-o", metavar="KEY", callback=check_owner, help="Only this owner's."),
]
Failed = Annotated[bool, typer.Option("--failed", help="Only requests answered with an error.")]
Count = Annotated[int | None, typer.Option("--count", "-n", min=1, help="End after N lines.")]
JsonLines = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What is shown of a message on a channel."""

    at: datetime
    #: ``built``, ``refused``, the name of an event, or ``unreadable``.
    kind: str
    owner_key: str | None = None
    run_id: str | None = None
    request_id: str | None = None
    build_id: str | None = None
    #: The code of an error.
    error: str | None = None
    numbers: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which messages are shown, and how many."""

    owner_key: str | None = None
    failed: bool = False
    count: int | None = None

    def matches(self, message: Message) -> bool:
        """Return whether a message is shown."""
        if self.failed and message.kind != "refused":
            return False
        return self.owner_key is None or message.owner_key == self.owner_key


def tail(
    ctx: typer.Context,
    *,
    owner: OnlyOwner = None,
    failed: Failed = False,
    count: Count = None,
    owners: ShowOwners = False,
    as_json: JsonLines = False,
) -> None:
    """Follow builds and events as they come over the bus, until Ctrl-C.

    ctxb tail
    ctxb tail --owner ana
    ctxb tail --failed --json | jq .error

    A line describes a build, or rows that were pruned or summarised, without
    any of the text. Answers are shown if they go to channels, those of
    bus.reply_prefixes included, but not if they go to lists or streams.
    Events always go to channels. For earlier builds, open a worker's
    inspector (docs/http.md).
    """
    settings = require_shared_bus(start(ctx.obj))
    wanted = Filter(owner_key=owner, failed=failed, count=count)
    render = partial(as_json_line if as_json else as_line, owners=owners)
    run_until_stopped(follow(settings, wanted, render), endless=True)


async def follow(settings: Settings, wanted: Filter, render: Callable[[Message], str]) -> None:
    """Print a line for each wanted message; raises `BusError`."""
    remaining = wanted.count
    async with open_survey(settings) as survey, survey.monitor() as heard:
        typer.echo("following; Ctrl-C ends it", err=True)
        async for received in heard:
            message = read_message(received, datetime.now(UTC))
            if not wanted.matches(message):
                continue
            typer.echo(render(message))
            if remaining is not None:
                remaining -= 1
                if remaining == 0:
                    return


def read_message(received: ChannelMessage, at: datetime) -> Message:
    """Return what is shown of a message, which may be anything: any client can publish."""
    try:
        message = read_json(received.payload, max_bytes=len(received.payload))
    except InvalidRequestError:
        return Message(at=at, kind="unreadable", numbers={"bytes": len(received.payload)})
    content, metadata = _mapping(message.get("content")), _mapping(message.get("metadata"))
    kind, names = _EVENTS.get(received.topic, ("built", _BUILD_NUMBERS))
    numbers = _integers(content, names)
    error = None
    if kind == "built":
        numbers |= _integers(_mapping(content.get("usage")), _USAGE_NUMBERS)
        if content.get("status") == "error":
            kind, numbers, error = "refused", {}, _mapping(content.get("error")).get("code")
    return Message(
        at=at,
        kind=kind,
        owner_key=_text(message.get("owner_key")),
        run_id=_text(message.get("run_id")),
        request_id=_text(metadata.get("request_id")),
        build_id=_text(content.get("build_id") or metadata.get("build_id")),
        error=_text(error),
        numbers=numbers,
    )


def as_json_line(message: Message, *, owners: bool) -> str:
    """Return a message as a line of ASCII JSON, safe for terminals."""
    fields = asdict(message)
    if not owners:
        fields["owner"] = _owner(fields.pop("owner_key"), owners=False)
    return json.dumps({**fields, "at": message.at.isoformat()})


def as_line(message: Message, *, owners: bool) -> str:
    """Return a message as a line of text, safe for terminals."""
    numbers = [f"{name.replace('_', ' ')} {value:,}" for name, value in message.numbers.items()]
    names = (message.error, message.build_id, message.request_id and f"of {message.request_id}")
    parts = [
        f"{message.at:%H:%M:%S}",
        f"{message.kind:<10}",
        _owner(message.owner_key, owners=owners) or "-",
        *numbers,
        *filter(None, names),
    ]
    return "  ".join(_INVISIBLE.sub("\N{REPLACEMENT CHARACTER}", printable(part)) for part in parts)


def _owner(owner_key: str | None, *, owners: bool) -> str | None:
    return owner_key if owners or owner_key is None else owner_hash(owner_key)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str | None:
    return fix_surrogates(value[:MAX_ID]) if isinstance(value, str) else None


def _integers(fields: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, int]:
    # a bool is an int too, and no number here
    return {name: fields[name] for name in names if type(fields.get(name)) is int}
