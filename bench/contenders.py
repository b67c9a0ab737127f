"""The contenders of `bench.build`: this service's core and its peers, with the same task.

The task: a system message, a history, the current input, a token budget for all of them, and
tiktoken's vocabulary o200k_base. Each contender gets the messages in its own format, already
converted.

Only this service keeps whole turns, counts the text as it is sent (with times and speakers),
reports the tokens of each message, shortens a turn larger than the budget, and, on request, reports
the decision on every message and its cost. Only litellm copies all messages first, and cuts the
oldest message that it keeps, to fill its budget.
"""

import functools
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, Final, cast

from tiktoken import Encoding, get_encoding
from tiktoken.registry import ENCODINGS

from formatters.model import Block, Facts, MemoryView, Role, Row
from formatters.rows import StoredRows, read_rows
from formatters.shared_memory import shared_memory
from formatters.this_moment import this_moment
from prompts.system_prompt import core_identity
from service.adapters.tokens.encodings import load_encoding
from service.adapters.tokens.tokenizers import TiktokenCounter
from service.budget.counting import block_tokens
from service.budget.decisions import PRESENT
from service.budget.fit_blocks import Budget, Fitted, fit_blocks
from service.budget.strategies.oldest_first import OldestFirst
from service.build.row_cache import RowCache

#: The vocabulary of all contenders, and a model that litellm counts with it.
VOCABULARY: Final = "o200k_base"
MODEL: Final = "gpt-4o"

#: All rows, as far as they fit.
VIEW: Final = MemoryView(limit=None)

#: Do the task once; returns how many messages of the history are kept.
Trim = Callable[[], int]


@dataclass(frozen=True, slots=True)
class Task:
    """What all contenders are given."""

    facts: Facts
    #: The history as a store has it.
    stored: StoredRows
    #: The facts as blocks: system message, history, current input.
    blocks: tuple[Block, ...]
    #: For all messages together.
    max_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A way to do the task."""

    #: Take over the messages, which isn't measured.
    prepare: Callable[[Task], Trim]
    #: The package that has to be installed.
    package: str | None = None
    #: Whether it remembers counts, so that its first time is slower.
    remembers: bool = False
    #: The most messages that it is measured with.
    longest: int | None = None

    @property
    def installed(self) -> bool:
        """Return whether its package is there."""
        return self.package is None or find_spec(self.package.replace("-", "_")) is not None

    def keys(self, name: str) -> tuple[str, ...]:
        """Return the keys of its figures."""
        return (f"{name}_ms", f"{name}_cold_ms") if self.remembers else (f"{name}_ms",)


def set_task(rows: Sequence[Row], question: str, memory_tokens: int) -> Task:
    """Give history n tokens, and add the cost of the other messages."""
    facts = Facts(current_input=question, history=read_rows(rows), memory=VIEW)
    stored = StoredRows([json.dumps(row) for row in rows])
    system, history, moment = _shown(facts)
    count = TiktokenCounter(VOCABULARY).count
    others = block_tokens(system, count) + block_tokens(moment, count)
    return Task(facts, stored, (system, history, moment), memory_tokens + others)


# --- ours ------------------------------------------------------------------------------------


def fit(task: Task) -> Trim:
    """Choose and fit: our core on blocks that are ready, as the peers' messages are."""
    count, budget = TiktokenCounter(VOCABULARY).count, _budget(task)
    return lambda: _kept(fit_blocks(task.blocks, budget, count))


def fit_and_decide(task: Task) -> Trim:
    """Fit, and say of every message what became of it and what it costs, which no peer does."""
    count, budget = TiktokenCounter(VOCABULARY).count, _budget(task)
    return lambda: sum(
        len(decision.message_ids)
        for decision in fit_blocks(task.blocks, budget, count).decisions
        if decision.outcome in PRESENT
    )


def show_and_fit(task: Task) -> Trim:
    """Read stored rows, put them into turns, guard and format them, which no peer does; then fit.

    A row that was read before is known by its JSON, as in the builds of the service.
    """
    count, budget, cache = TiktokenCounter(VOCABULARY).count, _budget(task), RowCache()

    def trim() -> int:
        history = cache.read(task.stored)
        facts = Facts(current_input=task.facts.current_input, history=history, memory=VIEW)
        return _kept(fit_blocks(_shown(facts), budget, count))

    return trim


