"""Two builds, side by side."""

from typing import Any

from service.audit.compare import Change, Comparison, NameChanges
from service.audit.compare import compare as compare_reports
from service.audit.reports import block_of, make_report, report_content
from service.wire.response import BuildSuccess, DecisionRecord, Usage, WarningRecord
from tests.support import NOW, MakeBuilder, MakeRequest

MEMORY = "[SHARED_MEMORY count=2]\nRecent conversation memory:\n[10:00] Human: one"


def build(*messages: dict[str, Any], **more: Any) -> BuildSuccess:
    """Return a build that sends these messages."""
    usage = Usage(
        model=None,
        tokenizer="words",
        exact=True,
        budget=8000,
        reserve=2000,
        available=6000,
        total=30,
        tools=0,
        utilization=0.0,
        cacheable_prefix=10,
        blocks={"A": 10, "B": 20},
    ).model_copy(update=more.pop("usage", {}))
    given = {"tools": [], "usage": usage, "build_id": "bld_1", "kept": 0, "dropped": 0, **more}
    return BuildSuccess(messages=list(messages), **given)


def compare(a: BuildSuccess, b: BuildSuccess) -> Comparison:
    """Compare the reports of two builds, with their texts."""
    return compare_reports(report_content(a, full=True), report_content(b, full=True))


def said(role: str, content: str, **more: Any) -> dict[str, Any]:
    """Return a message."""
    return {"role": role, "content": content, **more}


def decided(*ids: str, decision: str = "kept", reason: str = "fits") -> DecisionRecord:
    """Return a decision on messages."""
    return DecisionRecord(
        message_ids=list(ids), block="SHARED_MEMORY", decision=decision, reason=reason, detail=""
    )


def tool(name: str, **function: Any) -> dict[str, Any]:
    """Return a tool."""
    return {"type": "function", "function": {"name": name, **function}}


def test_a_build_is_identical_to_itself() -> None:
    """Nothing differs, and the tokens are listed all the same."""
    same = build(said("system", "hi"), tools=[tool("f")], decisions=[decided("m1")], kept=1)

    found = compare(same, same.model_copy(update={"build_id": "bld_2"}))

    assert found.identical
    assert (found.a, found.b) == ("bld_1", "bld_2")
    assert (found.settings, found.history, found.messages) == ((), (), ())
    assert found.tools == NameChanges()
    assert [change.name for change in found.tokens] == [
        *("A", "B", "tools", "total", "cacheable_prefix")
    ]


def test_settings_that_differ_are_named() -> None:
    """Only requested options count as settings, and only if they differ."""
    found = compare(build(), build(usage={"model": "gpt-5", "budget": 4000, "total": 9}))

    assert found.settings == (
        Change(name="model", a=None, b="gpt-5"),
        Change(name="budget", a=8000, b=4000),
    )
    assert found.identical


def test_a_block_that_one_build_lacks_has_no_tokens_there() -> None:
    """Null is not 0: the block isn't there."""
    found = compare(build(), build(usage={"blocks": {"A": 10, "C": 5}}))

    assert found.tokens[:3] == (
        Change(name="A", a=10, b=10),
        Change(name="B", a=20, b=None),
        Change(name="C", a=None, b=5),
    )


def test_history_is_one_part_in_both_layouts() -> None:
    """A memory block and native messages hold the same turns, so their tokens are one line."""
    tagged = build(usage={"blocks": {"A": 10, "SHARED_MEMORY": 90}})
    native = build(usage={"blocks": {"A": 10, "HISTORY": 40}})

    assert compare(tagged, native).tokens[1] == Change(name="HISTORY", a=90, b=40)
    assert compare(tagged, tagged).tokens[1] == Change(name="SHARED_MEMORY", a=90, b=90)


def test_messages_that_were_not_read_are_counted() -> None:
    """Next to those that were dropped, so that both can be seen as left out."""
    unread = DecisionRecord(block="B", decision="not_read", reason="not_read", detail="", count=7)
    found = compare(build(kept=1, dropped=2, decisions=[unread]), build(kept=3, dropped=7))

    assert found.outcomes == (
        Change(name="kept", a=1, b=3),
        Change(name="dropped", a=2, b=7),
        Change(name="not_read", a=7, b=0),
    )


def test_tools_are_compared_by_name() -> None:
    """A tool that stays may still have another definition."""
    found = compare(
        build(tools=[tool("gone"), tool("same"), tool("other")]),
        build(tools=[tool("same"), tool("other", description="new"), tool("new")]),
    )

    assert (found.tools.added, found.tools.removed) == (("new",), ("gone",))
    assert found.tools.changed == ("other",)
    assert not found.identical


def test_history_reports_what_became_of_a_message_on_either_side() -> None:
    """A message is listed where its outcome or the reason differs, or where one never saw it."""
    old = decided("m1", "m2", decision="dropped", reason="older")
    first = build(decisions=[old, decided("m3")], kept=1, dropped=2)
    second = build(decisions=[decided("m2"), decided("m3", "m4")], kept=3)

    found = compare(first, second)

    assert found.explained
    assert [(each.message_id, each.a, each.b) for each in found.history] == [
        ("m1", old, None),
        ("m2", old, decided("m2")),
        ("m4", None, decided("m3", "m4")),
    ]


