"""TEMP."""

import json
from dataclasses import dataclass, replace

from formatters.model import Message


@dataclass(frozen=True)
class Note:
    message_id: str
    outcome: str
    reason: str


@dataclass(frozen=True)
class Repaired:
    messages: tuple[Message, ...]
    notes: tuple[Note, ...] = ()
    synthetic: frozenset[str] = frozenset()

    @property
    def reasons(self):
        return {n.message_id: n.reason for n in self.notes if n.outcome == "repaired"}


def call_ids(messages):
    return frozenset(c.id for m in messages for c in m.tool_calls)


def repaired(messages, *, in_flight=False, taken=frozenset()):
    return Repaired(
        tuple(
            replace(
                m,
                tool_calls=tuple(
                    replace(c, text=c.text or json.dumps(c.arguments)) for c in m.tool_calls
                ),
            )
            for m in messages
        )
    )
