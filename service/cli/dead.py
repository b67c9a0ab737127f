"""``ctxb dead``: look at requests that could not be answered, and send them again or drop them."""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Annotated, Any, Final, TypeVar

import typer

from formatters.rows import fix_surrogates
from formatters.times import format_stamp
from service.aio import batches
from service.cli.exits import Exit, print_error
from service.cli.options import Json, ShowOwners, Yes
from service.cli.output import console, print_json, printable, table
from service.cli.start import require_shared_bus, start
from service.config.settings import Settings
from service.connect import open_bus
from service.errors import InvalidRequestError
from service.observe.logs import owner_hash
from service.ports.bus import DeadLetter, DeadLetters
from service.wire.payload import MAX_ID, derive_id, read_json
from service.wire.protocol import Topics

T = TypeVar("T")

#: Both numbers of an entry's id are below this.
ID_LIMIT: Final = 2**64

#: Entries that are retried or dropped in one round trip.
BATCH: Final = 100

#: Characters of a reason in a table; the service's own reasons are shorter.
MAX_REASON: Final = 300

dead = typer.Typer(no_args_is_help=True, help="List, show, retry and drop dead letters.")


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterSummary:
    """An entry without its payload, except for what names the request."""

    id: str
    at: datetime | None
    source: str
    request_id: str | None
    owner_key: str | None
    reason: str
    attempts: int
    #: The size of the payload.
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which entries to retry or drop."""

    #: Empty for all entries.
    ids: tuple[str, ...] = ()
    #: Of all entries, those whose reason contains this text, ignoring case.
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """How many entries were retried or dropped."""

    done: int
    #: Entries that were gone, or could not be put back.
    failed: int
    #: The ids of the failed entries, if entries were selected by id.
    failed_ids: tuple[str, ...] = ()


# --- commands --------------------------------------------------------------------------------


def check_id(letter_id: str) -> str:
    """Return an id that an entry can have; raises `typer.BadParameter` for other texts."""
    numbers = re.fullmatch(r"([0-9]{1,20})-([0-9]{1,20})", letter_id)
    if not numbers or any(int(number) >= ID_LIMIT for number in numbers.groups()):
        raise typer.BadParameter(
            f"{letter_id!r} is not an id; ctxb dead ls shows ids, such as 1765353600000-0"
        )
    return letter_id


def check_ids(ids: list[str] | None) -> list[str] | None:
    """Return ids that entries can have; raises `typer.BadParameter` for other texts."""
    for letter_id in ids or ():
        check_id(letter_id)
    return ids


LetterId = Annotated[str, typer.Argument(metavar="ID", callback=check_id, help="An entry's id.")]
LetterIds = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID", callback=check_ids, help="Ids of entries."),
]
All = Annotated[bool, typer.Option("--all", help="All entries on the stream now.")]
Reason = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Only entries whose reason contains this text."),
]
Limit = Annotated[int, typer.Option(min=1, help="How many entries, the newest.")]
MaxBytes = Annotated[int, typer.Option(min=1, help="Bytes of the payload to show.")]


@dead.command()
def ls(
    ctx: typer.Context,
    *,
    limit: Limit = 20,
    reason: Reason = None,
    owners: ShowOwners = False,
    as_json: Json = False,
) -> None:
    """List entries, the newest last.

    ctxb dead ls
    ctxb dead ls --reason "not JSON" --limit 100 --json

    An owner is shown as the hash that logs show.
    """
    settings = require_shared_bus(start(ctx.obj))
    summaries = _run(settings, lambda letters: newest(letters, limit, reason))
    if as_json:
        print_json([summary_dict(summary, owners=owners) for summary in summaries])
    else:
        print_summaries(summaries, owners=owners)


@dead.command()
def show(
    ctx: typer.Context, letter_id: LetterId, max_bytes: MaxBytes = 4000, as_json: Json = False
) -> None:
    """Print an entry with its payload, which contains people's words.

    ctxb dead show 1765353600000-0
    """
    settings = require_shared_bus(start(ctx.obj))
    letter = _run(settings, lambda letters: letters.find(letter_id))
    if letter is None:
        print_error("not found", f"the dead-letter stream has no entry {letter_id}")
        raise typer.Exit(Exit.FAILED)
    if as_json:
        print_json(letter_dict(letter, max_bytes))
    else:
        print_letter(letter, max_bytes)


@dead.command()
def retry(
    ctx: typer.Context, ids: LetterIds = None, every: All = False, reason: Reason = None
) -> None:
    """Put entries back on the streams that they came from, as new ones.

    ctxb dead retry 1765353600000-0
    ctxb dead retry --all --reason "without an answer"

    The exit code is 1 if an entry given by its id can't be put back; the others are.
    A request whose answer is still stored (bus.result_ttl_seconds) gets that
    answer again; to have it built again, wait until the answer has expired.
    """
    selection = _selection(ids, every, reason)
    settings = require_shared_bus(start(ctx.obj))
    settled = _run(settings, lambda letters: settle(letters, selection, letters.retry))
    print_settled(settled, "put back", "gone, or from a stream that isn't ours")


@dead.command()
def drop(
    ctx: typer.Context,
    *,
    ids: LetterIds = None,
    every: All = False,
    reason: Reason = None,
    yes: Yes = False,
) -> None:
    """Delete entries for good.

    ctxb dead drop 1765353600000-0
    ctxb dead drop --all --reason "not JSON" --yes

    The exit code is 1 if an entry given by its id is gone; the others are dropped.
    """
    selection = _selection(ids, every, reason)
    settings = require_shared_bus(start(ctx.obj))
    if not yes:
        which = f"{len(selection.ids)} entries" if selection.ids else "all entries that match"
        typer.confirm(f"Delete {which} for good?", abort=True, err=True)
    settled = _run(settings, lambda letters: settle(letters, selection, letters.drop))
    print_settled(settled, "dropped", "gone")


def _run(settings: Settings, action: Callable[[DeadLetters], Awaitable[T]]) -> T:
    """Run an action on the dead letters of the configured bus."""

    async def run() -> T:
        async with open_bus(settings) as connected:
            return await action(connected.bus.dead_letters)

    return asyncio.run(run())


def _selection(ids: Sequence[str] | None, every: bool, reason: str | None) -> Selection:
    """Return what the options select; raises `typer.BadParameter` if they contradict each other."""
    if bool(ids) == every:
        raise typer.BadParameter("give ids, or --all")
    if ids and reason is not None:
        raise typer.BadParameter("--reason goes with --all")
    return Selection(ids=tuple(dict.fromkeys(ids or ())), reason=reason)


# --- reading and settling --------------------------------------------------------------------


async def newest(letters: DeadLetters, limit: int, reason: str | None) -> list[LetterSummary]:
    """Return the newest entries, the newest last.

    Payloads are dropped as they are read, so only a few are in memory at a time.
    """
    summaries: list[LetterSummary] = []
    async with aclosing(_matching(letters.scan(newest_first=True), reason)) as matching:
        async for letter in matching:
            summaries.append(summarize(letter))
            if len(summaries) == limit:
                break
    return summaries[::-1]


def summarize(letter: DeadLetter) -> LetterSummary:
    """Return an entry's line in a list."""
    request_id, owner_key = _request_names(letter)
    return LetterSummary(
        id=letter.id,
        at=letter.at,
        source=letter.source,
        request_id=request_id,
        owner_key=owner_key,
        reason=letter.reason,
        attempts=letter.attempts,
        bytes=len(letter.payload),
    )


