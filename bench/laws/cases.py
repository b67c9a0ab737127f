"""Real conversations as requests: the history, the question, and the run so far."""

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from service.errors import ToolError
from service.wire.tool_definitions import check_definition

Row = dict[str, Any]

#: The file that holds no conversations but the tools of some.
TOOLS: Final = "tools"

#: The input for a conversation without a question and a human message.
QUESTION: Final = "What did we decide?"

_HUMANS: Final = frozenset({"human", "user"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The request of one conversation."""

    name: str
    past: list[Row]
    words: str
    run: list[Row]
    tools: list[Row] | None

    @property
    def candidates(self) -> list[str]:
        """Return the ids that have to be decided on."""
        return [row["id"] for row in (*self.past, *self.run)]

    @property
    def size(self) -> int:
        """Return its length in characters, roughly."""
        return sum(len(str(row.get("content"))) + 40 for row in (*self.past, *self.run))


def read_cases(folder: Path) -> Iterator[Case]:
    """Yield what the conversations of a folder ask; files without any are passed over."""
    paths = {path.name.split(".")[0]: path for path in sorted(folder.glob("*.jsonl*"))}
    known = {str(each.get("id")): _usable(each.get("tools")) for each in _objects(paths.get(TOOLS))}
    for name, path in paths.items():
        for place, each in enumerate(_objects(path)):
            messages = [m for m in _list(each.get("messages")) if isinstance(m, dict)]
            if messages:
                yield from _cases(f"{name}/{each.get('id', place)}", each, messages, known)


def _cases(
    name: str, each: Mapping[str, Any], messages: Sequence[Row], known: Mapping[str, list[Row]]
) -> Iterator[Case]:
    """Yield the cases of one conversation.

    A question follows it; without one, its last human message is the input. Where calls follow
    another human message more closely, that one is an input too, with them as the run.
    """
    rows = _named([row for row in messages if row.get("role") != "system"])
    tools = known.get(str(each.get("tools_ref"))) or None
    question = _question(each)
    humans = [place for place, row in enumerate(rows) if _is_input(row)]
    if question or not humans:
        words = question or QUESTION
        yield Case(name=f"{name}#question", past=rows, words=words, run=[], tools=tools)
    for kind, place in _inputs(rows, humans, asks=bool(question)).items():
        end = len(rows) if kind == "last" else _next(humans, place, len(rows))
        yield Case(
            name=f"{name}#{kind}",
            past=rows[:place],
            words=str(rows[place]["content"]),
            run=[{**row, "run_id": None} for row in rows[place + 1 : end]],
            tools=tools,
        )


def _inputs(rows: Sequence[Row], humans: Sequence[int], *, asks: bool) -> dict[str, int]:
    """Return which human messages are inputs, by what marks them."""
    runs = {
        place: sum(row.get("role") == "tool" for row in rows[place : _next(humans, place, None)])
        for place in humans
    }
    longest = max(humans, key=lambda place: runs[place], default=0)
    inputs = {} if asks or not humans else {"last": humans[-1]}
    if humans and runs[longest]:
        inputs["longest"] = longest
    return inputs


def _next(humans: Sequence[int], place: int, end: int | None) -> int | None:
    return next((human for human in humans if human > place), end)


def _is_input(row: Row) -> bool:
    content = row.get("content")
    said = isinstance(content, str) and bool(content.strip())
    return said and str(row.get("role")).lower() in _HUMANS


def _question(each: Mapping[str, Any]) -> str:
    asked = [q.get("question") for q in _list(each.get("questions")) if isinstance(q, dict)]
    return next((text for text in asked if isinstance(text, str) and text.strip()), "")


def _named(rows: Sequence[Row]) -> list[Row]:
    """Give a unique id to each row that has none."""
    named: list[Row] = []
    taken: set[str] = set()
    for place, row in enumerate(rows):
        id_ = str(row.get("id") or f"row-{place}")[:200]
        while id_ in taken:
            id_ = f"{id_}~{place}"
        taken.add(id_)
        named.append({**row, "id": id_})
    return named


def _usable(tools: object) -> list[Row]:
    """Return the definitions that a request may carry, each name once."""
    usable: dict[str, Row] = {}
    for tool in _list(tools):
        try:
            check_definition(tool, "tools")
        except ToolError:
            continue
        usable.setdefault(tool["function"]["name"], tool)
    return list(usable.values())


def _objects(path: Path | None) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file of JSON lines, gzipped or not; other lines are passed over."""
    if path is None:
        return
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                value = json.loads(line)
            except ValueError:
                continue
            if isinstance(value, dict):
                yield value


def _list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else ()
