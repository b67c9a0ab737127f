"""Sections of a prompt, and their order."""

from prompts.system_prompt import ContextSection, PersistentContext


def test_sections_stand_below_their_labels() -> None:
    """The example of neuron-context: what has the lower priority goes first."""
    context = PersistentContext()
    context.add_section(ContextSection("Output rules", "Always show code.", 10))
    context.add_section(ContextSection("Role", "You are a senior Python engineer.", 0))

    assert context.render() == (
        "## Role\nYou are a senior Python engineer.\n\n## Output rules\nAlways show code."
    )


def test_sections_of_one_priority_keep_their_order() -> None:
    """The order in which they were added decides between equals."""
    context = PersistentContext(ContextSection(label, "x") for label in "ba")
    context.add_section(ContextSection("first", "x", -1))

    assert context.render() == "## first\nx\n\n## b\nx\n\n## a\nx"


def test_nothing_is_trimmed() -> None:
    """Labels and contents are the caller's, an empty label too; no sections are no text."""
    assert PersistentContext([ContextSection("", " Some content \n")]).render() == (
        "## \n Some content \n"
    )
    assert PersistentContext().render() == ""
