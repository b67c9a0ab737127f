"""What the demo's orchestrator sends: requests, and the rows of a model's answer."""

from collections.abc import Mapping
from typing import Any, Final

from service.cli.demo.stage import OWNER

#: The moment of the demo, a day after the last message of its history.
NOW: Final = "2026-11-20T17:30:00Z"
#: An hour east of Greenwich, in the unit and sign of JavaScript's ``getTimezoneOffset``.
OFFSET: Final = -60

ANSWER: Final = "You take the 08:40 from Holm on Friday, and Tomas meets Vera on Saturday at ten."


def short(request_id: str, text: str, **context: object) -> dict[str, Any]:
    """Return a request in the short form."""
    return {
        "schema_version": "1.0",
        "id": request_id,
        "run_id": f"run-{request_id}",
        "owner_key": OWNER,
        "content": {
            "current_input": text,
            "timestamp_utc": NOW,
            "timezone_offset": OFFSET,
            "context": context,
        },
    }


#: A question without options.
PLAIN: Final = short("demo-1", "Ines: which ferry do we take, and who meets aunt Vera?")

#: A run of an orchestrator, with two tools, a profile and an explanation.
FULL: Final[dict[str, Any]] = {
    "schema_version": "1.0",
    "id": "demo-2",
    "run_id": "run-demo-2",
    "owner_key": OWNER,
    "role": "SYSTEM",
    "content": {
        "id": "run-demo-2",
        "owner_key": OWNER,
        "status": "BUILDING_CONTEXT",
        "tools": ["add_expense", "list_expenses"],
        "history": [
            {
                "id": "demo-2-input",
                "run_id": "run-demo-2",
                "owner_key": OWNER,
                "role": "HUMAN",
                "content": "Ines: I paid the ferry tickets, 258 euros. Put it on the list.",
                "timestamp": NOW,
            }
        ],
        "metadata": {
            "user_profile": {
                "prompt_overrides": {
                    "friends_profile": "Ines and Tomas are siblings. They like short answers."
                }
            },
            "client_timestamp_utc": NOW,
            "client_timezone_offset": OFFSET,
            "context": {"model": "gpt-5", "max_tokens": 8000, "explain": True},
        },
    },
}

#: Tokens that history may use in `SHORT_OF_MEMORY`.
MEMORY_TOKENS: Final = 500

SHORT_OF_MEMORY: Final = short(
    "demo-3",
    "Tomas: what was the code of the key box?",
    memory_tokens=MEMORY_TOKENS,
    memory_limit=100,
    strategy="middle_out",
    explain=True,
)

#: Builds to compare in the inspector: one question with little room for history, under other
#: strategies, with more room, and as native messages.
QUESTION: Final = "Tomas: who feeds the cat, and what was the code of the key box?"
COMPARED: Final = (
    short("demo-6", QUESTION, memory_tokens=MEMORY_TOKENS, memory_limit=100, explain=True),
    short(
        "demo-7",
        QUESTION,
        memory_tokens=MEMORY_TOKENS,
        memory_limit=100,
        strategy="relevance",
        explain=True,
    ),
    short("demo-8", QUESTION, memory_limit=100, strategy="importance", explain=True),
    short("demo-9", QUESTION, memory_limit=100, layout="chat", model="gpt-5", explain=True),
)
#: Rows that are then hidden by hand: the plan for a storm.
HIDDEN: Final = ("m29", "m30", "m31", "m32")
AFTER_PRUNING: Final = short("demo-10", QUESTION, memory_limit=100, explain=True)

IMPOSSIBLE: Final = short("demo-4", "Ines: and now?", max_tokens=1200, reserve_tokens=200)

MALFORMED: Final = short("demo-5", "Tomas: and now?", memory_limit="all of it")
#: Where it is wrong.
WRONG_POINTER: Final = "/content/context/memory_limit"


def result(second: int, role: str, content: str, metadata: Mapping[str, object]) -> dict[str, Any]:
    """Return a row as other services publish it, some seconds after `PLAIN` was sent."""
    return {
        "id": f"demo-1-{second}",
        "run_id": PLAIN["run_id"],
        "owner_key": OWNER,
        "role": role,
        "content": content,
        "timestamp": NOW.replace(":00Z", f":0{second}Z"),
        "metadata": metadata,
    }


#: A model's answer to `PLAIN`: a tool call, its result, and the text.
CALL: Final = result(
    1,
    "AI",
    "",
    {
        "tool_calls": [
            {
                "id": "c9",
                "name": "ferry_times",
                "arguments": {"from": "Holm", "to": "Sarn", "date": "2026-12-04"},
            }
        ]
    },
)
TOOL_RESULT: Final = result(
    2,
    "TOOL",
    '{"ferries": [{"leaves": "08:40"}]}',
    {"tool_call_id": "c9", "name": "ferry_times"},
)
ANSWER_ROW: Final = result(3, "AI", ANSWER, {})
