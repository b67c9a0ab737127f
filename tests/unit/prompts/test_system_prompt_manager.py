import copy

from formatters.model import Facts
from prompts.capabilities import capabilities
from prompts.identity import CORE_IDENTITY
from prompts.system_prompt import PromptManager


def test_core_identity_is_the_constant() -> None:
    """The manager hands out the identity as it stands in code."""
    text = PromptManager().get_core_identity()

    assert text == CORE_IDENTITY
    assert text == text.strip()
    assert len(text) > 100


def test_capabilities_are_the_block_as_text() -> None:
    """The manager's text is the one that the builder sends."""
    tools = [{"type": "function", "function": {"name": "clock", "description": "Tell the time"}}]

    text = PromptManager().get_capabilities_prompt(tools)

    assert text == capabilities(Facts(current_input="", tools=tuple(tools))).text
    assert text.endswith("### clock\nTell the time\n")


def test_no_tools() -> None:
    """Without tools the block says that there are none."""
    assert PromptManager().get_capabilities_prompt([]) == (
        "[CAPABILITIES]\nAvailable tools in this conversation:\n\n(No tools available)"
    )


def test_definitions_stay_untouched() -> None:
    """Definitions given to the manager are the caller's and stay as they are."""
    tools = [{"function": {"name": "f\n", "parameters": {"properties": {"a": {"type": "string"}}}}}]
    before = copy.deepcopy(tools)

    PromptManager().get_capabilities_prompt(tools)

    assert tools == before
