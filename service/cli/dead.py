"""``ctxb dead``: look at requests that could not be answered, and send them again or drop them."""

import asyncio
import json
import re
from collections.abc import Sequence
from typing import Annotated

import typer

from service.cli.exits import Exit, tell
from service.cli.options import Json

dead = typer.Typer(no_args_is_help=True, help="List, show, retry and drop dead letters.")

#: Both numbers of an entry's id are below this.
_ID_LIMIT = 2**64


def check_ids(ids: list[str] | None) -> list[str] | None:
    """Return ids that the bus can look up; raises `typer.BadParameter` for others."""
    for each in ids or ():
        _check_id(each)
    return ids


def _check_id(letter_id: str) -> str:
    numbers = re.fullmatch(r"([0-9]{1,20})-([0-9]{1,20})", letter_id)
    if not numbers or any(int(number) >= _ID_LIMIT for number in numbers.groups()):
        raise typer.BadParameter(f"{letter_id!r} is no id; ctxb dead ls has them: 1765353600000-0")
    return letter_id


LetterId = Annotated[
    str, typer.Argument(metavar="ID", callback=_check_id, help="The id of an entry.")
]
LetterIds = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID", callback=check_ids, help="Ids of entries."),
]
All = Annotated[bool, typer.Option("--all", help="All entries that there are now.")]
Reason = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Only those whose reason has this in it."),
]
Limit = Annotated[int, typer.Option(min=1, help="The newest so many entries.")]
Owners = Annotated[bool, typer.Option("--owners", help="Show owner keys, not their hashes.")]
MaxBytes = Annotated[int, typer.Option(min=1, help="Bytes of the payload to show.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]


@dead.command()
def ls(
    ctx: typer.Context,
    *,
    limit: Limit = 20,
    reason: Reason = None,
    owners: Owners = False,
    as_json: Json = False,
) -> None:
    """List entries, the newest last.

    ctxb dead ls
    ctxb dead ls --reason "not JSON" --limit 100 --json

    An owner is shown as the hash that stands for it in logs.
    """
    from service.cli.dead_letters import newest
    from service.cli.dead_text import listed_dict, print_letters
    from service.cli.start import shared_bus, start

    letters = asyncio.run(newest(shared_bus(start(ctx.obj)), limit, reason))
    if as_json:
        rows = [listed_dict(letter, owners=owners) for letter in letters]
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    print_letters(letters, owners=owners)


@dead.command()
def show(
    ctx: typer.Context, letter_id: LetterId, max_bytes: MaxBytes = 4000, as_json: Json = False
) -> None:
    """Print an entry with its payload, which holds what people said.

    ctxb dead show 1765353600000-0
    """
    from service.cli.dead_letters import find
    from service.cli.dead_text import print_letter, shown_dict
    from service.cli.start import shared_bus, start

    letter = asyncio.run(find(shared_bus(start(ctx.obj)), letter_id))
    if letter is None:
        tell("not found", f"the dead letter has no entry {letter_id}")
        raise typer.Exit(Exit.FAILED)
    if as_json:
        typer.echo(json.dumps(shown_dict(letter, max_bytes), indent=2, ensure_ascii=False))
        return
    print_letter(letter, max_bytes)


@dead.command()
def retry(
    ctx: typer.Context, ids: LetterIds = None, every: All = False, reason: Reason = None
) -> None:
    """Put entries back on the streams that they came from, as new ones.

    ctxb dead retry 1765353600000-0
    ctxb dead retry --all --reason "without an answer"

    The exit code is 1 where one that is named can't be put back; the others are.
    A request whose answer is still stored (bus.result_ttl_seconds) gets that
    answer again; wait until then for another one.
    """
    from service.cli.dead_letters import Chosen, retry_letters
    from service.cli.dead_text import print_settled
    from service.cli.start import shared_bus, start

    chosen = Chosen(ids=_chosen(ids, every, reason), reason=reason)
    settled = asyncio.run(retry_letters(shared_bus(start(ctx.obj)), chosen))
    print_settled(settled, "put back", "gone or came from no stream of ours")


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

    The exit code is 1 where one that is named is gone; the others are dropped.
    """
    from service.cli.dead_letters import Chosen, drop_letters
    from service.cli.dead_text import print_settled
    from service.cli.start import shared_bus, start

    chosen = Chosen(ids=_chosen(ids, every, reason), reason=reason)
    settings = shared_bus(start(ctx.obj))
    if not yes:
        which = f"{len(chosen.ids)} entries" if chosen.ids else "all entries that match"
        typer.confirm(f"Delete {which} for good?", abort=True, err=True)
    print_settled(asyncio.run(drop_letters(settings, chosen)), "dropped", "gone")


def _chosen(ids: Sequence[str] | None, every: bool, reason: str | None) -> tuple[str, ...]:
    """Return the ids, each once; none is all. Raises `typer.BadParameter` for half a choice."""
    if bool(ids) == every:
        raise typer.BadParameter("give ids, or --all")
    if ids and reason is not None:
        raise typer.BadParameter("--reason goes with --all")
    return tuple(dict.fromkeys(ids or ()))
