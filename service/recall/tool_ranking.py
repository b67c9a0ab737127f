"""Rank tools by a question: by how much of it is in their names and descriptions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from formatters.model import Tool
from formatters.rows import as_mapping
from service.recall.bm25 import Postings, bm25, index_texts
from service.recall.columns import Lists
from service.recall.question import shorten_question
from service.recall.terms import analyze_all, detect_language, is_cjk, words

#: The factor for the words of a message, per step further back.
FADE: Final = 0.5
#: The weight of runs of characters besides stems; names contain words in other forms.
GRAM_WEIGHT: Final = 0.5
#: The weight of the name alone, relative to the whole text, which is less specific.
NAME_WEIGHT: Final = 0.5


@dataclass(frozen=True, slots=True)
class _Field:
    """Texts of tools, indexed by terms of one kind."""

    postings: Postings
    lengths: Sequence[int]

    @classmethod
    def of(cls, counts: Sequence[Mapping[str, int]], lengths: Sequence[int]) -> "_Field":
        """Return the field of texts with these counts of terms."""
        return cls(index_texts(counts), lengths)

    def score(self, query: Mapping[str, float]) -> Sequence[float]:
        """Return a score for each text; the best text has 1."""
        postings = {term: self.postings.get(term, ()) for term in query}
        return Lists.scale(bm25(query, postings, self.lengths))


class ToolIndex:
    """Tools that are ranked by questions; what doesn't depend on a question is computed once."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        texts = [tool_text(tool) for tool in tools]
        names = [text.partition("\n")[0] for text in texts]
        self._count = len(tools)
        #: That of the tools: questions are too short to detect it, and have to match them.
        self._language = detect_language(
            word for text in texts for word in words(text) if not is_cjk(word)
        )
        self._fields = (
            (1.0, *_read_fields(texts, self._language)),
            (NAME_WEIGHT, *_read_fields(names, self._language)),
        )

    def rank(self, question: str, previous: Sequence[str] = ()) -> list[float]:
        """Return a score for each tool; 0 if it has none of the question's words.

        ``previous`` are the messages before the question, newest first: "yes, do that" has no words
        of its own.
        """
        scores = [0.0] * self._count
        if not scores:
            return scores
        texts = (shorten_question(text) for text in (question, *previous))
        analyses = analyze_all(texts, self._language)
        stems = _fade([analysis.stems for analysis in analyses])
        grams = _fade([analysis.grams for analysis in analyses])
        for weight, of_stems, of_grams in self._fields:
            pairs = zip(of_stems.score(stems), of_grams.score(grams), strict=True)
            for index, (by_stems, by_grams) in enumerate(pairs):
                scores[index] += weight * (by_stems + GRAM_WEIGHT * by_grams)
        return scores


def _read_fields(texts: Sequence[str], language: str) -> tuple[_Field, _Field]:
    """Return the stems and the runs of characters of texts."""
    analyses = analyze_all(texts, language)
    return (
        _Field.of([each.stems for each in analyses], [each.stem_count for each in analyses]),
        _Field.of([each.grams for each in analyses], [each.gram_count for each in analyses]),
    )


def tool_text(tool: Tool) -> str:
    """Return the text that searches look at for a tool: its name, description, and parameters."""
    function = as_mapping(tool.get("function"))
    name, description = str(function.get("name", "")), str(function.get("description", ""))
    parameters = _parameter_texts(function.get("parameters"))
    return "\n".join((name, description, *parameters))


def _parameter_texts(schema: object) -> Iterator[str]:
    for name, value in as_mapping(as_mapping(schema).get("properties")).items():
        yield str(name)
        description = as_mapping(value).get("description")
        if isinstance(description, str):
            yield description


def _fade(texts: Sequence[Mapping[str, int]]) -> dict[str, float]:
    """Weigh terms by the age of the newest text that has them."""
    weights: dict[str, float] = {}
    for age, counts in enumerate(texts):
        for term in counts:
            weights.setdefault(term, FADE**age)
    return weights
