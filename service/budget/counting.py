"""Count tokens: of blocks as they are sent, of their stable part, and of messages alone."""

import json
import re
from abc import ABC, abstractmethod
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Final

from formatters.model import (
    BLOCK_SEPARATOR,
    COUNT_MARK,
    Block,
    ChatMessage,
    Count,
    Entry,
    Message,
    ToolCall,
    TrimPolicy,
    cached,
    group_by_message,
)
from formatters.native import clear_result
from formatters.rows import read_content, read_tool_calls
from service.budget.groups import Group
from service.ports.services import TokenCounter

#: Tokens that every message costs besides its content, by the source systems' convention.
MESSAGE_OVERHEAD: Final = 4
#: More characters than texts have per token, but for some: a text with more isn't counted to find
#: out whether it fits, as counting one of megabytes takes up to a second.
MAX_CHARS_PER_TOKEN: Final = 12


class Estimate(ABC):
    """A counter that rounds its result, once for all texts that are sent as one."""

    def count(self, text: str) -> int:
        """Return the tokens of a text."""
        return self.tokens(self.size(text))

    __call__ = count

    @abstractmethod
    def size(self, text: str) -> int:
        """Return the size of a text; the sizes of texts that are sent as one add up."""

    @abstractmethod
    def tokens(self, size: int) -> int:
        """Return the tokens of a size, rounded."""


class MessageCounts(ABC):
    """A counter of texts, which counts messages by their texts."""

    @abstractmethod
    def count(self, text: str) -> int:
        """Return the tokens of a text."""

    def count_messages(self, messages: "Iterable[AnyMessage]") -> int:
        """Return the tokens of messages: 4 for each, and those of content and calls."""
        return messages_tokens(messages, self.count)


def count_function(counter: TokenCounter) -> Count:
    """Return the function that counts blocks; an estimate itself, which rounds once a message."""
    return counter if isinstance(counter, Estimate) else counter.count


def measure(blocks: Iterable[Block], count: Count) -> dict[str, int]:
    """Return the tokens of each block by its tag; their sum is the cost of all messages.

    Where blocks share a message, a block costs the tokens of the text up to its end, less those of
    the text up to its start; the first one includes the message's overhead.

    Raises:
        ValueError: Two blocks have the same tag.
    """
    sizes: dict[str, int] = {}
    for sharing in group_by_message(blocks):
        for tag, size in _sizes(sharing, count):
            if tag in sizes:
                raise ValueError(f"two blocks have the tag {tag}")
            sizes[tag] = size
    return sizes


def block_tokens(block: Block, count: Count) -> int:
    """Return the tokens of the messages that carry this block alone."""
    return sum(measure((block,), count).values())


def fixed_tokens(block: Block, count: Count) -> int:
    """Return the cost of a block without its entries, with the largest row number it can show."""
    if block.native:
        return 0
    rows = sum([entry.rows for entry in block.entries])
    return MESSAGE_OVERHEAD + count(block.header.replace(COUNT_MARK, f"count={rows}"))


@dataclass(slots=True)
class EntryCost:
    """The tokens of an entry by a counter."""

    counter: Count
    #: Of an `Estimate`, which rounds the sum of its sizes; of other counters, the tokens.
    size: int
    #: Its last group, with its cost: in most builds of a history it is in the same group again.
    group: Group


def entry_cost(entry: Entry, count: Count) -> EntryCost:
    """Return what an entry costs; it is counted once, as long as the counter is the same."""
    cost: EntryCost | None = entry.cost  # type: ignore[assignment] # only set here
    if cost is not None and (cost.counter is count or cost.counter == count):
        return cost
    savings: Mapping[str, int] = {}
    if entry.native:
        size = tokens = tokens_last = sum(message_tokens(m, count) for m in entry.native)
        savings = _savings(entry, count)
    else:
        followed = f"{entry.text}\n"
        size = count.size(followed) if isinstance(count, Estimate) else count(followed)
        tokens = count.tokens(size) if isinstance(count, Estimate) else size
        tokens_last = count(entry.text)
    cost = EntryCost(
        count, size, Group(0, tokens, tokens_last, entry.messages, entry.rows, savings)
    )
    object.__setattr__(entry, "cost", cost)
    return cost


