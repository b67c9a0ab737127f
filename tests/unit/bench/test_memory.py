"""Long conversations: the summarizer that names turns, and what is left out of reach."""

import json

import pytest

from bench.memory import Figures, NamingSummarizer, figures, main, named_turns
from formatters.model import Message, Role


async def test_the_summarizer_names_the_turns_that_it_reads() -> None:
    """Those of a summary too, in about its maximum of tokens."""
    texts = ("turn 3", "turns 5 to 7", "no turn", "turn 4", "turn 9")
    messages = [Message(id="m", role=Role.HUMAN, content=text) for text in texts]
    text = await NamingSummarizer(lambda text: len(text.split())).summarize(messages, max_tokens=40)

    assert named_turns(text) == {3, 4, 5, 6, 7, 9}
    assert len(text.split()) == 39


def test_a_turn_that_no_text_names_is_unreachable() -> None:
    """In the last context; earlier ones don't count."""
    last = ["Summed up: turns 0 to 1.", "This is turn 4."]
    found = figures([(["turn 3"], True), (last, False)], 5)

    assert found == Figures(summaries_sent_at_end=1, turns_unreachable=2, over_budget=1)


def test_agents_reach_all_that_was_said(capsys: pytest.CaptureFixture[str]) -> None:
    """Under every face."""
    assert main(["--json", "--turns", "60"]) == 0
    printed = json.loads(capsys.readouterr().out)

    assert len(printed["faces"]) == 6
    assert all(each["summaries_sent_at_end"] for each in printed["faces"].values())
    assert (printed["turns_unreachable"], printed["over_budget"]) == (0, 0)
