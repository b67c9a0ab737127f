"""The words of messages of history, for tables that would otherwise show only their ids."""

from collections.abc import Iterable, Mapping, Sequence
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
from service.errors import ConfigError, StoreError
from service.ports.stores import HistoryReader

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


def texts_of_rows(rows: Iterable[Row]) -> Texts:
    """Return the texts of rows, as `texts_of` does."""
    return texts_of(read_rows(rows))


async def read_texts(history: HistoryReader, owner_key: str, ids: Sequence[str]) -> Texts:
    """Return the texts of stored rows; none if the store doesn't answer."""
    try:
        return texts_of_rows(await history.rows(owner_key, ids)) if ids else NO_TEXTS
    except StoreError:
        return NO_TEXTS


async def read_stored_texts(settings: Settings, owner_key: str, ids: Sequence[str]) -> Texts:
    """Return the texts of rows in the configured store, as far as it has any.

    None if it is in memory, unavailable, missing or of another version, which opening would change.
    """
    if not (ids and has_persistent_store(settings)):
        return NO_TEXTS
    try:
        await check_store(settings)
        async with open_stores(settings) as stores:
            return await read_texts(stores.history, owner_key, ids)
    except (ConfigError, StoreError):
        return NO_TEXTS


def previewed(ids: Sequence[str]) -> list[str]:
    """Return the ids of a group whose words are shown: the first and the last."""
    return list(dict.fromkeys([*ids[:1], *ids[-1:]]))


def format_messages(ids: Sequence[str], texts: Texts) -> Group:
    """Return ids, and below them a line each of the first and the last message."""
    lines = [Text(printable(format_ids(ids)))]
    for name in previewed(ids):
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
