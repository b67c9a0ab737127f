import pytest

from formatters.model import Message, Role, ToolCall
from formatters.repair.matching import match_results

ROLES = {"u": Role.HUMAN, "a": Role.AI, "t": Role.TOOL}


def message(spec: str) -> Message:
    """Read ``name[/run][=name of a tool][:ids, one per call; or of the call that it answers]``.

    A call is ``id.tool``; ``?`` is no id.
    """
    rest, _, ids = spec.partition(":")
    rest, _, tool = rest.partition("=")
    name, _, run = rest.partition("/")
    role = ROLES[name[0]]
    calls = [call.partition(".") for call in ids.split(",") if ids and role is not Role.TOOL]
    return Message(
        id=name,
        role=role,
        content=name,
        run_id=run or None,
        name=tool or None,
        tool_calls=tuple(ToolCall(id=id_.strip("?") or None, name=of) for id_, _, of in calls),
        tool_call_id=(ids or None) if role is Role.TOOL else None,
        provider_parts={} if name.endswith("!") else None,
    )


def answered(specs: str) -> dict[str, str]:
    """Return the results of each call, which is ``message.place``, and of ``unknown`` ones."""
    messages = [message(spec) for spec in specs.split()]
    answers = match_results(messages)
    pairs = {
        f"{messages[caller].id}.{place}": messages[result].id
        for (caller, place), result in answers.by_call.items()
    }
    others = {"duplicates": answers.duplicates, "orphans": answers.orphans}
    left = {key: " ".join(messages[i].id for i in sorted(at)) for key, at in others.items() if at}
    return pairs | left


@pytest.mark.parametrize(
    ("specs", "expected"),
    [
        ("", {}),
        ("u a:c1 t:c1", {"a.0": "t"}),
        ("a:c1,c2 t2:c2 t1:c1", {"a.0": "t1", "a.1": "t2"}),
        ("a1:c1 a2:c2 u t1:c1", {"a1.0": "t1"}),
        ("a:c1 t1:c1 t2:c1", {"a.0": "t1", "duplicates": "t2"}),
        ("a:c1 t:c2", {"orphans": "t"}),
        ("u:c1 t:c1", {"orphans": "t"}),
        ("t0 t1:", {"orphans": "t0 t1"}),
    ],
)
def test_ids(specs: str, expected: dict[str, str]) -> None:
    """A result belongs to the call of its id, in any position; only AI messages call."""
    assert answered(specs) == expected


@pytest.mark.parametrize(
    ("specs", "expected"),
    [
        ("a1:c t1:c a2:c t2:c", {"a1.0": "t1", "a2.0": "t2"}),
        ("a1:c a2:c t1:c t2:c", {"a2.0": "t1", "a1.0": "t2"}),
        ("a:c,c t1:c t2:c", {"a.0": "t1", "a.1": "t2"}),
        ("a1/r1:c a2/r2:c t1/r1:c t2/r2:c", {"a1.0": "t1", "a2.0": "t2"}),
        ("a1/r1:c t1/r1:c a2/r2:c t2/r1:c", {"a1.0": "t1", "duplicates": "t2"}),
        ("a1/r1:c u/r2 t/r2:c", {"a1.0": "t"}),
    ],
)
def test_ids_of_several_calls(specs: str, expected: dict[str, str]) -> None:
    """Of several calls of one id the nearest earlier one counts, if it can in the same run."""
    assert answered(specs) == expected


@pytest.mark.parametrize(
    ("specs", "expected"),
    [
        ("t:c a:c", {"a.0": "t"}),
        ("t1:c a:c t2:c", {"a.0": "t2", "duplicates": "t1"}),
        ("t:c a1:c a2:c", {"a1.0": "t"}),
        ("t/r1:c a/r2:c", {"duplicates": "t"}),
        ("a1/r1:c t/r2:c a2/r2:c", {"a2.0": "t"}),
    ],
)
def test_results_that_came_first(specs: str, expected: dict[str, str]) -> None:
    """A result may precede its call, in the same run, if no later result answers."""
    assert answered(specs) == expected


@pytest.mark.parametrize(
    ("specs", "expected"),
    [
        ("a:? t", {"a.0": "t"}),
        ("a:c1 t", {"a.0": "t"}),
        ("a:?.f,?.g t1=g t2=f", {"a.0": "t2", "a.1": "t1"}),
        ("a:?.f,?.g t1 t2=f", {"a.0": "t2", "a.1": "t1"}),
        ("a:?.f t=other", {"orphans": "t"}),
        ("a:?.f,?.g t1=f t2=f", {"a.0": "t1", "orphans": "t2"}),
        ("a:?.web.search t=web_search_15f83c80", {"a.0": "t"}),
        ("a:?.web_search_15f83c80,?.web_search t=web.search", {"a.0": "t"}),
        ("a1:?.f a2:?.g t1 t2", {"a2.0": "t1", "a1.0": "t2"}),
        ("a:c1.f t1=f t2:c1", {"a.0": "t2", "orphans": "t1"}),
        ("a/r1:?.f t/r2=f", {"orphans": "t"}),
        ("t a:?", {"orphans": "t"}),
        ("a:? t!", {"orphans": "t!"}),
    ],
)
def test_results_without_an_id(specs: str, expected: dict[str, str]) -> None:
    """They answer the nearest earlier call of their run that is left; a named one, of its name."""
    assert answered(specs) == expected


@pytest.mark.parametrize(
    ("specs", "expected"),
    [
        ("a:?,? t1:x t2:y", {"a.0": "t1", "a.1": "t2"}),
        ("a:?.f,?.g t1=g:x t2=f:y", {"a.0": "t2", "a.1": "t1"}),
        ("a:?,c t1:x t2:c t3:y", {"a.0": "t1", "a.1": "t2", "orphans": "t3"}),
        ("a1:c a2:? t1:c t2:c", {"a1.0": "t1", "duplicates": "t2"}),
        ("a:? t:x t2", {"a.0": "t2", "orphans": "t"}),
        ("a:?.f t=g:x", {"orphans": "t"}),
        ("a:? u t:x", {"orphans": "t"}),
        ("a1:? a2 t:x", {"orphans": "t"}),
        ("a/r1:? t1/r2:x t2/r1:y", {"a.0": "t2", "orphans": "t1"}),
        ("t:x a:?", {"orphans": "t"}),
        ("a:? t!:x", {"orphans": "t!"}),
    ],
)
def test_results_with_an_id_that_no_call_has(specs: str, expected: dict[str, str]) -> None:
    """They answer calls without an id in the message that they directly follow."""
    assert answered(specs) == expected


def test_blank_ids() -> None:
    """An id of blanks is none."""
    call = Message(id="a", role=Role.AI, content="", tool_calls=(ToolCall(id=" ", name="f"),))
    result = Message(id="t", role=Role.TOOL, content="", tool_call_id="\n")

    assert match_results([call, result]).by_call == {(0, 0): 1}
