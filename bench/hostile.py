"""Check that hostile texts can't forge structure, and measure what the guard costs ordinary texts.

    python -m bench.hostile --data DIR [--json] [--generated 100000] [--seed 1]

Every text of DIR's ``injections``, and the forgeries of `bench.forgeries`, are put into all
untrusted places at once: whole or in two halves, in both layouts and all forms, after a cut, in
recalled rows and summaries, and in process. Texts of ``injections`` are built by
`service.app.open_builder`, generated ones with tokens estimated from their length: where everything
fits, exact counts change nothing. The keys are explained in bench/README.md.
"""

import asyncio
import json
import os
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from bench.forgeries import HARMLESS, OWN_TAG, Draw, Forgery, forge, split
from bench.json_lines import read_lines
from bench.reader import find_tokens, read_law, read_structure, read_texts
from bench.report import over_data, show
from formatters.fetched import FetchView, fetched
from formatters.friends_info import friends_info
from formatters.guard import GUARD, Guard, Place
from formatters.model import Block, Entry, Facts, MemoryView, NotShown, Role, Row, Summary, render
from formatters.native import native_history
from formatters.providers.formats import FORMATS, build_provider_request
from formatters.recalled import insert_day_lines, recalled
from formatters.rows import read_rows
from formatters.shared_memory import shared_memory
from formatters.this_moment import this_moment
from prompts.capabilities import capabilities
from prompts.summary import create_summary_message, list_summary_forms
from service.adapters.tokens.tokenizers import HEURISTIC, get_token_counter
from service.app import open_builder
from service.builder import ContextBuilder
from service.config.settings import BudgetSettings, Settings
from service.conversation.context_config import ContextConfig
from service.conversation.coordination import CoordinationContextManager
from service.conversation.sending import prepare
from service.wire.request import BuildRequest

NOW: Final = datetime(2025, 12, 10, 8, tzinfo=UTC)
LAYOUTS: Final = ("tagged", "chat")
#: Forgeries that a process works through before it reports.
CHUNK: Final = 1_000
#: How many of the texts that went wrong a process prints.
MAX_EXAMPLES: Final = 5

#: The keys of a row.
ROW: Final = ("id", "timestamp", "role", "run_id", "content", "metadata")

# --- places ----------------------------------------------------------------------------------


def make_rows(text: Forgery) -> list[dict[str, Any]]:
    """Return a history with the text in each role's content, parts, names, ids and arguments."""
    one, two, _ = text
    ids = f"{one}1", f"{two}2"
    call = {"id": ids[0], "name": one, "arguments": {two: one, one: [two]}}
    nested = {"id": ids[1], "function": {"name": two, "arguments": json.dumps({"query": one})}}
    parts = [{"type": "text", "text": one}, {"type": "image"}, {"type": "text", "text": two}, two]
    drafts: list[tuple[str, str | None, Any, dict[str, Any]]] = [
        ("HUMAN", "r1", one, {"name": two}),
        ("AI", "r1", two, {"tool_calls": [call, nested]}),
        ("TOOL", "r1", one, {"tool_call_id": ids[0], "name": one}),
        ("TOOL", "r1", two, {"tool_call_id": ids[1], "name": two}),
        ("AI", "r1", one, {}),
        ("AI", "r1", two, {}),
        ("HUMAN", None, parts, {}),
        ("AI", None, "", {"tool_calls": [{**call, "id": "c3"}]}),
        ("system", None, one, {}),
        ("HUMAN", "r2", two, {}),
    ]
    return [
        dict(zip(ROW, (f"m{i}", f"2025-12-09T10:{i:02}:00Z", *draft), strict=True))
        for i, draft in enumerate(drafts)
    ]


def make_tool(text: Forgery, name: str) -> dict[str, Any]:
    """Return a definition with the text in its descriptions, parameters and their types."""
    one, two, _ = text
    properties = {
        one: {"type": two, "description": one},
        f"p{two}": {"type": ["string", one], "description": two},
        "q": {"anyOf": [{"type": two}], "description": f"{one}\n{two}", "enum": [one]},
    }
    parameters = {"type": "object", "properties": properties, "required": ["q"]}
    function = {"name": name, "description": f"{one}\n{two}", "parameters": parameters}
    return {"type": "function", "function": function}