def _shown(facts: Facts) -> tuple[Block, Block, Block]:
    return core_identity(facts), shared_memory(facts), this_moment(facts)


def _budget(task: Task) -> Budget:
    return Budget(available=task.max_tokens, tools=0, strategy=OldestFirst())


def _kept(fitted: Fitted) -> int:
    return sum(len(entry.messages) for entry in fitted.blocks[1].entries)


# --- peers -----------------------------------------------------------------------------------


def langchain(task: Task) -> Trim:
    """Call langchain-core's `trim_messages` as its documentation does, with a tiktoken counter."""
    return _langchain(task, _count_text())


def langchain_memo(task: Task) -> Trim:
    """Do the same, with the count of each text remembered."""
    return _langchain(task, functools.cache(_count_text()))


def litellm(task: Task) -> Trim:
    """Call litellm's `trim_messages` as its documentation does, with ``max_tokens``."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it downloads one
    from litellm.utils import trim_messages

    roles = {Role.HUMAN: "user", Role.AI: "assistant"}
    messages = [
        {"role": "system", "content": task.blocks[0].text},
        *({"role": roles[m.role], "content": m.content} for m in task.facts.history),
        {"role": "user", "content": task.facts.current_input},
    ]
    return lambda: len(trim_messages(messages, model=MODEL, max_tokens=task.max_tokens)) - 2


def langchain_chat(messages: Sequence[Row], max_tokens: int) -> Trim:
    """Do the same as `langchain_memo` with chat messages, tool calls included."""
    from langchain_core.messages import convert_to_messages

    return _trim(convert_to_messages(messages), max_tokens, functools.cache(_count_text()))


def _langchain(task: Task, count_text: Callable[[str], int]) -> Trim:
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

    kinds = {Role.HUMAN: HumanMessage, Role.AI: AIMessage}
    messages = [
        SystemMessage(task.blocks[0].text),
        *(kinds[message.role](message.content) for message in task.facts.history),
        HumanMessage(task.facts.current_input),
    ]
    trim = _trim(messages, task.max_tokens, count_text)
    return lambda: trim() - 2


def _trim(messages: Sequence[Any], max_tokens: int, count_text: Callable[[str], int]) -> Trim:
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage, trim_messages

    roles = {HumanMessage: "user", AIMessage: "assistant", ToolMessage: "tool"}

    def count(messages: Sequence[Any]) -> int:
        """Count as the documentation does: role, content, calls and name, 3 a message, and 3."""
        tokens = 3
        for message in messages:
            role = roles.get(type(message), "system")
            tokens += 3 + count_text(role) + count_text(message.content)
            # of others, pydantic looks long for what isn't there
            for call in message.tool_calls if isinstance(message, AIMessage) else ():
                tokens += count_text(call["name"]) + count_text(json.dumps(call["args"]))
            if message.name:
                tokens += 1 + count_text(message.name)
        return tokens

    trim = functools.partial(
        trim_messages,
        messages,
        max_tokens=max_tokens,
        strategy="last",
        token_counter=count,
        start_on="human",
        include_system=True,
    )
    return lambda: len(trim())


def _count_text() -> Callable[[str], int]:
    """Return the documentation's count of a text; it looks the encoding up each time."""
    # what we read from a package; tiktoken would download it
    ENCODINGS[VOCABULARY] = cast("Encoding", load_encoding(VOCABULARY))
    return lambda text: len(get_encoding(VOCABULARY).encode(text))


# --- who is there ----------------------------------------------------------------------------

CONTENDERS: Final = {
    "fit": Contender(prepare=fit, remembers=True),
    "fit_and_decide": Contender(prepare=fit_and_decide),
    "show_and_fit": Contender(prepare=show_and_fit, remembers=True),
    "langchain": Contender(prepare=langchain, package="langchain-core"),
    "langchain_memo": Contender(prepare=langchain_memo, package="langchain-core", remembers=True),
    # it counts what it keeps again for each message that it looks at: minutes beyond this
    "litellm": Contender(prepare=litellm, package="litellm", longest=200),
}


def versions() -> dict[str, str | None]:
    """Return the version of each peer's package; None where it is not installed."""
    peers = {each.package: each.installed for each in CONTENDERS.values() if each.package}
    return {name: version(name) if there else None for name, there in peers.items()}
