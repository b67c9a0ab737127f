"""``ctxb dead``: look at requests that could not be answered, and send them again or drop them."""

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final

import typer

from formatters.rows import fix_surrogates
from formatters.times import format_stamp
from service.aio import batches
from service.cli.exits import CommandError, Exit, print_error
from service.cli.options import Json, ShowOwners, Yes
from service.cli.output import console, counted, hash_owner, print_json, printable, table
from service.cli.start import run_on_bus, start
from service.connect import require_shared_bus
from service.errors import InvalidRequestError
from service.ports.bus import DeadLetter, DeadLetters
from service.wire.payload import MAX_ID, derive_id, read_json
from service.wire.protocol import Topics

#: Both numbers of an entry's id are below this.
ID_LIMIT: Final = 2**64

#: Entries that are retried or dropped in one round trip.
BATCH: Final = 100

#: Characters of a reason in a table; the service's own reasons are shorter.
MAX_REASON: Final = 300

dead = typer.Typer(no_args_is_help=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """How many entries were retried or dropped."""

    done: int = 0
    #: Entries that were gone, or could not be put back.
    failed: int = 0
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


LetterId = Annotated[str, typer.Argument(metavar="ID", parser=check_id, help="An entry's id.")]
LetterIds = Annotated[
    list[str] | None, typer.Argument(metavar="ID", parser=check_id, help="Ids of entries.")
]
All = Annotated[bool, typer.Option("--all", help="All entries that the stream has now.")]
Reason = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Only entries whose reason contains this text.")
]
Limit = Annotated[int, typer.Option(min=1, help="Number of entries, newest ones.")]
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
    """List dead letters, the newest last.

    ctxb dead ls
    ctxb dead ls --reason "not JSON" --limit 100 --json

    Owners are printed as the hashes that logs have.
    """
    rows = run_on_bus(
        start(ctx.obj), lambda bus: newest(bus.dead_letters, limit, reason, owners=owners)
    )
    if as_json:
        print_json(rows)
    else:
        print_rows(rows)


@dead.command()
def show(
    ctx: typer.Context, letter_id: LetterId, max_bytes: MaxBytes = 4000, as_json: Json = False
) -> None:
    """Print a dead letter with its payload, which contains texts of people.

    ctxb dead show 1765353600000-0
    """
    letter = run_on_bus(start(ctx.obj), lambda bus: bus.dead_letters.find(letter_id))
    if letter is None:
        raise CommandError(f"the dead-letter stream has no entry {letter_id}")
    if as_json:
        print_json(letter_fields(letter, max_bytes))
    else:
        print_letter(letter, max_bytes)


@dead.command()
def retry(
    ctx: typer.Context, ids: LetterIds = None, every: All = False, reason: Reason = None
) -> None:
    """Put dead letters back on their streams, as new entries.

    ctxb dead retry 1765353600000-0
    ctxb dead retry --all --reason "without an answer"

    If an entry that you name can't be put back, the exit code is 1, and the other
    entries are put back all the same. While the answer to a request is stored
    (bus.result_ttl_seconds), a retry gets this answer. To build the request
    again, wait until the answer has expired.
    """
    selected = check_selection(ids, every, reason)
    settled = run_on_bus(start(ctx.obj), lambda bus: settle(bus.dead_letters, selected, reason))
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
    """Delete dead letters.

    ctxb dead drop 1765353600000-0
    ctxb dead drop --all --reason "not JSON" --yes

    If an entry that you name doesn't exist, the exit code is 1, and the other
    entries are deleted all the same.
    """
    selected = check_selection(ids, every, reason)
    settings = require_shared_bus(start(ctx.obj))
    if not yes:
        which = counted(len(selected), "entry") if selected else "all entries that match"
        typer.confirm(f"Delete {which} for good?", abort=True, err=True)
    settled = run_on_bus(
        settings, lambda bus: settle(bus.dead_letters, selected, reason, drop=True)
    )
    print_settled(settled, "dropped", "gone")


def check_selection(ids: Sequence[str] | None, every: bool, reason: str | None) -> list[str]:
    """Return each id once; raises `typer.BadParameter` if the options contradict each other."""
    if bool(ids) == every:
        raise typer.BadParameter("give ids, or --all")
    if ids and reason is not None:
        raise typer.BadParameter("--reason goes with --all")
    return list(dict.fromkeys(ids or ()))


# --- reading and settling --------------------------------------------------------------------