def test_without_decisions_history_is_not_compared() -> None:
    """A build that had candidates and lists no decision doesn't make all of them new."""
    found = compare(build(kept=1), build(kept=1, decisions=[decided("m1")]))

    assert not found.explained
    assert found.history == ()


def test_a_message_with_other_words_shows_the_lines() -> None:
    """Messages of one role and block belong together, in any position."""
    before = build(said("system", "core"), said("user", MEMORY), said("user", "[MOOD]\ncalm"))
    after = build(said("system", "core"), said("user", MEMORY.replace("one", "two")))

    changed, gone = compare(before, after).messages

    assert (changed.block, changed.a, changed.b) == ("SHARED_MEMORY", 1, 1)
    assert changed.lines == ("@@ -3 +3 @@", "-[10:00] Human: one", "+[10:00] Human: two")
    assert (gone.block, gone.a, gone.b) == ("MOOD", 2, None)
    assert gone.lines == ("@@ -1,2 +0,0 @@", "-[MOOD]", "-calm")


def test_a_message_that_was_put_in_moves_no_other() -> None:
    """A changed position alone is no difference."""
    history = [said("user", f"number {n}") for n in range(4)]

    (new,) = compare(build(*history[1:]), build(*history)).messages

    assert (new.role, new.block, new.a, new.b) == ("user", None, None, 0)


def test_calls_are_lines_too() -> None:
    """What a message holds besides its words is compared as JSON."""
    one, other = ({"id": name, "function": {"name": "f"}} for name in "ab")

    (changed,) = compare(
        build(said("assistant", "", tool_calls=[one])),
        build({"role": "assistant", "content": None, "tool_calls": [other]}),
    ).messages

    lines = changed.lines or ()
    assert any(line.startswith("+") and '"id": "b"' in line for line in lines)


def test_warnings_of_one_side_are_reported() -> None:
    """A warning that both have is no difference."""
    shared, own = (WarningRecord(code=code, detail="") for code in ("shared", "own"))

    found = compare(build(warnings=[shared]), build(warnings=[own, shared]))

    assert (found.warnings_a, found.warnings_b) == ((), (own,))


def test_only_a_tag_at_the_beginning_names_a_block() -> None:
    """Words before it, or small letters, make it ordinary text."""
    assert block_of(said("user", "[THIS_MOMENT]\nnow")) == "THIS_MOMENT"
    assert block_of(said("user", MEMORY)) == "SHARED_MEMORY"
    for text in ("see [THIS_MOMENT]", "[this]", ""):
        assert block_of(said("user", text)) is None
    assert block_of({"role": "assistant", "content": None}) is None


def test_without_texts_it_is_still_known_what_differs() -> None:
    """By their digests; the lines are not known."""
    before, after = build(said("user", MEMORY)), build(said("user", MEMORY.replace("one", "two")))
    a, b = (report_content(each, full=False) for each in (before, after))

    (changed,) = compare_reports(a, b).messages

    assert (changed.block, changed.lines) == ("SHARED_MEMORY", None)
    assert not compare_reports(a, b).identical
    assert compare_reports(a, a).identical


def test_settings_of_the_workers_that_differ_are_listed() -> None:
    """By their dotted paths, after those of the request."""
    report = report_content(build(), full=False)
    a = report.model_copy(update={"settings": {"memory.limit": 5, "prompts.sections": "set"}})
    b = report.model_copy(update={"settings": {"prompts.sections": "set", "memory.header": "x"}})
    assert compare_reports(a, b).settings == (
        Change(name="memory.header", a=None, b="x"),
        Change(name="memory.limit", a=5, b=None),
    )


async def test_strategy_layout_and_options_of_two_reports_are_compared(
    make_builder: MakeBuilder, make_request: MakeRequest
) -> None:
    """Those that a build really had, whether its request or its worker chose them."""
    builder = make_builder()
    reports = [
        make_report(await builder.build_or_raise(request), at=NOW, content="full", settings=own)
        for request, own in (
            (make_request(memory_limit=4), {}),
            (
                make_request(strategy="relevance", layout="chat", memory_tokens=900),
                {"preset": "recall"},
            ),
        )
    ]
    found = {
        each.name: (each.a, each.b) for each in compare_reports(reports[0], reports[1]).settings
    }

    assert found["strategy"] == ("oldest_first", "relevance")
    assert found["layout"] == ("tagged", "chat")
    assert found["memory_limit"] == (4, builder.settings.memory.limit)
    assert found["memory_tokens"] == (None, 900)
    assert found["preset"] == (None, "recall")
    assert compare_reports(reports[0], reports[0]).settings == ()


def test_settings_that_are_not_known_are_not_compared() -> None:
    """A response doesn't say them."""
    response = report_content(build(), full=True)
    report = response.model_copy(update={"settings": {"memory.limit": 5}})
    assert compare_reports(response, report).settings == ()
