"""Show dead letters, to people and to programs."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final

import typer

from formatters.rows import fix_surrogates
from formatters.times import format_stamp
from service.cli.exits import Exit, tell
from service.cli.tables import console, printable, table
from service.errors import InvalidRequestError
from service.observe.logs import owner_hash
from service.ports.bus import DeadLetter
from service.wire.payload import MAX_ID, payload_id, read_json
from service.wire.protocol import Topics

#: Characters of a reason in a table; the reasons that the service gives are shorter.
MAX_REASON: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What became of those that were chosen."""

    done: int
    #: Those that were gone, or could not be put back.
    others: int
    #: Their ids, where they were chosen by them.
    missed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """An entry without its payload, but for what the payload says of itself."""

    id: str
    at: datetime | None
    source: str
    request_id: str | None
    owner_key: str | None
    reason: str
    attempts: int
    #: Of the payload.
    bytes: int


def listed(letter: DeadLetter) -> Listed:
    """Return what a list says of an entry."""
    request_id, owner_key = _names(letter)
    return Listed(
        id=letter.id,
        at=letter.at,
        source=letter.source,
        request_id=request_id,
        owner_key=owner_key,
        reason=letter.reason,
        attempts=letter.attempts,
        bytes=len(letter.payload),
    )


def print_letters(letters: Sequence[Listed], *, owners: bool) -> None:
    """Print a table, in the order given; each owner as a hash, unless ``owners``."""
    numbers = ["Attempts", "Bytes"]
    shown = table("Id, time (UTC)", "Request, owner", "Reason", *numbers, numbers=numbers)
    shown.columns[0].no_wrap = True
    for letter in letters:
        owner = letter.owner_key if owners else _hash(letter.owner_key)
        cells = (
            f"{letter.id}\n{format_stamp(letter.at).strip('[]')}",
            f"{letter.request_id or '-'}\n{owner or '-'}",
            letter.reason[:MAX_REASON],
            f"{letter.attempts}",
            f"{letter.bytes:,}",
        )
        shown.add_row(*map(printable, cells))
    console().print(shown)


def print_letter(letter: DeadLetter, max_bytes: int) -> None:
    """Print an entry's fields, and at most so many bytes of its payload."""
    fields = shown_dict(letter, max_bytes)
    payload, left = fields.pop("payload"), len(letter.payload) - max_bytes
    for name, value in fields.items():
        typer.echo(f"{name}: {printable('-' if value is None else value)}")
    typer.echo(f"\n{printable(payload)}")
    if left > 0:
        typer.echo(f"… {left:,} more bytes")


def listed_dict(letter: Listed, *, owners: bool) -> dict[str, Any]:
    """Return a listed entry as JSON holds it."""
    fields = {**asdict(letter), "at": _iso(letter.at)}
    if not owners:
        fields["owner"] = _hash(fields.pop("owner_key"))
    return fields


def shown_dict(letter: DeadLetter, max_bytes: int) -> dict[str, Any]:
    """Return an entry as JSON holds it, its payload as text and cut to so many bytes."""
    return {
        "id": letter.id,
        "at": _iso(letter.at),
        "source": letter.source,
        "entry": letter.entry,
        "reason": letter.reason,
        "attempts": letter.attempts,
        "bytes": len(letter.payload),
        "payload": letter.payload[:max_bytes].decode(errors="replace"),
    }


def _names(letter: DeadLetter) -> tuple[str | None, str | None]:
    """Return what a payload names itself and its owner, as far as it can be read."""
    try:
        raw = read_json(letter.payload)
    except InvalidRequestError:
        return None, None
    given = (raw.get("id"), raw.get("owner_key"))
    name, owner = (
        fix_surrogates(each[:MAX_ID]) if isinstance(each, str) else None for each in given
    )
    if name is None and letter.source == Topics.CONTEXT_BUILD_REQUEST:
        name = payload_id(letter.payload)
    return name, owner


def _hash(owner_key: str | None) -> str | None:
    return None if owner_key is None else owner_hash(owner_key)


def _iso(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None


def print_settled(settled: Settled, done: str, otherwise: str) -> None:
    """Print what was done; raises `typer.Exit` where any that was named could not be settled."""
    typer.echo(f"{settled.done} entries {done}, {settled.others} were {otherwise}")
    if settled.missed:
        tell(f"not {done}", ", ".join(settled.missed))
        raise typer.Exit(Exit.FAILED)