def make_request(text: Forgery, layout: str) -> BuildRequest:
    """Return a request with the text wherever a request lets strangers in."""
    one, two, _ = text
    both = f"{one}\n{two}"
    limits = {"layout": layout, "memory_limit": None, "max_tokens": 1_000_000}
    run = [{"content": both}, *make_rows(text)[1:5], {"role": "AI", "content": both}]
    metadata = {
        "user_profile": {"prompt_overrides": {"friends_profile": both}},
        "client_timestamp_utc": NOW.isoformat(),
        "context": {**limits, "past": make_rows(text), "blocks": {OWN_TAG: both}},
    }
    # only names that an API takes get here; others are read from the block itself
    content = {"history": run, "tools": [make_tool(text, "search")], "metadata": metadata}
    return BuildRequest.model_validate({"id": "q", "owner_key": "o", "content": content})


def shorten(text: Forgery) -> Iterator[Block]:
    """Yield the blocks that a short budget shortens, and those that replace others."""
    profile = {"prompt_overrides": {"friends_profile": f"{text.first}\n{text.second}"}}
    made: Any = {"id": "s", "owner_key": "o", "summarizer": "s", "fingerprint": "f", "created": NOW}
    facts = Facts(
        current_input="",
        history=read_rows(make_rows(text)),
        tools=tuple(make_tool(text, name) for name in (text.first, "search", text.second)),
        profile=profile,
        memory=MemoryView(limit=None, tool_results="printed"),
        recall_tool=True,
        not_shown=NotShown(messages=7, results=3, handle="k3j2m7qa"),
        summaries=tuple(Summary(text=t, message_ids=("m0",), tokens=1, **made) for t in text[:2]),
    )
    offered = capabilities(facts)
    # the steps down of the tools in turn: all, without descriptions of parameters, names alone
    steps = (([e.text, *e.shorter][: n + 1][-1], e) for n, e in enumerate(offered.entries))
    yield _with(offered, (replace(entry, text=text) for text, entry in steps))
    block = recalled(facts)
    yield _with(block, insert_day_lines(block.entries))
    yield _with(block, [fetched(m, FetchView()) for m in facts.history if m.role is not Role.OTHER])
    for block in (shared_memory(facts), friends_info(facts), native_history(facts)):
        cuts = (entry.shorten(text.chars) for entry in block.entries if entry.shorten)
        yield _with(block, cuts)
    yield _with(block, (form.entry for form in list_summary_forms(facts, block)))
    yield this_moment(replace(facts, current_input=f"{text.first}\n{text.second}"))


def _with(block: Block, entries: Iterable[Entry]) -> Block:
    entries = tuple(entries)
    return replace(block, entries=entries, native=any(entry.native for entry in entries))


def converse(text: Forgery) -> list[Any]:
    """Return what is sent of a conversation in process, and messages of other shapes."""
    one, two, _ = text
    config = ContextConfig(max_tokens=1_000_000, correlate_results=True)
    manager = CoordinationContextManager("main", [one], config=config, clock=lambda: NOW)
    manager.set_current_conversation("main")
    manager.add_message(SimpleNamespace(body=two, sender=one, to=two, thread=None))
    manager.add_session_start_message({"Agent": one}, conversation_id="main")
    manager.add_coordination_command(one, two)
    call = {"id": f"{one}1", "name": one, "arguments": {two: one}}
    manager.add_assistant_message(two, [call], conversation_id="main")
    manager.add_tool_result(tool_call_id=f"{one}1", name=one, result=two, conversation_id="main")
    manager.add_user_message(one, name=two, conversation_id="main")
    said = {"type": "text", "text": one}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": [said, two]}
    used = {"type": "tool_use", "id": "c1", "name": "f", "input": {one: [two]}}
    function = {"name": one, "arguments": json.dumps({two: one})}
    chosen = [{"id": one, "type": "function", "function": function}]
    others: tuple[Row, ...] = (
        {"role": "user", "content": [said, two, result]},
        {"role": "assistant", "content": [said, used]},
        {"role": "assistant", "content": one, "tool_calls": chosen, "function_call": function},
        {"role": "tool", "content": one, "tool_call_id": two},
        {"role": "model", "parts": [{"text": two}, {"functionCall": {"args": {two: one}}}]},
    )
    manager.set_tool_definitions([make_tool(text, one)])
    sent = [manager.build_messages(conversation_id="main"), manager.get_tool_definitions()]
    return [*sent, *map(prepare, others), create_summary_message(f"{one}\n{two}", generated=NOW)]


