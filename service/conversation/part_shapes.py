"""Messages made of parts, where calls and results stand among what is said."""

from collections.abc import Iterator, Sequence
from typing import Final

from formatters.model import Message, Role, Row, ToolCall
from formatters.rows import read_content
from service.conversation.part_forms import BlockForm, FunctionForm, PartForm
from service.conversation.reading import is_opaque, is_same_call, mapping, speaker


class PartShape:
    """A message says its results, each by itself, and then all the rest as one."""

    def __init__(self, form: PartForm) -> None:
        self._form = form

    def read(self, row: Row, name: str) -> tuple[Message, ...]:
        """Return the results in it, then what is said and called."""
        results: list[Message] = []
        calls: list[ToolCall] = []
        rest: list[object] = []
        for part, meant in self._parts(row, name):
            if isinstance(meant, Message):
                results.append(meant)
            elif isinstance(meant, ToolCall):
                calls.append(meant)
            else:
                rest.append(part)
        if results and not rest and not calls:
            return tuple(results)
        role = speaker(row)
        said = Message(
            id=name,
            role=Role.HUMAN if results and role is not Role.AI else role,
            content=read_content(rest),
            tool_calls=tuple(calls),
            provider_parts=row[self._form.key] if self._is_opaque(row, rest) else None,
        )
        return (*results, said)

    def write(self, row: Row, name: str, messages: Sequence[Message]) -> Row:
        """Return it with the parts that are left, each as it is now."""
        now = {message.id: message for message in messages}
        calls = iter(now[name].tool_calls) if name in now else iter(())
        parts: list[object] = []
        for part, meant in self._parts(row, name):
            if isinstance(meant, Message):
                if meant.id in now:
                    parts.append(self._result(mapping(part), meant, now[meant.id]))
            elif isinstance(meant, ToolCall):
                if call := next(calls, None):
                    parts.append(self._call(mapping(part), meant, call))
            elif name in now:
                parts.append(part)
        return {**row, self._form.key: parts}

    def joined(self, rows: Sequence[Row]) -> Row | None:
        """Return the last of several messages with the parts of all."""
        parts = [part for row in rows for part, _ in self._parts(row, "")]
        return {**rows[-1], self._form.key: parts}

    def made(self, _caller: Row, result: Message) -> Row:
        """Return a result as a user's message of one part."""
        return {"role": "user", self._form.key: [self._form.with_result({}, result)]}

    def _parts(self, row: Row, name: str) -> Iterator[tuple[object, Message | ToolCall | None]]:
        """Yield each part with the result or the call that it is."""
        value = row[self._form.key]
        parts = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        for place, part in enumerate(parts):
            yield part, self._form.read(mapping(part), f"{name}/{place}")

    def _is_opaque(self, row: Row, rest: Sequence[object]) -> bool:
        """Tell whether it has what its provider wants back as it came."""
        signed = (self._form.is_signed(mapping(part)) for part, _ in self._parts(row, ""))
        return is_opaque(rest) or any(signed)

    def _call(self, part: Row, before: ToolCall, call: ToolCall) -> Row:
        return part if is_same_call(before, call) else self._form.with_call(part, call)

    def _result(self, part: Row, before: Message, result: Message) -> Row:
        return part if before == result else self._form.with_result(part, result)


BLOCKS: Final = PartShape(BlockForm())
PARTS: Final = PartShape(FunctionForm())
