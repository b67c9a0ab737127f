import pytest

from formatters.model import Facts, TrimPolicy
from prompts.identity import CORE_IDENTITY, PLAIN, QUOTING, WITHOUT_CAPABILITIES
from prompts.system_prompt import core_identity
from service.adapters.tokens.encodings import load_encoding


def test_opens_with_the_name() -> None:
    """The identity opens by saying who is meant, and has no blank edges."""
    assert CORE_IDENTITY.startswith("# You are Nexus\n")
    assert CORE_IDENTITY.strip() == CORE_IDENTITY


@pytest.mark.parametrize(
    "word",
    [
        "Nexus",
        "dialogue space",
        "friend",
        "servant",
        "[CAPABILITIES]",
        "[SHARED_MEMORY]",
        "[FRIENDS_INFO]",
        "[THIS_MOMENT]",
        "[MOOD]",
        "<current_time>",
        "<human_input>",
        "count=N",
        "[YYYY-MM-DD HH:MM] Human:",
        "`  Nexus: ",
        "[tool_use:",
        "begins with `| ` is quoted",
        "and no others",
        "[RECALLED]",
        "[CONTEXT SUMMARY]",
        "context, not instruction",
        "language of `<human_input>`",
    ],
)
def test_covers(word: str) -> None:
    """The identity explains what the blocks use and what the project promises."""
    assert word in CORE_IDENTITY


def test_length_in_lines() -> None:
    """The identity is about 200 lines, each short enough to review."""
    lines = CORE_IDENTITY.splitlines()

    assert 160 <= len(lines) <= 230
    assert max(map(len, lines)) <= 80


def test_length_in_tokens() -> None:
    """The identity takes between 1,200 and 1,800 tokens of o200k_base."""
    tokens = load_encoding("o200k_base").encode_ordinary(CORE_IDENTITY)

    assert 1_200 <= len(tokens) <= 1_800


@pytest.mark.parametrize("text", [CORE_IDENTITY, WITHOUT_CAPABILITIES, PLAIN, QUOTING])
def test_opens_no_block(text: str) -> None:
    """No line of a text opens with a bracket: a search for blocks finds none in it."""
    assert not [line for line in text.splitlines() if line.lstrip().startswith("[")]


@pytest.mark.parametrize("encoding", ["o200k_base", "cl100k_base"])
def test_the_plain_identity_is_small(encoding: str) -> None:
    """It takes at most 60 tokens, and names the input and no character."""
    assert len(load_encoding(encoding).encode_ordinary(PLAIN)) <= 60
    assert "<human_input>" in PLAIN
    assert "Nexus" not in PLAIN


def test_the_identity_without_capabilities_lacks_their_section_alone() -> None:
    """It doesn't say that tools which no block lists don't exist."""
    lines = CORE_IDENTITY.splitlines()
    first = lines.index("### [CAPABILITIES]")
    last = lines.index("- What is not listed doesn't exist.")

    assert WITHOUT_CAPABILITIES.splitlines() == [*lines[:first], *lines[last + 2 :]]


def test_says_nothing_twice() -> None:
    """No line but a blank one is in the identity twice."""
    lines = [line for line in CORE_IDENTITY.splitlines() if line]

    assert len(set(lines)) == len(lines)


def test_is_the_system_message() -> None:
    """The block is the system message, whole, under any budget."""
    block = core_identity(Facts(current_input=""))

    assert (block.tag, block.role, block.gives_way) == ("CORE_IDENTITY", "system", TrimPolicy.NEVER)
    assert block.text == CORE_IDENTITY
    assert len(block.entries) == 1


def test_the_operators_text_takes_its_place() -> None:
    """It is the same block, as well protected; an empty one is a choice too."""
    own = core_identity(Facts(current_input="", identity="You are Ada."))

    assert (own.tag, own.role, own.gives_way, own.text) == (
        "CORE_IDENTITY",
        "system",
        TrimPolicy.NEVER,
        "You are Ada.",
    )
    empty = core_identity(Facts(current_input="", identity=""))
    assert (empty.text, empty.has_text) == ("", False)


def test_is_the_same_for_everybody() -> None:
    """Two friends share the identity byte for byte."""
    one = Facts(current_input="Hi", profile={"prompt_overrides": {"friends_profile": "Brief."}})
    other = Facts(current_input="Salut", blocks={"MOOD": "calm"})

    assert core_identity(one) == core_identity(other)
