"""Warnings about messages of a conversation that are not sent as they were added."""

from collections.abc import Iterator, Mapping, Sequence
from operator import is_

from formatters.model import Message, Role, Row, ToolCall
from formatters.repair.matching import CANCELLED, PENDING
from formatters.rows import as_mapping
from service.conversation.checks import slip_of
from service.conversation.sending import is_empty
from service.conversation.shapes import ROWS, given_calls, read_messages
from service.conversation.units import Item, Units
from service.errors import shown


def describe_losses(units: Units, rows: Sequence[Row]) -> Iterator[str]:
    """Yield a text for each lost result, each empty message, and each call's replaced arguments.

    ``rows`` are the messages that the units were read from.
    """
    items = units.all_items()
    if len(items) == len(rows) and all(map(is_, (item.row for item in items), rows)):
        return
    present = {index for item in items for index in item.indexes}
    mended = {min(item.indexes): item for item in items if item.is_mended and item.indexes}
    sent = {m.id: m for item in items for m in item.messages} if mended else {}
    for index, row in enumerate(rows):
        if index not in present:
            lost = filter(_is_result, read_messages(row))
            yield from (_describe_result(result, row, index) for result in lost)
            if is_empty(row):
                yield f"messages[{index}] is empty, so it is left out"
        elif index in mended:
            yield from _describe_mended(mended[index], sent, index)


def _describe_mended(item: Item, sent: Mapping[str, Message], index: int) -> Iterator[str]:
    for message in item.shape.read(item.given, item.name):
        if message.id in sent:
            yield from _replaced_arguments(item, message, sent[message.id], index)
        elif _is_result(message):
            yield _describe_result(message, item.given, index)


def _is_result(message: Message) -> bool:
    """Return whether a message is a result; placeholders, which give way to results, are none."""
    return message.role is Role.TOOL and message.content not in (CANCELLED, PENDING)


def _describe_result(result: Message, row: Row, index: int) -> str:
    place = f"messages[{index}]"
    if result.tool_call_id:
        id_ = shown(result.tool_call_id)
        return f"{place}, a result of the call {id_}, is left out: no such call waits for one"
    slip = slip_of("tool_call_id", row)
    found = f", but {shown(slip)}" if slip else ""
    return f"{place}, a result without tool_call_id{found}, is left out: no call waits for one"


def _replaced_arguments(item: Item, given: Message, sent: Message, index: int) -> Iterator[str]:
    """Yield a text for each call of a message whose arguments became empty."""
    calls = zip(given.tool_calls, sent.tool_calls, strict=False)
    for number, (before, after) in enumerate(calls):
        if before.text is None and after.text == "{}" and not _is_empty(item, before, number):
            place = f"messages[{index}], call {shown(before.id)}"
            yield f"{place}: its arguments are no JSON object, so {{}} is sent"


def _is_empty(item: Item, call: ToolCall, number: int) -> bool:
    """Return whether a call was given without arguments."""
    if call.arguments is not None or item.shape is not ROWS:
        return call.arguments == {}
    given = given_calls(item.given)[number]
    arguments = (as_mapping(given.get("function")) or given).get("arguments")
    return arguments is None or not str(arguments).strip()
