"""``ctxb tail``: builds and events as they come over the bus, in a line each, without any text."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Final

import typer

from formatters.rows import as_mapping, fix_surrogates
from service.cli.exits import run_until_stopped
from service.cli.options import ShowOwners, owner_option
from service.cli.output import hash_owner, printable
from service.cli.start import start
from service.config.settings import Settings
from service.connect import open_survey, require_shared_bus
from service.errors import InvalidRequestError
from service.ports.status import ChannelMessage
from service.wire.payload import MAX_ID, read_json
from service.wire.protocol import Topics
from service.wire.response import COUNTS

#: Characters that would break a line, or change the direction in which it is read.
_INVISIBLE: Final = re.compile("[\t\n\u2028\u2029\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069]")

#: By topic: the name of an event, and its numbers that are shown.
_EVENTS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    Topics.CONTEXT_PRUNED: ("pruned", ("removed", "token_reduction")),
    Topics.CONTEXT_SUMMARIZED: ("summarized", ("summarized", "kept")),
    Topics.CONTEXT_COMPACTED: ("compacted", ("original_tokens", "new_tokens")),
}

OnlyOwner = Annotated[str | None, owner_option("Only this owner's.")]
Failed = Annotated[bool, typer.Option("--failed", help="Only requests answered with an error.")]
Count = Annotated[int | None, typer.Option("--count", "-n", min=1, help="End after N lines.")]
JsonLines = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class TailLine:
    """The part of a channel's message that is shown."""

    at: datetime
    #: ``built``, ``recalled``, ``refused``, the name of an event, or ``unreadable``.
    kind: str
    owner_key: str | None = None
    run_id: str | None = None
    request_id: str | None = None
    build_id: str | None = None
    #: The code of an error.
    error: str | None = None
    numbers: Mapping[str, int]


def tail(
    ctx: typer.Context,
    *,
    owner: OnlyOwner = None,
    failed: Failed = False,
    count: Count = None,
    owners: ShowOwners = False,
    as_json: JsonLines = False,
) -> None:
    """Print builds and events as they happen, until Ctrl-C.

    ctxb tail
    ctxb tail --owner ana
    ctxb tail --failed --json | jq .error

    A line describes a build, a recall, a summary, or rows that fell out of a
    context. Lines contain no text of messages. Answers that go to channels are
    printed; answers that go to lists or streams are not. For earlier builds,
    open a worker's inspector (docs/inspector.md).
    """
    settings = require_shared_bus(start(ctx.obj))
    wanted = partial(is_wanted, owner_key=owner, failed=failed)
    render = partial(as_json_line if as_json else as_line, owners=owners)
    run_until_stopped(follow(settings, wanted, render, count), endless=True)


def is_wanted(line: TailLine, *, owner_key: str | None = None, failed: bool = False) -> bool:
    """Return whether a line is about the owner, if given, and a failure if requested."""
    if failed and line.kind != "refused":
        return False
    return owner_key is None or line.owner_key == owner_key


async def follow(
    settings: Settings,
    wanted: Callable[[TailLine], bool],
    render: Callable[[TailLine], str],
    count: int | None,
) -> None:
    """Print the wanted lines, at most ``count``; raises `BusError`."""
    shown = 0
    async with open_survey(settings) as survey, survey.monitor() as heard:
        typer.echo("following; Ctrl-C ends it", err=True)
        async for received in heard:
            line = read_line(received, datetime.now(UTC))
            if not wanted(line):
                continue
            typer.echo(render(line))
            shown += 1
            if shown == count:
                return


def read_line(received: ChannelMessage, at: datetime) -> TailLine:
    """Return what is shown of a message, which may be anything: any client can publish."""
    try:
        message = read_json(received.payload, max_bytes=len(received.payload))
    except InvalidRequestError:
        return TailLine(at=at, kind="unreadable", numbers={"bytes": len(received.payload)})
    content, metadata = as_mapping(message.get("content")), as_mapping(message.get("metadata"))
    kind, names = _EVENTS.get(received.topic, ("built", COUNTS))
    numbers = _integers(content, names)
    error = None
    if kind == "built":
        numbers = {
            name: rows for name, rows in numbers.items() if rows or name in ("kept", "dropped")
        }
        numbers |= _integers(as_mapping(content.get("usage")), ("total", "available"))
        if "left_out" in content:
            kind, messages = "recalled", content.get("messages")
            shown = {"shown": len(messages)} if isinstance(messages, list) else {}
            numbers = shown | _integers(content, ("left_out",)) | numbers
        if content.get("status") == "error":
            kind, numbers, error = "refused", {}, as_mapping(content.get("error")).get("code")
    return TailLine(
        at=at,
        kind=kind,
        owner_key=_text(message.get("owner_key")),
        run_id=_text(message.get("run_id")),
        request_id=_text(metadata.get("request_id")),
        build_id=_text(content.get("build_id") or metadata.get("build_id")),
        error=_text(error),
        numbers=numbers,
    )


def as_json_line(line: TailLine, *, owners: bool) -> str:
    """Return a line of ASCII JSON, safe for terminals."""
    fields = {**asdict(line), "at": line.at.isoformat()}
    if not owners:
        fields["owner"] = hash_owner(fields.pop("owner_key"))
    return json.dumps(fields)


def as_line(line: TailLine, *, owners: bool) -> str:
    """Return a line of text, safe for terminals."""
    owner = line.owner_key if owners else hash_owner(line.owner_key)
    parts = [
        f"{line.at:%H:%M:%S}",
        f"{line.kind:<10}",
        owner or "-",
        *(f"{name.replace('_', ' ')} {value:,}" for name, value in line.numbers.items()),
        *filter(None, (line.error, line.build_id, line.request_id and f"of {line.request_id}")),
    ]
    return "  ".join(_INVISIBLE.sub("\N{REPLACEMENT CHARACTER}", printable(part)) for part in parts)


def _text(value: object) -> str | None:
    return fix_surrogates(value[:MAX_ID]) if isinstance(value, str) else None


def _integers(fields: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, int]:
    # a bool is an int too, and no number here
    return {name: fields[name] for name in names if type(fields.get(name)) is int}
