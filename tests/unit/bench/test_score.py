import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import score as module
from bench.recall.cases import cases
from bench.recall.pickers import PICKERS, Lines
from bench.score import RankingError, questions, read_ranking, score


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a folder with two conversations; one question is asked in both."""
    file = tmp_path / "locomo.jsonl.gz"
    with gzip.open(file, "wt") as lines:
        lines.write("\n".join(json.dumps(conversation(name)) for name in "ab"))
    return tmp_path


def conversation(name: str) -> dict[str, Any]:
    """Return 60 messages with two questions on the fourth, and one that has no answer."""
    messages = [
        {
            "id": f"m{number}",
            "role": "human",
            "content": "The spare key is under a flowerpot" if number == 3 else f"Soup {number}",
            "timestamp": f"2025-01-01T08:{number:02}:00Z",
            "metadata": {"speaker": "Ann"},
        }
        for number in range(60)
    ]
    texts = ("Where is the key?", f"Where does {name} keep the key?", "Who?")
    asked = [
        {"question": text, "evidence": ["m3"], "category": category}
        for text, category in zip(texts, (4, 4, 5), strict=True)
    ]
    return {"id": name, "messages": messages, "questions": asked}


def line(question: str, *ids: object, name: str = "locomo") -> str:
    """Return a line of a ranking."""
    return json.dumps({"set": name, "question": question, "ids": ids})


def test_a_ranking_is_scored_by_budget(data: Path) -> None:
    """What fits is counted, best first, and questions without a line are missing."""
    lines = [line("a/q0", "m3"), line("Where does b keep the key?", *_others(), "m3"), ""]
    scored = score(read_ranking(lines, data), [250, 4_000])

    assert scored["locomo/250"]["recall"] == 0.5
    assert scored["locomo/4000"]["recall"] == 1
    assert (scored["locomo/250"]["n"], scored["locomo/250"]["missing"]) == (2, 2)
    assert scored["locomo/250"]["by_category"] == {"4": 0.5}


def _others() -> list[str]:
    return [f"m{number}" for number in range(60) if number != 3]


def test_a_ranking_by_bm25_has_the_figures_of_bm25(data: Path) -> None:
    """Scoring the order of a baseline gives what `bench.recall` counts for it."""
    case = cases(data, "locomo")[0]
    lines, question = Lines(case), case.questions[0]
    scores = PICKERS["bm25"](lines, question.text)
    order = sorted(range(len(scores)), key=lambda at: (scores[at], at), reverse=True)
    (ranked,) = read_ranking([line(question.id, *(f"m{at}" for at in order))], data).values()

    places = [int(id_[1:]) for id_ in ranked.ranked[0].ids]
    assert lines.pick(places, 250) == lines.picked(scores, 250)


@pytest.mark.parametrize(
    ("wrong", "cause"),
    [
        ("{", "is no JSON"),
        ("[]", "is no JSON object"),
        ('{"set": "locomo", "ids": []}', "'question' is missing or is not a string"),
        ('{"set": "locomo", "question": "a/q0", "ids": "m1"}', "'ids' is missing or is not a list"),
        (line("a/q0", name="other"), "there is no set 'other'; sets are locomo, "),
        (line("a/q9"), "the set has no question 'a/q9'"),
        (line("a/q2"), "the set has no question 'a/q2'"),
        (line("Where is the key?"), r"2 questions are '.*': use an id \(a/q0, b/q0\)"),
        (line("a/q0", "m99"), "conversation 'a' has no message 'm99'"),
        (line("a/q0", 3), "conversation 'a' has no message 3"),
        (line("a/q0", "m1", "m1"), "an id is there twice"),
        (line("a/q1", "m1"), "question 'a/q1' is ranked twice"),
    ],
)
def test_a_wrong_line_is_named_with_its_cause(data: Path, wrong: str, cause: str) -> None:
    """The number of the line is that in the file."""
    with pytest.raises(RankingError, match=f"^line 3: {cause}"):
        read_ranking([line("a/q1", "m3"), "", wrong], data)


def test_an_empty_ranking_is_an_error(data: Path) -> None:
    """It would have no figures."""
    with pytest.raises(RankingError, match="the ranking is empty"):
        read_ranking([], data)


def test_questions_have_what_a_system_needs(data: Path) -> None:
    """They have rows and ids, but no evidence."""
    first, second = questions(data, ["locomo"])

    assert first["rows"][3]["content"] == "Ann: The spare key is under a flowerpot"
    assert first["rows"][3].keys() == {"id", "role", "content", "timestamp"}
    assert first["questions"][0] == {"id": "a/q0", "question": "Where is the key?"}
    assert "evidence" not in json.dumps([first, second])


def test_the_command_prints_figures_or_the_error(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What ``--questions`` prints is JSON Lines; a wrong line ends it with its cause."""
    ranking = data / "ranking.jsonl"
    ranking.write_text(line("a/q0", "m3"))

    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["score", *arguments, "--data", str(data)])
        module.main()
        return capsys.readouterr().out

    printed = run("--questions", "--sets", "locomo").splitlines()
    assert [json.loads(each)["conversation"] for each in printed] == ["a", "b"]
    assert json.loads(run(str(ranking), "--budgets", "250", "--json"))["locomo/250"]["recall"] == 1
    assert "locomo/250" in run(str(ranking), "--budgets", "250")
    ranking.write_text("{")
    with pytest.raises(SystemExit, match="line 1: is no JSON"):
        run(str(ranking))
    with pytest.raises(SystemExit):
        run()
