"""Rank tools by a question: by how much of it is in their names and descriptions."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from formatters.model import Tool
from service.recall.bm25 import bm25, find_postings, scale
from service.recall.languages import detect_language
from service.recall.question import shorten_question
from service.recall.words import analyze, is_cjk, words

#: The factor by which the words of a message fade for each step further back.
FADE: Final = 0.5
#: The weight of runs of characters besides stems; names contain words in other forms.
GRAM_WEIGHT: Final = 0.5

#: The start of a word within a name: ``getUserDetails``, ``parseHTMLPage``.
_INNER_WORD: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def rank_tools(question: str, previous: Sequence[str], tools: Sequence[Tool]) -> list[float]:
    """Return a score for each tool; 0 if it has none of the question's words.

    ``previous`` are the messages before the question, newest first: "yes, do that" has no words
    of its own.
    """
    if not tools:
        return []
    messages = [shorten_question(text) for text in (question, *previous)]
    language = detect_language(word for word in words(" ".join(messages)) if not is_cjk(word))
    texts = [analyze(tool_text(tool), language) for tool in tools]
    analyses = [analyze(text, language) for text in messages]
    stems = _fade([analysis.stems for analysis in analyses])
    grams = _fade([analysis.grams for analysis in analyses])
    stem_postings = find_postings(stems, [text.stems for text in texts])
    gram_postings = find_postings(grams, [text.grams for text in texts])
    by_stems = scale(bm25(stems, stem_postings, [text.stem_count for text in texts]))
    by_grams = scale(bm25(grams, gram_postings, [text.gram_count for text in texts]))
    return [s + GRAM_WEIGHT * g for s, g in zip(by_stems, by_grams, strict=True)]


def tool_text(tool: Tool) -> str:
    """Return the text by which a tool is found: its name, description, and parameters."""
    function = _mapping(tool.get("function"))
    name, description = str(function.get("name", "")), str(function.get("description", ""))
    parameters = _parameter_texts(function.get("parameters"))
    return _INNER_WORD.sub(" ", "\n".join((name, description, *parameters)))


def _parameter_texts(schema: object) -> Iterator[str]:
    for name, value in _mapping(_mapping(schema).get("properties")).items():
        yield str(name)
        description = _mapping(value).get("description")
        if isinstance(description, str):
            yield description


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _fade(texts: Sequence[Mapping[str, int]]) -> dict[str, float]:
    """Weigh terms by the age of the newest text that has them."""
    weights: dict[str, float] = {}
    for age, counts in enumerate(texts):
        for term in counts:
            weights.setdefault(term, FADE**age)
    return weights
