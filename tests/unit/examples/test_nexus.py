"""What NEXUS's document shows of its context, as it is done here."""

from formatters.friends_info import FriendsInfoFormatter
from formatters.model import Row
from formatters.shared_memory import MemoryFormatter
from formatters.this_moment import MomentFormatter
from prompts.system_prompt import PromptManager
from service.app import open_builder
from service.wire.protocol import Topics
from tests.support import SEARCH

CALL = {"name": "web_search", "arguments": {"query": "AI development 2025"}, "id": "c1"}
RUN = {"run_id": "r", "timestamp": "2025-12-10T15:30:00Z"}
HISTORY: list[Row] = [  # newest first
    {**RUN, "id": "m4", "role": "AI", "content": "Based on search results..."},
    {**RUN, "id": "m3", "role": "TOOL", "content": "results"},
    {
        **RUN,
        "id": "m2",
        "role": "AI",
        "content": "I'll search...",
        "metadata": {"tool_calls": [CALL]},
    },
    {**RUN, "id": "m1", "role": "HUMAN", "content": "Search for AI"},
]


async def test_five_messages() -> None:
    """The positional call of the document: one message of the system and four blocks."""
    async with open_builder() as builder:
        profile = {"prompt_overrides": {"friends_profile": "I prefer concise, direct answers."}}
        messages = await builder.build_context(
            "0xABC", profile, "What's the capital of France?", "2025-12-10T08:00:00Z", -480
        )

    assert [message["role"] for message in messages] == ["system", *["user"] * 4]
    assert messages[0]["content"].startswith("# You are Nexus")
    assert messages[3]["content"] == (
        "[FRIENDS_INFO]\nAbout this friend:\n\nI prefer concise, direct answers."
    )
    assert messages[4]["content"] == (
        "[THIS_MOMENT]\n<current_time>2025-12-10 16:00:00+08:00</current_time>\n"
        "<human_input>\nWhat's the capital of France?\n</human_input>"
    )


async def test_a_request_of_the_orchestrator() -> None:
    """A run in, messages and tools out, on topics of the same names."""
    run = {
        "id": "run_42",
        "history": [{"id": "m1", "role": "HUMAN", "content": "Hello"}],
        "metadata": {"user_profile": {}, "client_timezone_offset": 0},
    }
    async with open_builder() as builder:
        response = await builder.handle_build_request(
            {"id": "msg_1", "run_id": "run_42", "owner_key": "0xABC", "content": run}
        )

    assert response.run_id == "run_42"
    assert response.content.status == "success"
    assert len(response.content.messages) == 5
    assert Topics.CONTEXT_BUILD_REQUEST.value == "context.build.request"
    assert Topics.CONTEXT_BUILD_RESPONSE.value == "context.build.response"


def test_memory() -> None:
    """A run's answers are one row, with an annotation where a tool was called."""
    assert MemoryFormatter.format_shared_memory(HISTORY) == (
        "[SHARED_MEMORY count=2]\nRecent conversation memory:\n\n"
        "[2025-12-10 15:30] Human: Search for AI\n"
        "  Nexus: I'll search...\n"
        "[tool_use:web_search, query:AI development 2025]\n"
        "Based on search results..."
    )


def test_capabilities() -> None:
    """A tool is described as in the document."""
    prompts = PromptManager()

    assert prompts.get_core_identity().startswith("# You are Nexus")
    assert prompts.get_capabilities_prompt(tool_definitions=[SEARCH]).startswith(
        "[CAPABILITIES]\nAvailable tools in this conversation:\n\n### web_search\n"
        "Search the web for information\nParameters:\n- query (string, required):"
    )


def test_the_friend_and_the_moment() -> None:
    """The legacy field still counts, and a friend's clock is west of UTC in minutes."""
    legacy = {"prompt_overrides": {"learning": "Likes boats."}}

    assert FriendsInfoFormatter.format_friends_info(user_profile=legacy).endswith(
        "\n\nLikes boats."
    )
    assert "2025-12-10 04:30:00-03:30" in MomentFormatter.format_this_moment(
        "Hi", "2025-12-10T08:00:00Z", 210
    )
