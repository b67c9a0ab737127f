"""Laws of the messages that are sent: an order that every API takes, and nothing made up."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from bench.recounts import Sent, cost, parts_of, unanswered
from formatters.native import CLEARED
from formatters.rows import CUT_MARK
from service.wire.response import BuildSuccess
from tests.laws.building import (
    CAPS,
    SPARE,
    build,
    built,
    every_strategy,
    of_all_that_fits,
    protected,
    whole,
    written,
)
from tests.laws.examples import ASKED, CHOICES, WORDS, Asked, choices, few
from tests.validity.canonical import canonical


@of_all_that_fits
def test_no_call_is_without_its_result(asked: Asked, content: BuildSuccess) -> None:
    """Each call is answered once, right after it; no result lacks a call, and APIs accept it."""
    assert unanswered(content.messages) == []
    assert canonical(content.messages, content.tools) == []


@of_all_that_fits
def test_order_is_kept(asked: Asked, content: BuildSuccess) -> None:
    """The messages sent are those of the history and of the run, in their order."""
    parts, full = parts_of(content), parts_of(whole(asked))

    assert [tag for tag in full.costs if tag in parts.costs] == [
        tag for tag in parts.costs if tag not in ("SUMMARY", "RECALLED")
    ]
    for tag, messages in parts.native.items():
        assert is_part_of(messages, full.native[tag], shortened=tag == "HISTORY")


@every_strategy
@few
@given(asked=ASKED, spare=SPARE, cap=CAPS, data=st.data())
def test_the_same_again(
    name: str, asked: Asked, spare: int, cap: int | None, data: st.DataObject
) -> None:
    """The same request gives the same answer, and is left as it was."""
    strategy = data.draw(choices(name))
    limits: dict[str, Any] = {
        "max_tokens": protected(asked, strategy) + spare,
        "memory_tokens": cap,
    }
    twin = copy.deepcopy(asked)
    content = build(asked, strategy, **limits)

    assert build(twin, strategy, **limits) == content
    assert twin == asked
    if content.status == "success":
        written(content)


@given(asked=ASKED, strategy=st.sampled_from(CHOICES), words=WORDS)
def test_the_cacheable_prefix_stays(asked: Asked, strategy: str, words: str) -> None:
    """What is called cacheable opens the next build too, which has another input and more rows.

    The last of it may be a block of history that has grown by a line at its end. The law doesn't
    hold for the build that fills a window, which drops its first rows.
    """
    # a call of a run may have the id of an older one, which is renamed while the run lasts
    asked = replace(asked, run=[], context={**asked.context, "memory_limit": None})
    later: dict[str, Any] = {"id": "later", "role": "HUMAN", "content": words, "run_id": "r9"}
    rows = [*asked.past, {**later, "timestamp": "2099-01-01"}]
    after = replace(asked, words="And now?", past=rows)
    content, following = (built(each, strategy) for each in (asked, after))
    assume(content.dropped or not following.dropped)
    sums = list(accumulate(map(cost, content.messages)))
    stable = sums.index(content.usage.cacheable_prefix) + 1

    *opening, last = content.messages[:stable]
    grown = following.messages[stable - 1]
    assert following.messages[: stable - 1] == opening
    assert {**grown, "content": last["content"]} == last
    assert grown["content"] == last["content"] or grown["content"].startswith(
        f"{last['content']}\n"
    )


def is_part_of(messages: Sequence[Sent], of: Sequence[Sent], *, shortened: bool) -> bool:
    """Return whether messages are in others in their order, cleared or shortened at most."""
    others = iter(of)
    return all(any(is_left_of(each, other, shortened) for other in others) for each in messages)


def is_left_of(message: Sent, other: Sent, shortened: bool) -> bool:
    """Return whether a message is another one, or what clearing or shortening leaves of it."""
    said, before = message["content"], other["content"]
    if {**message, "content": before} != other:
        return False
    if said == before or (message["role"] == "tool" and said == CLEARED):
        return True
    # the guard looks at what is left, in which a special token may have been cut
    begun, before = (text.replace("\\", "") for text in (said.removesuffix(CUT_MARK), before))
    return shortened and said.endswith(CUT_MARK) and before.startswith(begun)
