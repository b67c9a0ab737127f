"""Histories of agents with calls and results, the same each time, with questions on their lines.

Trajectories are joined, a day each: of agents that mend code (`swe_agent`) or serve an airline's
customers (`tau_airline`). Chained ones (`tau_threads`) stay as they are.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from bench.recall.kinds import Chat
from bench.recall.lines import Row, ask_lines


class History(NamedTuple):
    """How a history is made: of which trajectories, and with how many questions of a kind."""

    id: str
    source: str
    picks: Sequence[int]
    most: int
    seed: int


HISTORIES: Final = (
    History("s1", "calls", (3, 4, 5, 6, 12), 16, 1),
    History("s2", "calls", (0, 2, 1, 8), 14, 2),
    History("s3", "calls", (0, 1, 2, 10, 3, 4, 5, 6), 16, 3),
    History("s4", "text", (2, 9, 3, 4, 5, 6), 20, 4),
    *(History(f"t{n}", "thread", (n,), 8, 10 + n) for n in (0, 2, 4)),
    History("a10", "airline", range(25, 35), 12, 21),
    History("a25", "airline", range(25, 50), 14, 22),
    History("a50", "airline", range(50), 14, 23),
)


def agents(swe: Sequence[Row], airline: Sequence[Row], threads: Sequence[Row]) -> Iterator[Chat]:
    """Yield the histories, each ending with thanks, of trajectories and of chained ones."""
    said = [[each for each in given["messages"] if _is_said(each)] for given in swe]
    sources = {
        "calls": [list(_with_calls(each)) for each in said],
        "text": said,
        "airline": [each["messages"] for each in airline],
        "thread": [each["messages"] for each in threads],
    }
    for history in HISTORIES:
        picked = [sources[history.source][n] for n in history.picks]
        if history.source == "thread":
            rows = [{**row, "id": f"{history.id}/{row['id']}"} for row in picked[0]]
        else:
            rows = list(_joined(history.id, picked))
        closed = [*rows, *_closing(history.id, rows[-1])]
        lower = history.source in {"calls", "text"}
        asked = ask_lines(rows, history.most, history.seed, lower=lower)
        yield Chat(history.id, closed, list(asked))


_COMMAND: Final = re.compile(r"```\w*\n?(.*?)```", re.DOTALL)
_NAME: Final = re.compile(
    r"(?:open|goto|create|edit|search_dir|search_file|find_file|scroll_down|scroll_up|submit)(?!\S)"
)
_START: Final = datetime(2024, 5, 1, 9, tzinfo=UTC)
_CLOSING: Final = (("human", "Thanks, that is all for today."), ("ai", "You're welcome, see you."))
_ROLES: Final = {"user": "human", "assistant": "ai", "tool": "tool"}


def _is_said(message: Row) -> bool:
    return message["role"] != "system" and "--- DEMONSTRATION ---" not in str(message["content"])


def _with_calls(messages: Iterable[Row]) -> Iterator[Row]:
    """Yield messages with commands in their texts as calls, and what follows as results."""
    called = ""
    for number, each in enumerate(messages):
        found = _COMMAND.search(each["content"]) if each["role"] == "assistant" else None
        if found and "tool_calls" not in each:
            called, command = f"c{number}", found[1].strip()
            name = _NAME.match(command)
            call = {"name": name[0] if name else "bash", "arguments": {"command": command}}
            prose = each["content"][: found.start()].strip()
            yield {**each, "content": prose, "tool_calls": [{"id": called, **call}]}
            continue
        answers = called and each["role"] == "user"
        yield {**each, "role": "tool", "tool_call_id": called} if answers else each
        called = ""


def _joined(name: str, trajectories: Iterable[Sequence[Row]]) -> Iterator[Row]:
    """Yield the messages as rows, each trajectory on a day of its own."""
    count, run = 0, ""
    for day, messages in enumerate(trajectories):
        at = _START + timedelta(days=day, hours=day % 8)
        for number, each in enumerate(m for m in messages if m["role"] != "system"):
            at += timedelta(seconds=15)
            run = f"run{name}{count}" if each["role"] == "user" or not number else run
            content = (each["content"] or "").replace("\r\n", "\n")
            row: Row = {"id": f"{name}/{count}", "run_id": run, "timestamp": at.isoformat()}
            if each.get("tool_calls"):
                # other trajectories have calls with the same ids
                calls = [{**call, "id": f"{day}_{call['id']}"} for call in each["tool_calls"]]
                row["tool_calls"] = calls
            if each.get("tool_call_id"):
                row["tool_call_id"] = f"{day}_{each['tool_call_id']}"
            yield {**each, **row, "role": _ROLES[each["role"]], "content": content}
            count += 1


def _closing(name: str, last: Row) -> Iterator[Row]:
    at = datetime.fromisoformat(last["timestamp"]) + timedelta(days=1)
    for n, (role, content) in enumerate(_CLOSING):
        row = {"id": f"{name}/end{n}", "run_id": f"{name}end", "role": role, "content": content}
        yield {**row, "timestamp": (at + timedelta(seconds=n)).isoformat()}
