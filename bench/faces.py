"""Measure the classes in process, next to a peer that trims the same conversation.

    python -m bench.faces [--json] [--rounds 15]

CPU milliseconds, medians of interleaved rounds. `README.md` in this folder explains the keys.
"""

import argparse
import gc
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, Final

from bench.contenders import CONTENDERS, VOCABULARY, langchain_chat, versions
from bench.conversation import conversation
from formatters.model import Row
from service.adapters.tokens.tokenizers import TiktokenCounter
from service.conversation.context_config import ContextConfig
from service.conversation.manager import ContextManager
from service.conversation.pruning import prune_context

#: Tokens for messages, and the first of them.
TOKENS: Final = 4_000
SYSTEM: Final = "Help."
#: The lengths of conversations, in messages.
BUILT: Final = (500, 2_000)
PRUNED: Final = (100, 10_000)
#: The number of messages for langchain-core's `trim_messages`.
PEER: Final = 500
PEER_KEY: Final = f"langchain_memo_{PEER}_ms"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = measured(options.rounds)
    print(json.dumps(result) if options.json else "\n".join(_report(result)))


def measured(rounds: int) -> dict[str, Any]:
    """Return the figures by their keys, and as ratios to the peer's."""
    tasks = dict(_tasks(rounds))
    # what one task keeps is no garbage to another one
    gc.collect()
    gc.freeze()
    figures: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        for key, task in tasks.items():
            figures[key].append(task())
    medians = {key: statistics.median(values) for key, values in figures.items()}
    peer = medians.get(PEER_KEY)
    ratios = {key: round(value / peer, 2) if peer else None for key, value in medians.items()}
    return {
        **{key: round(value, 3) for key, value in medians.items()},
        PEER_KEY: None if peer is None else round(peer, 3),
        "times_langchain_memo_500": ratios,
        "peers": versions(),
        "rounds": rounds,
    }


def _tasks(rounds: int) -> Iterator[tuple[str, Callable[[], float]]]:
    """Yield each key with a function that measures it once."""
    for length in BUILT:
        yield f"manager_{length}_ms", _growing(length, rounds)
    yield f"manager_{BUILT[0]}_cold_ms", lambda: _cpu_ms(_manager(BUILT[0]).build)
    for length in PRUNED:
        yield f"prune_{length}_ms", _pruning(length, rounds)
    if CONTENDERS["langchain_memo"].installed:
        trim = langchain_chat([{"role": "system", "content": SYSTEM}, *messages(PEER)], TOKENS)
        trim()
        yield PEER_KEY, lambda: _cpu_ms(trim)


def _growing(length: int, rounds: int) -> Callable[[], float]:
    """Return a function that adds a message to a conversation and builds a context."""
    manager = _manager(length)
    manager.build()
    later = iter(messages(length + rounds)[length:])

    def build() -> float:
        manager.add_message_dict(next(later))
        return _cpu_ms(manager.build)

    return build


def _manager(length: int) -> ContextManager:
    counter = TiktokenCounter(VOCABULARY)
    config = ContextConfig(max_tokens=TOKENS, reserve_tokens=0)
    manager = ContextManager(config, system_prompt=SYSTEM, token_counter=counter)
    for message in messages(length):
        manager.add_message_dict(message)
    return manager


def _pruning(length: int, rounds: int) -> Callable[[], float]:
    """Return a function that prunes a history, longer by a message each time."""
    history = messages(length + rounds + 1)
    prune_context(history[:length], TOKENS)
    lengths = iter(range(length + 1, len(history)))

    def prune() -> float:
        rows = history[: next(lengths)]
        return _cpu_ms(lambda: prune_context(rows, TOKENS))

    return prune


def messages(length: int) -> list[Row]:
    """Return chat messages; in every ten of them, one calls a tool and the next is its result."""
    roles = {"HUMAN": "user", "AI": "assistant"}
    said: list[Row] = []
    for number, row in enumerate(conversation(length)):
        text = row["content"]
        if number % 10 == 5:
            function = {"name": "search", "arguments": json.dumps({"query": text})}
            call = {"id": f"c{number}", "type": "function", "function": function}
            said.append({"role": "assistant", "content": None, "tool_calls": [call]})
        elif number % 10 == 6:
            said.append({"role": "tool", "tool_call_id": f"c{number - 1}", "content": text})
        else:
            said.append({"role": roles[row["role"]], "content": text})
    return said


def _cpu_ms(act: Callable[[], object]) -> float:
    began = time.process_time()
    act()
    return (time.process_time() - began) * 1000


def _report(result: dict[str, Any]) -> Iterator[str]:
    """Yield the lines for a person."""
    if result[PEER_KEY] is None:
        yield "langchain-core is not installed here; see `make bench-env`"
    for key, ratio in result["times_langchain_memo_500"].items():
        yield f"{key:<26}{result[key]:>10}{'-' if ratio is None else ratio:>10}"


if __name__ == "__main__":
    main()
