"""Options that several commands share, and the completion of their values in a shell."""

from typing import Annotated

import typer

from service.budget.strategies import STRATEGIES
from service.connect import open_models
from service.wire.payload import MAX_OWNER_KEY


def check_owner(key: str | None) -> str | None:
    """Return an owner key if requests may have it; raises `typer.BadParameter` if not."""
    if key is not None and not 1 <= len(key) <= MAX_OWNER_KEY:
        raise typer.BadParameter(f"a key has 1 to {MAX_OWNER_KEY} characters")
    return key


def complete_strategy(incomplete: str) -> list[str]:
    """Return the names of the built-in strategies that begin with a text."""
    return [name for name in STRATEGIES if name.startswith(incomplete)]


def complete_model(incomplete: str) -> list[str]:
    """Return the names of the models with shipped limits that begin with a text."""
    return sorted(name for name in open_models().models if name.startswith(incomplete))


Json = Annotated[bool, typer.Option("--json", help="Print one JSON document, for programs.")]

Owner = Annotated[
    str,
    typer.Option("--owner", "-o", metavar="KEY", callback=check_owner, help="The owner's key."),
]

OwnerArgument = Annotated[
    str,
    typer.Argument(metavar="OWNER", callback=check_owner, help="The owner's key."),
]

ShowOwners = Annotated[bool, typer.Option("--owners", help="Show owner keys, not their hashes.")]

Conversation = Annotated[
    str | None,
    typer.Option("--conversation", metavar="ID", help="One conversation, not all of the owner's."),
]

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask for confirmation.")]
