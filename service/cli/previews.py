"""The words of messages of history, for tables that would otherwise show only their ids."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Final

from rich.console import Group
from rich.text import Text

from formatters.model import Message, Row
from formatters.rows import read_rows
from service.cli.output import printable
from service.cli.start import has_persistent_store
from service.config.settings import Settings
from service.connect import check_store, open_stores
from service.errors import ConfigError, OutdatedTermsError, StoreError

#: A group of up to this many messages lists all of their ids; a larger one its first and last.
MAX_LISTED_IDS: Final = 2
#: Ids of this length or more are cut to their first characters.
LONG_ID: Final = 15
ID_PREFIX: Final = 12

#: Texts of messages, by their ids.
Texts = Mapping[str, str]
NO_TEXTS: Final[Texts] = MappingProxyType({})


def texts_of(messages: Iterable[Message]) -> Texts:
    """Return the texts of messages, or else the tools that they call."""
    return {message.id: message.content.strip() or _calls(message) for message in messages}


def find_texts(
    settings: Settings, owner_key: str, ids: Sequence[str], brought: Sequence[Row] | None
) -> Texts:
    """Return the texts of stored rows, as far as the store has any, and of those brought along."""
    return texts_of(read_rows([*asyncio.run(_read(settings, owner_key, ids)), *(brought or ())]))


async def _read(settings: Settings, owner_key: str, ids: Sequence[str]) -> Sequence[Row]:
    """Return stored rows; none if the store can't be read, or opening it would change it."""
    if not (ids and has_persistent_store(settings)):
        return ()
    try:
        with suppress(OutdatedTermsError):  # no search needs them here
            await check_store(settings)
        async with open_stores(settings) as stores:
            return await stores.history.rows(owner_key, ids)
    except (ConfigError, StoreError):
        return ()


def format_messages(ids: Sequence[str], texts: Texts) -> Group:
    """Return ids, and below them a line each of the first and the last message."""
    lines = [Text(printable(format_ids(ids)))]
    for name in dict.fromkeys([*ids[:1], *ids[-1:]]):
        words = " ".join(texts.get(name, "").split())
        gap = "… " if len(lines) > 1 and len(ids) > MAX_LISTED_IDS else ""
        if words:
            line = printable(f"{gap}{words}")
            lines.append(Text(line, style="dim", no_wrap=True, overflow="ellipsis"))
    return Group(*lines)


def format_ids(ids: Sequence[str]) -> str:
    """Return ids in the width of a cell: of many the first and the last, and their number."""
    short = [name if len(name) < LONG_ID else f"{name[:ID_PREFIX]}…" for name in ids]
    if len(ids) <= MAX_LISTED_IDS:
        return ", ".join(short)
    return f"{short[0]} … {short[-1]} ({len(ids)})"


def _calls(message: Message) -> str:
    # arguments that can't be read are None
    calls = ((call.name, "" if call.arguments == {} else "…") for call in message.tool_calls)
    return ", ".join(f"{name}({arguments})" for name, arguments in calls)