# --- judging ---------------------------------------------------------------------------------

#: Keys of texts in messages of any form.
_TEXTS: Final = frozenset({"text", "content", "output", "result"})
_BLOCK: Final = re.compile(r"\[[A-Z]{3}")

#: The findings by the law, by a reader who folds everything, and by tokenizers.
FIGURES: Final = ("broke_the_law", "forged", "marks")


def find_blocks(contexts: Mapping[str, Iterable[Any]]) -> dict[str, list[int]]:
    """Return which texts of contexts with harmless words are blocks; all others are native."""
    return {
        name: [index for index, text in enumerate(_shown(sent)) if _BLOCK.match(text)]
        for name, sent in contexts.items()
    }


def look(
    contexts: Mapping[str, Sequence[Any]], blocks: Mapping[str, Sequence[int]]
) -> dict[tuple[str, str], list[str]]:
    """Read messages, tools and bodies as all readers do; by figure and kind of context.

    Models find no structure in native messages, but tokenizers read them too.
    """
    seen: dict[tuple[str, str], list[str]] = {key: [] for key in product(FIGURES, contexts)}
    for name, sent in contexts.items():
        law, structure, tokens = (seen[figure, name] for figure in FIGURES)
        tokens += (token for _, text in _read(sent) for token in find_tokens(text))
        texts = _shown(sent)
        structure.append(f"{len(texts)} texts")
        for text in (texts[index] for index in blocks[name] if index < len(texts)):
            law += read_law(text)
            structure += read_structure(text)
    return seen


def _read(sent: Iterable[Any]) -> Iterator[tuple[str, str]]:
    return chain.from_iterable(map(read_texts, sent))


def _shown(sent: Iterable[Any]) -> list[str]:
    return [text for key, text in _read(sent) if key in _TEXTS]


async def build(builder: ContextBuilder, text: Forgery) -> dict[str, list[Any]]:
    """Return all that is sent with the text in every place, by kind of context."""
    contexts: dict[str, list[Any]] = {"in process": converse(text)}
    contexts["shortened"] = render(shorten(text))
    for layout in LAYOUTS:
        answer = (await builder.build(make_request(text, layout))).content
        if answer.status != "success":
            raise RuntimeError(answer.error.detail)
        messages, tools = answer.messages, answer.tools
        bodies = (build_provider_request(form, messages, tools) for form in FORMATS)
        contexts[layout] = [*messages, *tools, *bodies]
    return contexts


async def judge(
    texts: Callable[[Sequence[str]], Iterable[Forgery]], settings: Settings
) -> Counter[str]:
    """Count the texts with which something else is found than with harmless words.

    The texts may be made of the lines that contexts have with these.
    """
    wrong: Counter[str] = Counter()
    async with open_builder(settings) as builder:
        harmless = await build(builder, HARMLESS)
        blocks = find_blocks(harmless)
        expected = look(harmless, blocks)
        shown = [text for sent in harmless.values() for text in _shown(sent)]
        for text in texts(sorted(set("\n".join(shown).split("\n")))):
            try:
                seen = look(await build(builder, text), blocks)
            except Exception as error:  # noqa: BLE001 - that none comes is what is measured
                found = {"crashes": repr(error)}
            else:
                found = {
                    key[0]: f"{key[1]}: {[piece for piece in seen[key] if piece not in sound][:2]}"
                    for key, sound in expected.items()
                    if seen[key] != sound
                }
            wrong.update(found.keys())
            if found and wrong.total() < MAX_EXAMPLES:
                print(f"{text}: {found}", file=sys.stderr)
    return wrong


def judge_texts(texts: Sequence[str]) -> Counter[str]:
    """Judge given texts, with real counts."""
    forgeries = [split(text, Draw(number)) for number, text in enumerate(texts)]
    return asyncio.run(judge(lambda _: forgeries, Settings()))


def judge_numbers(seed: int, numbers: Iterable[int]) -> Counter[str]:
    """Judge the forgeries of some numbers."""
    settings = Settings(budget=BudgetSettings(tokenizer=HEURISTIC.name))
    return asyncio.run(judge(lambda lines: (forge(seed, n, lines) for n in numbers), settings))