def entry_tokens(entry: Entry, count: Count) -> int:
    """Return the tokens of an entry that is followed by another one."""
    return entry_cost(entry, count).group.tokens


def last_tokens(entry: Entry, count: Count) -> int:
    """Return the tokens of an entry at the end of its block."""
    return entry_cost(entry, count).group.tokens_last


def make_groups(block: Block, count: Count) -> list[Group]:
    """Return a group with its costs for each entry of a block."""
    groups = []
    for index, entry in enumerate(block.entries):
        cost = entry_cost(entry, count)
        group = cost.group
        if group.index != index:
            cost.group = group = Group(index, *group[1:])
        groups.append(group)
    if not block.starts:
        return groups
    return [
        group._replace(start=block.starts.get(group.messages[0].id)) if group.messages else group
        for group in groups
    ]


def _savings(entry: Entry, count: Count) -> Mapping[str, int]:
    """Return the tokens that clearing each tool result would save, by the id of its message."""
    savings = {}
    for id_, index in entry.results.items():
        message = entry.native[index]
        saved = message_tokens(message, count) - message_tokens(clear_result(message), count)
        if saved > 0:
            savings[id_] = saved
    return savings


def _sizes(sharing: Sequence[Block], count: Count) -> Iterator[tuple[str, int]]:
    """Yield tag and tokens of the blocks that share a message."""
    first = sharing[0]
    if first.native:
        yield first.tag, sum([entry_tokens(entry, count) for entry in first.entries])
        return
    tokens = count.tokens if isinstance(count, Estimate) else int
    preceding, reported = 0, -MESSAGE_OVERHEAD
    for block in sharing:
        up_to_end = tokens(preceding + _size(block, "", count))
        yield block.tag, up_to_end - reported
        reported = up_to_end
        if block is not sharing[-1]:
            preceding += _size(block, BLOCK_SEPARATOR, count)


def _size(block: Block, ending: str, count: Count) -> int:
    """Return the size of a block's text and of the text after it, split where counts add up."""
    size = count.size if isinstance(count, Estimate) else count
    if not block.additive or not block.entries:
        return cached(block.made, (ending, count), lambda: size(f"{block.text}{ending}"))
    *others, last = block.entries
    sizes = [entry_cost(entry, count).size for entry in others]
    return size(block.heading) + sum(sizes) + size(f"{last.text}{ending}")


@dataclass(frozen=True, slots=True)
class StablePrefix:
    """The messages before the first entry that changes from build to build."""

    tokens: int = 0
    #: How many of the messages are complete and don't grow, as `[SHARED_MEMORY]` does.
    messages: int = 0
    #: Whether the tools, which providers put before the messages, are the same too.
    tools: bool = True


def find_stable_prefix(
    blocks: Sequence[Block], tokens: Mapping[str, int], count: Count, *, tools_chosen: bool = False
) -> StablePrefix:
    """Find the stable prefix of blocks as they are sent, whose ``tokens`` are given by tag.

    History may grow at its end, so it is the last stable block. If the tools were chosen for the
    input, nothing is stable, as providers put them first; while a run goes on they don't change.
    """
    run_goes_on = any(block.gives_way is TrimPolicy.ALL_BUT_NEWEST for block in blocks)
    if tools_chosen and not run_goes_on:
        return StablePrefix(tools=False)
    stable: list[Block] = []
    total = 0
    for block in blocks:
        has_placeholder = block.is_history and not block.entries
        is_repeated = not (block.volatile or block.moves or has_placeholder)
        if not (is_repeated or block.is_tools):
            break
        entries = tuple(takewhile(lambda entry: not entry.volatile, block.entries))
        if len(entries) < len(block.entries):
            stable.append(replace(block, entries=entries))
            total += block_tokens(stable[-1], count)
            break
        stable.append(block)
        total += tokens[block.tag]
        if block.is_history:
            break
    complete = [block for block in stable if block.native or not block.is_history]
    return StablePrefix(tokens=total, messages=_count_messages(complete))


def _count_messages(blocks: Iterable[Block]) -> int:
    """Return how many messages blocks are sent as."""
    first = [sharing[0] for sharing in group_by_message(blocks)]
    return sum(sum(map(len, (e.native for e in b.entries))) if b.native else 1 for b in first)