def _request_names(letter: DeadLetter) -> tuple[str | None, str | None]:
    """Return the request's id and owner key, each None if the payload can't be read that far."""
    try:
        request = read_json(letter.payload)
    except InvalidRequestError:
        return None, None
    request_id, owner_key = (
        fix_surrogates(value[:MAX_ID]) if isinstance(value, str) else None
        for value in (request.get("id"), request.get("owner_key"))
    )
    if request_id is None and letter.source == Topics.CONTEXT_BUILD_REQUEST:
        request_id = derive_id(letter.payload)
    return request_id, owner_key


async def settle(
    letters: DeadLetters,
    selection: Selection,
    action: Callable[[Sequence[str]], Awaitable[int]],
) -> Settled:
    """Retry or drop the selected entries; one that fails does not stop the others.

    ``action`` takes ids, and returns how many of their entries it has settled.
    """
    if selection.ids:
        # one at a time, to know which ones failed
        failed = tuple([letter_id for letter_id in selection.ids if not await action([letter_id])])
        done = len(selection.ids) - len(failed)
        return Settled(done=done, failed=len(failed), failed_ids=failed)
    requested = done = 0
    async with (
        aclosing(_matching_ids(letters, selection.reason)) as matching,
        aclosing(batches(matching, BATCH)) as batched,
    ):
        async for ids in batched:
            requested += len(ids)
            done += await action(ids)
    return Settled(done=done, failed=requested - done)


