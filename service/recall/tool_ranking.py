"""Rank tools by what is asked: how much of it stands in their names and descriptions."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from formatters.model import Tool
from service.recall.features import bm25, postings
from service.recall.languages import detect_language
from service.recall.question import MAX_QUESTION_CHARS
from service.recall.words import analyze, is_cjk, words

#: What the words of a message count that was said before, for each step further back.
FADE: Final = 0.5
#: What runs of characters count beside stems, which a name has in other forms.
GRAM_WEIGHT: Final = 0.5

#: Where a name goes on with a capital: ``getUserDetails``, ``parseHTMLPage``.
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def rank_tools(question: str, said: Sequence[str], tools: Sequence[Tool]) -> list[float]:
    """Return a score for each tool; 0 where nothing of what is asked stands in it.

    ``said`` is what was said before, newest first: "yes, do that" has no word of its own.
    """
    if not tools:
        return []
    asked = [_bounded(text) for text in (question, *said)]
    language = detect_language(word for word in words(" ".join(asked)) if not is_cjk(word))
    texts = [analyze(tool_text(tool), language) for tool in tools]
    terms = [analyze(text, language) for text in asked]
    stems = _faded([each.stems for each in terms])
    grams = _faded([each.grams for each in terms])
    by_stems = bm25(stems, postings(stems, [t.stems for t in texts]), [t.stem_count for t in texts])
    by_grams = bm25(grams, postings(grams, [t.grams for t in texts]), [t.gram_count for t in texts])
    pairs = zip(_scaled(by_stems), _scaled(by_grams), strict=True)
    return [stem + GRAM_WEIGHT * gram for stem, gram in pairs]


def tool_text(tool: Tool) -> str:
    """Return what a tool is searched by: its name, its description, and its parameters'."""
    function = _mapping(tool.get("function"))
    name = str(function.get("name", ""))
    said = (name, str(function.get("description", "")), *_said(function.get("parameters")))
    return _HUMP.sub(" ", "\n".join(said))


def _said(schema: object) -> Iterator[str]:
    for name, value in _mapping(_mapping(schema).get("properties")).items():
        yield str(name)
        described = _mapping(value).get("description")
        if isinstance(described, str):
            yield described


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _bounded(text: str) -> str:
    whole = len(text) <= 2 * MAX_QUESTION_CHARS
    return text if whole else f"{text[:MAX_QUESTION_CHARS]} {text[-MAX_QUESTION_CHARS:]}"


def _faded(texts: Sequence[Mapping[str, int]]) -> dict[str, float]:
    """Weigh terms by the newest text that has them."""
    weights: dict[str, float] = {}
    for age, counts in enumerate(texts):
        for term in counts:
            weights.setdefault(term, FADE**age)
    return weights


def _scaled(scores: Sequence[float]) -> list[float]:
    most = max(scores)
    return [score / most for score in scores] if most > 0 else list(scores)
