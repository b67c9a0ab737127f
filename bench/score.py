"""Score anybody's ranking of messages, in the way in which `bench.recall` counts.

    python -m bench.score --questions --data DIR [--sets …] > QUESTIONS.jsonl
    python -m bench.score RANKING.jsonl --data DIR [--budgets …] [--json]

A line of the ranking is ``{"set", "question", "ids"}``: a question by its id, or by its text where
that is unique in the set, and ids of messages, the best first. `README.md` in this folder has more.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.recall.cases import KINDS, MADE, Case, Question, cases
from bench.recall.evidence import share_answered, share_kept
from bench.recall.figures import Found, figures
from bench.recall.pickers import Lines
from bench.report import over_data

SETS: Final = ("locomo", "qmsum", *MADE, *KINDS)
BUDGETS: Final = (250, 500, 1_000, 2_000, 4_000, 8_000)
DEFAULT_SETS: Final = "locomo,qmsum,cjk,bursts,code"
#: The keys that each line needs, with the types of their values.
KEYS: Final = {"set": str, "question": str, "ids": list}


#: Questions of a set by their ids and texts.
Asked = Mapping[str, Sequence[tuple[Case, Question]]]


class RankingError(ValueError):
    """A line of a ranking can't be scored; the message has its number and the cause."""


class Ranked(NamedTuple):
    """A question with its conversation, and the messages that a system ranked for it."""

    case: Case
    question: Question
    ids: Sequence[str]


class Ranking(NamedTuple):
    """What is ranked of a set."""

    ranked: Sequence[Ranked]
    #: Questions of the set without a line.
    missing: int


def main() -> None:
    """Print the questions, or the figures of a ranking."""
    parser = over_data(__doc__)
    parser.add_argument("ranking", nargs="?", type=Path, help="a ranking to score; - reads stdin")
    parser.add_argument("--questions", action="store_true", help="print what a system has to rank")
    parser.add_argument("--sets", default=DEFAULT_SETS, help="the sets that questions are of")
    parser.add_argument("--budgets", default=",".join(map(str, BUDGETS)))
    options = parser.parse_args()
    if options.questions == (options.ranking is not None):
        parser.error("give either RANKING.jsonl or --questions")
    try:
        if options.questions:
            for line in questions(options.data, options.sets.split(",")):
                print(json.dumps(line, ensure_ascii=False))
            return
        budgets = [int(budget) for budget in options.budgets.split(",")]
        scored = score(read_ranking(_lines(options.ranking), options.data), budgets)
    except (OSError, ValueError) as error:
        sys.exit(f"{parser.prog}: {error}")
    print(json.dumps(scored) if options.json else "\n".join(_report(scored)))


def questions(data: Path, sets: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield each conversation of some sets with its rows and questions, without the evidence."""
    for name in sets:
        for case in _cases(data, name):
            asked = [{"id": each.id, "question": each.text} for each in case.questions]
            shown = ("id", "role", "content", "timestamp")
            rows = [{key: row[key] for key in shown} for row in case.rows]
            yield {"set": name, "conversation": case.id, "rows": rows, "questions": asked}


def read_ranking(lines: Iterable[str], data: Path) -> dict[str, Ranking]:
    """Return what is ranked by set, each question once.

    Raises:
        RankingError: A line is no JSON object with the keys, names a set, question or message that
            doesn't exist, or repeats one.
    """
    asked: dict[str, Asked] = {}
    ranked: dict[str, dict[str, Ranked]] = defaultdict(dict)
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            name, key, ids = _values(line)
            if name not in asked:
                asked[name] = _by_key(_cases(data, name))
            one = _ranked(asked[name].get(key, ()), key, ids)
            if one.question.id in ranked[name]:
                raise RankingError(f"question {key!r} is ranked twice")
            ranked[name][one.question.id] = one
        except ValueError as error:
            raise RankingError(f"line {number}: {error}") from error
    if not ranked:
        raise RankingError("the ranking is empty")
    return {
        name: Ranking(list(each.values()), _count(asked[name]) - len(each))
        for name, each in ranked.items()
    }


def _count(asked: Asked) -> int:
    return len({question.id for found in asked.values() for _, question in found})


def score(ranking: Mapping[str, Ranking], budgets: Sequence[int]) -> dict[str, Any]:
    """Return the figures by ``set/tokens``, averages over the questions that are ranked.

    Messages are taken in their order as long as they fit, as lines of `[SHARED_MEMORY]`.
    """
    scored: dict[str, Any] = {}
    for name, (ranked, missing) in ranking.items():
        found: dict[int, list[Found]] = defaultdict(list)
        lines: dict[str, Lines] = {}
        for case, question, ids in ranked:
            if case.id not in lines:
                lines[case.id] = Lines(case)
            place = {row["id"]: number for number, row in enumerate(case.rows)}
            places = [place[id_] for id_ in ids]
            for budget in budgets:
                text = lines[case.id].pick(places, budget)
                share = share_kept(case, question, text)
                answered = share_answered(question, text)
                found[budget].append(Found(question.category, share, answered=answered))
        scored |= {
            f"{name}/{budget}": figures(each) | {"missing": missing}
            for budget, each in found.items()
        }
    return scored


def _lines(path: Path) -> Iterator[str]:
    if str(path) == "-":
        yield from sys.stdin
        return
    with path.open(encoding="utf-8") as file:
        yield from file


def _cases(data: Path, name: str) -> list[Case]:
    if name not in SETS:
        raise RankingError(f"there is no set {name!r}; sets are {', '.join(SETS)}")
    return cases(data, name)


def _by_key(given: Sequence[Case]) -> Asked:
    """Return questions by their ids and by their texts."""
    found: dict[str, list[tuple[Case, Question]]] = defaultdict(list)
    for case in given:
        for question in case.questions:
            found[question.id].append((case, question))
            found[question.text].append((case, question))
    return found


def _values(line: str) -> tuple[str, str, list[Any]]:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise RankingError(f"is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise RankingError("is no JSON object")
    for key, kind in KEYS.items():
        if not isinstance(value.get(key), kind):
            article = "a list" if kind is list else "a string"
            raise RankingError(f"{key!r} is missing or is not {article}")
    return value["set"], value["question"], value["ids"]


def _ranked(found: Sequence[tuple[Case, Question]], key: str, ids: list[Any]) -> Ranked:
    if not found:
        raise RankingError(f"the set has no question {key!r}")
    if len(found) > 1:
        known = ", ".join(question.id for _, question in found)
        raise RankingError(f"{len(found)} questions are {key!r}: use an id ({known})")
    case, question = found[0]
    known_ids = {row["id"] for row in case.rows}
    for id_ in ids:
        if not isinstance(id_, str) or id_ not in known_ids:
            raise RankingError(f"conversation {case.id!r} has no message {id_!r}")
    if len(set(ids)) < len(ids):
        raise RankingError("an id is there twice")
    return Ranked(case, question, ids)


def _report(scored: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    yield f"{'':<24}{'recall':>10}{'all found':>12}{'answered':>10}{'n':>7}{'missing':>9}"
    for key, each in scored.items():
        answered = each.get("answered", "-")
        shares = f"{each['recall']:>10}{each['all_found']:>12}{answered:>10}"
        yield f"{key:<24}{shares}{each['n']:>7}{each['missing']:>9}"


if __name__ == "__main__":
    main()
