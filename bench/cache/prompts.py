"""Read the messages of a build, and compare their beginning with that of the build before."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from typing import Any, Final

from bench.recounts import OVERHEAD
from formatters.guard import unquoted
from service.adapters.tokens.encodings import load_encoding

#: Characters of a message that have to be there.
CHARS: Final = 450
#: How the messages after history open, and that which is history in the `tagged` layout.
BEHIND: Final = ("[RECALLED", "[THIS_MOMENT]")
MEMORY: Final = "[SHARED_MEMORY"
RECALLED: Final = "[RECALLED"


@dataclass(frozen=True, slots=True)
class Sent:
    """A message, in tokens."""

    role: str
    text: str
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Prompt:
    """The messages of a build, and those of them that hold history."""

    messages: Sequence[Sent]
    recent: Sequence[Sent]
    recalled: Sequence[Sent]


@dataclass(frozen=True, slots=True)
class Step:
    """A build, and the one before it."""

    prompt: Prompt
    before: Prompt | None
    #: The newest messages.
    newest: Sequence[str]


def prompt(messages: Sequence[Mapping[str, Any]]) -> Prompt:
    """Find history in messages, by how these open."""
    sent = [Sent(m["role"], text, _encoded(text)) for m in messages for text in (_text(m),)]
    memory = [each for each in sent if each.text.startswith(MEMORY)]
    behind = [each for each in sent[1:] if not each.text.startswith("[CAPABILITIES]")]
    native = takewhile(lambda each: not each.text.startswith(BEHIND), behind)
    recalled = [each for each in sent if each.text.startswith(RECALLED)]
    return Prompt(sent, memory or list(native), recalled)


def _text(message: Mapping[str, Any]) -> str:
    calls = (call["function"] for call in message.get("tool_calls", ()))
    return "\n".join([message["content"], *(f"{c['name']} {c['arguments']}" for c in calls)])


def same_tokens(now: Sequence[Sent], before: Sequence[Sent]) -> int:
    """Return how many tokens at the beginning are those of other messages."""
    same = 0
    for one, other in zip(now, before, strict=False):
        if one.role != other.role:
            break
        if one.tokens != other.tokens:
            pairs = zip(one.tokens, other.tokens, strict=False)
            return same + sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        same += len(one.tokens)
    return same


def figures(steps: Sequence[Step], budget: int) -> dict[str, Any]:
    """Return means over builds; of shares of what stayed, over those that have one before."""
    pairs = [(step.prompt, step.before) for step in steps if step.before]
    kept = [_share(same_tokens(now.recent, was.recent), now.recent) for now, was in pairs]
    shares = [_cost(s.prompt.recent) / _used(s.prompt) for s in steps]
    return {
        "history_prefix": _mean(kept),
        "whole_prefix": _mean(
            _share(same_tokens(now.messages, was.messages), now.messages) for now, was in pairs
        ),
        "utilisation": _mean(_used(step.prompt) / budget for step in steps),
        "utilisation_most": round(max(_used(step.prompt) / budget for step in steps), 4),
        "recent_share": _mean(shares),
        "recent_share_least": round(min(shares), 4),
        "newest_present": _mean(map(_has_newest, steps)),
        "moves": sum(share < 0.5 for share in kept),
        "builds": len(steps),
    }


def _has_newest(step: Step) -> bool:
    text = unquoted("\n".join(each.text for each in step.prompt.recent))
    return all(unquoted(words[:CHARS].strip()) in text for words in step.newest)


def _share(same: int, messages: Sequence[Sent]) -> float:
    return same / max(sum(len(each.tokens) for each in messages), 1)


def _used(built: Prompt) -> int:
    return _cost(built.recent) + _cost(built.recalled)


def _cost(messages: Sequence[Sent]) -> int:
    return sum(len(each.tokens) + OVERHEAD for each in messages)


def _mean(values: Any) -> float:  # noqa: ANN401 - any iterable of numbers
    return round(statistics.fmean(values), 4)


@lru_cache(maxsize=1_000)
def _encoded(text: str) -> tuple[int, ...]:
    return tuple(load_encoding("o200k_base").encode_ordinary(text))
