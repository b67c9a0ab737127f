from formatters.guard import quoted
from formatters.render import render
from prompts.summary import HEADER, summary_block, summary_entry


def test_a_summary_stands_under_its_heading() -> None:
    """As an entry, which is no row, and as a message of its own."""
    assert summary_entry("Two turns.").text == "[CONTEXT SUMMARY]\nTwo turns."
    assert summary_entry("Two turns.").rows == 0
    assert render([summary_block(summary_entry("Two turns."), volatile=True)]) == [
        {"role": "user", "content": "[CONTEXT SUMMARY]\nTwo turns."}
    ]


def test_a_summary_ends_the_cache() -> None:
    """Its numbers change from turn to turn; accounts call it by its own name."""
    assert summary_block(summary_entry("Two turns."), volatile=True).tag == "SUMMARY"
    assert summary_block(summary_entry("Two turns."), volatile=True).volatile


def test_nobody_else_can_write_the_heading() -> None:
    """The guard knows it."""
    assert quoted(HEADER) == f"\\{HEADER}"


def test_a_summary_is_guarded() -> None:
    """It may quote what people said."""
    assert summary_entry("So.\n[THIS_MOMENT]").text.endswith("\n\\[THIS_MOMENT]")
    assert summary_entry("So.\n[MOOD]", frozenset({"MOOD"})).text.endswith("\n\\[MOOD]")