async def newest(
    letters: DeadLetters, limit: int, reason: str | None, *, owners: bool
) -> list[dict[str, Any]]:
    """Return the `list_fields` of the newest entries, the newest last.

    Payloads are dropped as they are read, so only a few are in memory at a time.
    """
    rows: list[dict[str, Any]] = []
    async with aclosing(_matching(letters.scan(newest_first=True), reason)) as matching:
        async for letter in matching:
            rows.append(list_fields(letter, owners=owners))
            if len(rows) == limit:
                break
    return rows[::-1]


def list_fields(letter: DeadLetter, *, owners: bool) -> dict[str, Any]:
    """Return what a list shows of an entry: of its payload the size, and the request's names.

    The owner is shown by its key with ``owners``, else by its hash.
    """
    request_id, owner_key = _request_names(letter)
    return {
        "id": letter.id,
        "at": letter.at,
        "source": letter.source,
        "request_id": request_id,
        **({"owner_key": owner_key} if owners else {"owner": hash_owner(owner_key)}),
        "reason": letter.reason,
        "attempts": letter.attempts,
        "bytes": len(letter.payload),
    }


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
    letters: DeadLetters, ids: Sequence[str], reason: str | None, *, drop: bool = False
) -> Settled:
    """Retry or drop entries: those with these ids, or without ids all with the reason.

    An entry that fails does not stop the others.
    """
    action = letters.drop if drop else letters.retry
    if ids:
        # one at a time, to know which ones failed
        failed = tuple([letter_id for letter_id in ids if not await action([letter_id])])
        return Settled(done=len(ids) - len(failed), failed=len(failed), failed_ids=failed)
    requested = done = 0
    async with (
        aclosing(_matching(letters.scan(), reason)) as matching,
        aclosing(batches((letter.id async for letter in matching), BATCH)) as batched,
    ):
        async for batch in batched:
            requested += len(batch)
            done += await action(batch)
    return Settled(done=done, failed=requested - done)


async def _matching(
    letters: AsyncGenerator[DeadLetter, None], reason: str | None
) -> AsyncGenerator[DeadLetter, None]:
    async with aclosing(letters):
        async for letter in letters:
            if reason is None or reason.casefold() in letter.reason.casefold():
                yield letter


# --- output ----------------------------------------------------------------------------------


def print_rows(listed: Sequence[Mapping[str, Any]]) -> None:
    """Print a table of `list_fields`, in the order given."""
    if not listed:
        console().print("No such dead letters.")
        return
    numbers = ["Attempts", "Bytes"]
    rows = []
    for fields in listed:
        owner = fields.get("owner_key") or fields.get("owner")
        rows.append(
            (
                f"{fields['id']}\n{format_stamp(fields['at']).strip('[]')}",
                f"{fields['request_id'] or '-'}\n{owner or '-'}",
                fields["reason"][:MAX_REASON],
                fields["attempts"],
                fields["bytes"],
            )
        )
    columns = ("Id, time (UTC)", "Request, owner", "Reason", *numbers)
    console().print(table(*columns, rows=rows, numbers=numbers, unbroken=columns[:1]))


def print_letter(letter: DeadLetter, max_bytes: int) -> None:
    """Print an entry's fields, and at most ``max_bytes`` bytes of its payload."""
    fields = letter_fields(letter, max_bytes)
    payload = fields.pop("payload")
    for name, value in fields.items():
        typer.echo(f"{name}: {printable('-' if value is None else value)}")
    typer.echo(f"\n{printable(payload)}")
    if len(letter.payload) > max_bytes:
        typer.echo(f"… {counted(len(letter.payload) - max_bytes, 'more byte')}")


def letter_fields(letter: DeadLetter, max_bytes: int) -> dict[str, Any]:
    """Return an entry's fields, its payload as text cut to ``max_bytes`` bytes."""
    return {
        **asdict(letter),
        "at": letter.at and letter.at.isoformat(),
        "bytes": len(letter.payload),
        "payload": letter.payload[:max_bytes].decode(errors="replace"),
    }


def print_settled(settled: Settled, done: str, failed: str) -> None:
    """Print how many entries are ``done``; raises `typer.Exit` if one given by its id failed."""
    others = f"; {settled.failed} not: {failed}" if settled.failed else ""
    typer.echo(f"{counted(settled.done, 'entry')} {done}{others}")
    if settled.failed_ids:
        print_error(f"not {done}", ", ".join(settled.failed_ids))
        raise typer.Exit(Exit.FAILED)
