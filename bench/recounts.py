"""Read a context independently, and count its tokens with tiktoken itself.

Nothing here shares code with the counting of the service: the service's counts are checked against
this, in the laws and over real conversations.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from service.adapters.tokens.encodings import load_encoding
from service.wire.response import BuildSuccess

#: A message as it is sent.
Sent = Mapping[str, Any]

#: The tokens of a message besides its texts.
OVERHEAD: Final = 4

#: Blocks that hold history, each a part of what ``memory_tokens`` caps.
REMEMBERED: Final = ("SHARED_MEMORY", "SUMMARY", "HISTORY", "RECALLED")

#: The least content of `[SHARED_MEMORY]` where there is history, and all of
#: the same of `[FRIENDS_INFO]`.
NO_MEMORY: Final = "(There are previous conversations, but none fits here)"
NO_PROFILE: Final = "[FRIENDS_INFO]\nAbout this friend:\n\n(shortened)"

#: All of the block: a native message may begin with its tag.
_MOMENT: Final = "[THIS_MOMENT]\n"
_SUMMARY: Final = "[CONTEXT SUMMARY"
_JOINT: Final = "\n\n"
_COUNTED: Final = re.compile(r"count=\d+")
#: How `[SHARED_MEMORY]` goes on where it has no rows; no row begins like this.
_NONE: Final = ("(No previous ", "(There are previous ")


@lru_cache(maxsize=50_000)
def tokens(text: str) -> int:
    """Return the tokens of a text."""
    return len(load_encoding("o200k_base").encode_ordinary(text))


def cost(message: Sent) -> int:
    """Return the tokens of a message: its texts, each counted alone, and the overhead.

    Parts of a provider repeat texts of the message, or are sent in addition to them.
    """
    functions = [call["function"] for call in message.get("tool_calls", ())]
    texts = Counter(text for each in functions for text in (each["name"], each["arguments"]))
    texts[message["content"]] += 1
    repeated = texts + Counter(_compact(json.loads(each["arguments"])) for each in functions)
    texts += Counter(words(message.get("provider_parts"))) - repeated
    return OVERHEAD + sum(tokens(text) * number for text, number in texts.items())


def words(value: object) -> Iterator[str]:
    """Yield the texts in provider parts, but for kinds and ids; arguments of calls as JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from words(each)
    elif isinstance(value, dict):
        for key, each in value.items():
            if key in ("input", "args"):
                yield _compact(each)
            elif key not in ("type", "id", "call_id", "role", "status"):
                yield from words(each)


def cost_of_tools(tools: Sequence[Mapping[str, Any]]) -> int:
    """Return the tokens of the ``tools`` array as compact JSON."""
    return tokens(_compact(tools)) if tools else 0


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Parts:
    """The blocks of a context, as found in its messages."""

    #: The text of each block that is no native message, in order.
    texts: dict[str, str] = field(default_factory=dict)
    #: The messages of ``HISTORY`` and ``RUN``.
    native: dict[str, Sequence[Sent]] = field(default_factory=dict)
    #: The tokens of each block, by tag.
    costs: dict[str, int] = field(default_factory=dict)

    @property
    def remembered(self) -> int:
        """Return the tokens of all that holds history."""
        return sum(self.costs.get(tag, 0) for tag in REMEMBERED)


def parts_of(content: BuildSuccess) -> Parts:
    """Find the blocks of a context by their tags.

    Raises:
        ValueError: The messages are not those of the blocks that the usage names.
    """
    messages = content.messages
    moment = _moment(messages, content.usage.blocks.get("RUN", 0))
    tagged = "SHARED_MEMORY" in content.usage.blocks
    before = [tag for tag in content.usage.blocks if tag not in ("THIS_MOMENT", "RUN")]
    parts = Parts()
    if tagged:
        _read_tagged(before, messages[:moment], parts)
    else:
        _read_chat(before, messages[:moment], parts)
    _add(parts, "THIS_MOMENT", messages[moment])
    if "RUN" in content.usage.blocks:
        parts.native["RUN"] = run = messages[moment + 1 :]
        parts.costs["RUN"] = sum(map(cost, run))
    return parts


def newest_group(run: Sequence[Sent]) -> Sequence[Sent]:
    """Return the last message that is no tool result, with all after it."""
    callers = [place for place, message in enumerate(run) if message["role"] != "tool"]
    return run[callers[-1] :] if callers else ()