#: A stored row that was read, a message as it is sent, or one in OpenAI's chat form.
AnyMessage = Message | ChatMessage | Mapping[str, object]


def messages_tokens(messages: Iterable[AnyMessage], count: Count) -> int:
    """Return the cost of messages: 4 each, and the tokens of content, calls and provider parts.

    The name and the arguments of a call are counted separately, the arguments as `json.dumps`
    writes them; ids are free.
    """
    return sum(MESSAGE_OVERHEAD + sum(map(count, _texts(message))) for message in messages)


def message_tokens(message: ChatMessage, count: Count) -> int:
    """Return the cost of a native message: each of its texts counted separately, and the 4."""
    texts = [message.content]
    for call in message.tool_calls:
        texts += (call.name, call.text or "")
    if message.provider_parts is not None:
        texts += further_texts(message.provider_parts, texts, message.tool_calls)
    return MESSAGE_OVERHEAD + sum(map(count, texts))


def _texts(message: AnyMessage) -> list[str]:
    if isinstance(message, Mapping):
        texts, parts = [read_content(message.get("content"))], message.get("provider_parts")
        calls = read_tool_calls(message.get("tool_calls"))
    else:
        texts, parts, calls = [message.content], message.provider_parts, message.tool_calls
    for call in calls:
        text = (call.text or "") if call.arguments is None else json.dumps(call.arguments)
        texts += (call.name, text)
    return [*texts, *further_texts(parts, texts, calls)]


def further_texts(parts: object, texts: Iterable[str], calls: Iterable[ToolCall]) -> Iterator[str]:
    """Return the texts that provider parts have besides those of their message, and its calls.

    Parts are sent in addition to content and calls, or repeat them and are sent in their place.
    """
    # as a text, arguments may have other blanks than in the parts
    repeated = [*texts, *(write_json(call.arguments) for call in calls)]
    return (Counter(part_texts(parts)) - Counter(repeated)).elements()


#: Keys in parts whose texts no model reads as words: kinds, roles, and references to parts.
_WORDLESS: Final = frozenset(
    ("type", "role", "id", "call_id", "tool_use_id", "status", "cache_control")
)
#: Keys of files or of references to them, and those of their data beside a media type.
_FILES: Final = frozenset(
    ("file_data", "file_id", "file_uri", "fileUri", "file_url", "video_url", "document_url")
) | {"bytes", "blob"}
_DATA: Final = ("data", "base64", "url")
_MEDIA_TYPES: Final = frozenset(("media_type", "mime_type", "mimeType", "mediaType", "format"))
#: Types of parts with such keys whose data is text, or is read as text.
_TEXT_TYPES: Final = ("text", "reasoning.encrypted")
#: How data URLs begin, and PNG, JPEG, GIF, WebP, WAV and PDF files in base64.
_FILE: Final = re.compile("data:[^,]{0,100};base64,|iVBORw0KGgo|/9j/|R0lGOD|UklGR|JVBERi0")
#: Keys of a call's arguments.
_ARGUMENTS: Final = ("input", "args")


def part_texts(value: object) -> Iterator[str]:
    """Yield the texts of a part that only its provider reads, and "" for each file in it.

    Encrypted texts, such as signatures, are among them: what they hold has fewer tokens. Files,
    such as images and sounds, can't be counted.
    """
    if isinstance(value, bytes):  # as Google's library has signatures
        yield b64encode(value).decode()
    elif isinstance(value, str):
        if value:
            yield "" if _FILE.match(value) else value
    elif isinstance(value, Mapping):
        yield from _mapping_texts(value)
    elif isinstance(value, list | tuple):  # no API takes other sequences
        for item in value:
            yield from part_texts(item)


def _mapping_texts(fields: Mapping[str, object]) -> Iterator[str]:
    kind = fields.get("type")
    is_file = kind == "url" or (not _MEDIA_TYPES.isdisjoint(fields) and kind not in _TEXT_TYPES)
    for key, item in fields.items():
        if key in _FILES or (is_file and key in _DATA):
            if item:
                yield ""
        elif key in _ARGUMENTS and isinstance(item, Mapping):
            yield write_json(item)
        elif key not in _WORDLESS:
            yield from part_texts(item)


def write_json(value: object) -> str:
    """Return a value as JSON without blanks or escapes of letters, as it is counted."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
