"""The table of models is made from a file that knows more than it should."""

import json
from typing import Any

from scripts.refresh_models import document, table


def entry(provider: str, most: int | None, answer: int | None = None, **more: Any) -> Any:
    """Return an entry as the source has it."""
    sizes = {"max_input_tokens": most, "max_output_tokens": answer}
    return {"litellm_provider": provider, "mode": "chat", **sizes, **more}


def limits(**entries: Any) -> dict[str, tuple[int, int | None]]:
    """Return the rows of a made-up source that have limits."""
    named = {name.replace("__", "/").replace("_", "-"): row for name, row in entries.items()}
    rows = table(named).items()
    return {n: (r["max_input"], r["max_output"]) for n, r in rows if r["max_input"] is not None}


def test_a_model_has_its_vendors_limits() -> None:
    """What a host gives for it doesn't count, whichever comes first in the file."""
    host, vendor = entry("deepinfra", 1, 1), entry("deepseek", 131_072, 8_192)

    found = limits(deepinfra__org__DeepSeek_Chat=host, deepseek_chat=vendor)

    assert found == {"deepseek-chat": (131_072, 8_192)}


def test_a_name_that_a_shorter_one_explains_has_no_row() -> None:
    """A dated name has one only where its limits are its own."""
    found = limits(
        gpt_5=entry("openai", 272_000, 128_000),
        gpt_5_mini_2025=entry("openai", 272_000, 128_000),
        gpt_5_chat=entry("openai", 128_000, 16_384),
    )

    assert found == {"gpt-5": (272_000, 128_000), "gpt-5-chat": (128_000, 16_384)}


def test_a_window_is_no_input() -> None:
    """OpenAI's window is for both; an output limit equal to the input is the window."""
    found = limits(
        gpt_5_pro=entry("openai", 400_000, 272_000),
        xai__grok_4=entry("xai", 256_000, 256_000),
        mistral__codestral_1=entry("mistral", 400_000, 128_000),
    )

    assert found == {
        "gpt-5-pro": (128_000, 272_000),
        "grok-4": (256_000, None),
        "codestral-1": (400_000, 128_000),
    }


def test_only_models_for_chats_that_people_name_are_taken() -> None:
    """No other modes, hosts, families, fine-tuned models, and none without limits."""
    assert not limits(
        gpt_4_audio=entry("openai", 1, mode="audio_speech"),
        gpt_4_here=entry("somewhere", 1),
        unheard_of=entry("openai", 1),
        gpt_4_unknown=entry("openai", None),
        **{"ft:gpt-4": entry("openai", 1)},
    )


def test_the_table_is_json_with_a_line_a_model() -> None:
    """So that a change of it can be read."""
    rows = table({"gpt-5": entry("openai", 272_000)})
    text = document("2026-11-22", "a file", rows)

    assert json.loads(text) == {"date": "2026-11-22", "source": "a file", "models": rows}
    assert len(text.splitlines()) == len(rows) + 6