def floor(parts: Parts, *, layout: str, tools: int, history: bool = True) -> int:
    """Return the tokens of the protected parts, found in a context that lacks nothing.

    ``parts`` are those of the `tagged` layout, where every block is alone. History may be
    whole if that takes less than the note that none fits, unless the strategy leaves some of it
    out at any budget: then ``history`` is false.
    """
    identity, skills, profile = (
        parts.texts[tag] for tag in ("CORE_IDENTITY", "CAPABILITIES", "FRIENDS_INFO")
    )
    skills = _least_skills(skills)
    profiles = (profile, NO_PROFILE) if _has_words(profile) else (profile,)
    fixed = tools + tokens(parts.texts["THIS_MOMENT"]) + OVERHEAD
    fixed += sum(map(cost, newest_group(parts.native.get("RUN", ()))))
    if layout == "chat":
        joined = (_JOINT.join((skills, each)) for each in profiles)
        return fixed + 2 * OVERHEAD + tokens(identity) + min(map(tokens, joined))
    memory = parts.texts["SHARED_MEMORY"]
    heading, _, rows = memory.partition("\n\n")
    least = f"{_COUNTED.sub('count=0', heading)}\n\n{NO_MEMORY}"
    memories = [memory] if history or rows.startswith(_NONE) else []
    if not rows.startswith(_NONE):
        memories.append(least)
    alone = tokens(identity) + tokens(skills) + min(map(tokens, profiles))
    return fixed + 4 * OVERHEAD + alone + min(map(tokens, memories))


def unanswered(messages: Iterable[Sent]) -> list[str]:
    """Return what is wrong with calls and results: each answered once, right after its call."""
    wrong: list[str] = []
    open_calls: list[str] = []
    seen: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in open_calls:
                wrong.append(f"the result of {message['tool_call_id']!r} answers no call")
            else:
                open_calls.remove(message["tool_call_id"])
            continue
        wrong += [f"the call {id_!r} has no result" for id_ in open_calls]
        open_calls = [call["id"] for call in message.get("tool_calls", ())]
        wrong += [f"the call id {id_!r} is used twice" for id_ in open_calls if id_ in seen]
        seen.update(open_calls)
    return wrong + [f"the call {id_!r} has no result" for id_ in open_calls]


def _moment(messages: Sequence[Sent], run: int) -> int:
    """Return the place of `[THIS_MOMENT]`: only a run of ``run`` tokens follows it.

    Native messages may begin with the same words, so these alone prove nothing.
    """
    behind = 0
    for place in reversed(range(len(messages))):
        message = messages[place]
        if behind == run and message["role"] == "user" and message["content"].startswith(_MOMENT):
            return place
        behind += cost(message)
    raise ValueError(f"no [THIS_MOMENT] with {run} tokens after it")


def _read_tagged(tags: Sequence[str], messages: Sequence[Sent], parts: Parts) -> None:
    for tag, message in zip(tags, messages, strict=True):
        _add(parts, tag, message)


def _read_chat(tags: Sequence[str], messages: Sequence[Sent], parts: Parts) -> None:
    system, shared, *others = messages
    alone = ("CORE_IDENTITY", "HISTORY", "SUMMARY", "RECALLED")
    _add(parts, "CORE_IDENTITY", system)
    _read_shared([tag for tag in tags if tag not in alone], shared["content"], parts)
    if "SUMMARY" in tags:
        summary, *others = others
        _add(parts, "SUMMARY", summary)
    if "RECALLED" in tags:
        *others, recalled = others
        _add(parts, "RECALLED", recalled)
    parts.native["HISTORY"] = others
    parts.costs["HISTORY"] = sum(map(cost, others))


def _read_shared(tags: Sequence[str], text: str, parts: Parts) -> None:
    """Divide the text that several blocks share; each costs what it adds to those before it."""
    ends = [*_ends(tags[1:], text), len(text)]
    start = reported = 0
    for place, (tag, end) in enumerate(zip(tags, ends, strict=True)):
        upto = tokens(text[:end])
        parts.texts[tag] = text[start:end].removeprefix(_JOINT)
        parts.costs[tag] = upto - reported + (0 if place else OVERHEAD)
        start, reported = end, upto


def _ends(following: Sequence[str], text: str) -> Iterator[int]:
    """Yield where each block ends, which the next one opens with its tag."""
    place = 0
    for tag in following:
        place = text.index(f"{_JOINT}[{tag}]\n", place)
        yield place
        place += len(_JOINT)


def _add(parts: Parts, tag: str, message: Sent) -> None:
    opening = _SUMMARY if tag == "SUMMARY" else f"[{tag}"
    if tag != "CORE_IDENTITY" and not message["content"].startswith(opening):
        raise ValueError(f"the message of [{tag}] opens with {message['content'][:40]!r}")
    parts.texts[tag] = message["content"]
    parts.costs[tag] = cost(message)


def _least_skills(text: str) -> str:
    """Return `[CAPABILITIES]` with nothing but the names of its tools."""
    header, names = [], []
    for line in text.split("\n"):
        if line.startswith("### "):
            names.append(line)
        elif not names:
            header.append(line)
    return "\n".join([*header, *names]) if names else text


def _has_words(profile: str) -> bool:
    """Return whether the profile is somebody's words, which can be cut, and no placeholder."""
    return not profile.partition("\n\n")[2].startswith(
        ("(New friend,", "(Still learning", "Member")
    )
