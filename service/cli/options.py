"""Options that several commands share."""

from typing import Annotated

import typer
from typer.models import OptionInfo

from service.wire.payload import MAX_OWNER_KEY


def check_owner(key: str | None) -> str | None:
    """Return an owner key if requests may have it; raises `typer.BadParameter` if not."""
    if key is not None and not 1 <= len(key) <= MAX_OWNER_KEY:
        raise typer.BadParameter(f"a key has 1 to {MAX_OWNER_KEY} characters")
    return key


def owner_option(text: str) -> OptionInfo:
    """Return an option for an owner's key."""
    option: OptionInfo = typer.Option(
        "--owner", "-o", metavar="KEY", callback=check_owner, help=text
    )
    return option


Json = Annotated[bool, typer.Option("--json", help="Print one JSON document, for programs.")]

Owner = Annotated[str, owner_option("The owner's key.")]

OwnerArgument = Annotated[
    str, typer.Argument(metavar="OWNER", callback=check_owner, help="The owner's key.")
]

ShowOwners = Annotated[
    bool, typer.Option("--owners", help="Print owner keys instead of their hashes.")
]

Conversation = Annotated[
    str | None, typer.Option("--conversation", metavar="ID", help="Only this conversation.")
]

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask for confirmation.")]