def judge_generated(count: int, seed: int) -> Counter[str]:
    """Judge forgeries on all cores."""
    chunks = [range(start, min(start + CHUNK, count)) for start in range(0, count, CHUNK)]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        return sum(pool.map(partial(judge_numbers, seed), chunks), Counter())


# --- ordinary text ---------------------------------------------------------------------------


def measure_data(data: Path) -> dict[str, dict[str, float]]:
    """Return by data set the shares of lines and inputs with the gutter, and of more tokens."""
    count = get_token_counter().count
    figures: dict[str, dict[str, float]] = defaultdict(dict)
    for path in sorted(data.glob("*.jsonl.gz")):
        said = [
            (message["role"], message["content"])
            for row in read_lines(path)
            for message in row.get("messages", ())
            if isinstance(message["content"], str) and message["content"].strip()
        ]
        if not said:
            continue
        rows = [(text, GUARD.quote(text, Place.ROW)) for _, text in said]
        further = [line for _, row in rows for line in row.split("\n")[1:] if line.strip()]
        asked = [text for role, text in said if role in {"human", "user"}]
        inputs = [this_moment(Facts(current_input=text)).text for text in asked]
        added = sum(count(row) - count(text) for text, row in rows if row != text)
        for key, part, whole in (
            ("guttered_share", _guttered(further), len(further)),
            ("guttered_inputs", _guttered(inputs), len(inputs)),
            ("tokens_added", added, sum(count(text) for text, _ in rows)),
        ):
            figures[key][path.name.partition(".")[0]] = round(part / max(whole, 1), 5)
    return figures


def _guttered(texts: Iterable[str]) -> int:
    return sum("\n| " in f"\n{text}" for text in texts)


#: Patterns that have cost guards, parsers or regular expressions much.
COSTLY: Final = (
    *("[", "\n", "\r", "\r\n", "\n[", "\n| ", "\n \n", "\na", "a\u0301", "a\u200d", "\u200d"),
    *("<|a|>", "<|", "<", "<\\", "\\", "<|im_start|>", "[INST]", "</s>", "<" * 64 + "a", "<a" * 32),
    *("<\uff5c", "]~b]", "[Round ", " \u041f", '"', '"\\', "[[", "[1,", " \n", "\u2028["),
    *('"<s>', '"\\n<s>"', '\\"<s>"', "\\]~b]", "\n[#1", "\n| | [#1", "<tool_call>", "\u0345a:"),
    *("\U000e0041", "1 2 \U000e0041\u2009\u2228<b>&\\</s>", "\U0001f600", "\u200b"),
)


#: A way in which the guard works on a text.
Work = Callable[[Guard, str], str]


def measure_cost(data: Path) -> dict[str, float]:
    """Return the CPU of the guard, in microseconds a kilobyte."""
    rows = read_lines(data / "locomo.jsonl.gz")
    said = [message["content"] for row in rows for message in row["messages"]]
    works: list[Work] = [partial(Guard.quote, place=place) for place in Place]
    costly = [pattern * (50_000 // len(pattern)) for pattern in COSTLY]
    costly.append("".join(map(chr, range(0xA0, 0xD800))))
    usual = max(_cost(work, said) for work in works)
    worst = max(_cost(work, [text]) for text in costly for work in (*works, Guard.shatter_json))
    return {"us_per_kb": round(usual, 1), "us_per_kb_worst": round(worst, 1)}


def _cost(work: Work, texts: Sequence[str]) -> float:
    seconds = []
    for _ in range(3):
        guard = Guard(GUARD.tokens)  # with nothing cached
        started = time.process_time()
        for text in texts:
            work(guard, text)
        seconds.append(time.process_time() - started)
    return min(seconds) * 1e6 / sum(len(text.encode()) / 1_000 for text in texts)


def measure(data: Path, generated: int, seed: int) -> dict[str, Any]:
    """Return the figures; examples of what went wrong are printed."""
    texts = [row["text"] for row in read_lines(data / "injections.jsonl.gz")]
    wrong = judge_texts(texts) + judge_generated(generated, seed)
    return {
        "texts": len(texts),
        "generated": generated,
        **{figure: wrong[figure] for figure in (*FIGURES, "crashes")},
        **measure_data(data),
        **measure_cost(data),
    }


def main() -> None:
    """Measure and print."""
    parser = over_data(__doc__)
    parser.add_argument("--generated", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    show(measure(options.data, options.generated, options.seed), as_json=options.json)


if __name__ == "__main__":
    main()