async def _matching_ids(letters: DeadLetters, reason: str | None) -> AsyncGenerator[str, None]:
    async with aclosing(_matching(letters.scan(), reason)) as matching:
        async for letter in matching:
            yield letter.id


async def _matching(
    letters: AsyncGenerator[DeadLetter, None], reason: str | None
) -> AsyncGenerator[DeadLetter, None]:
    async with aclosing(letters):
        async for letter in letters:
            if reason is None or reason.casefold() in letter.reason.casefold():
                yield letter


# --- output ----------------------------------------------------------------------------------


def print_summaries(summaries: Sequence[LetterSummary], *, owners: bool) -> None:
    """Print a table in the order given, with the owners' keys or their hashes."""
    numbers = ["Attempts", "Bytes"]
    rows = table("Id, time (UTC)", "Request, owner", "Reason", *numbers, numbers=numbers)
    rows.columns[0].no_wrap = True
    for letter in summaries:
        owner = letter.owner_key if owners else _hash(letter.owner_key)
        cells = (
            f"{letter.id}\n{format_stamp(letter.at).strip('[]')}",
            f"{letter.request_id or '-'}\n{owner or '-'}",
            letter.reason[:MAX_REASON],
            f"{letter.attempts}",
            f"{letter.bytes:,}",
        )
        rows.add_row(*map(printable, cells))
    console().print(rows)


def summary_dict(summary: LetterSummary, *, owners: bool) -> dict[str, Any]:
    """Return a line of the list as JSON."""
    fields = {**asdict(summary), "at": _iso(summary.at)}
    if not owners:
        fields["owner"] = _hash(fields.pop("owner_key"))
    return fields


def print_letter(letter: DeadLetter, max_bytes: int) -> None:
    """Print an entry's fields, and at most ``max_bytes`` bytes of its payload."""
    fields = letter_dict(letter, max_bytes)
    payload = fields.pop("payload")
    for name, value in fields.items():
        typer.echo(f"{name}: {printable('-' if value is None else value)}")
    typer.echo(f"\n{printable(payload)}")
    if len(letter.payload) > max_bytes:
        typer.echo(f"… {len(letter.payload) - max_bytes:,} more bytes")


def letter_dict(letter: DeadLetter, max_bytes: int) -> dict[str, Any]:
    """Return an entry as JSON, its payload as text cut to ``max_bytes`` bytes."""
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


def print_settled(settled: Settled, done: str, failed: str) -> None:
    """Print how many entries are ``done``; raises `typer.Exit` if one given by its id failed."""
    typer.echo(f"{settled.done} entries {done}, {settled.failed} were {failed}")
    if settled.failed_ids:
        print_error(f"not {done}", ", ".join(settled.failed_ids))
        raise typer.Exit(Exit.FAILED)


def _hash(owner_key: str | None) -> str | None:
    return None if owner_key is None else owner_hash(owner_key)


def _iso(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None
