"""An embedder that needs no model: texts are alike if they have words of the same concepts."""

from collections.abc import Sequence

from service.errors import EmbedderError, NoVectorError

#: Words with one meaning each; a text's vector counts the words of each meaning.
CONCEPTS = ("key keys opener", "cabin hut chalet", "weather rain soup", "boat sail harbour")


class Concepts:
    """An `Embedder` of words; it can fail, and refuse texts."""

    def __init__(self, name: str = "concepts") -> None:
        self.name = name
        #: The texts of each call, questions left out.
        self.calls: list[list[str]] = []
        self.questions: list[str] = []
        self.fails = self.broken = False
        self.refused = ""

    async def embed(self, texts: Sequence[str], *, question: bool = False) -> list[list[float]]:
        """Return a number for each concept, and one more, so that no vector is zero."""
        if question:
            self.questions += texts
        else:
            self.calls.append(list(texts))
        if self.fails:
            raise EmbedderError("the model is away")
        if self.broken:
            raise LookupError("broken")
        if self.refused and any(self.refused in text for text in texts):
            raise NoVectorError("refused")
        words = [text.lower().split() for text in texts]
        return [
            [0.1, *(float(sum(word in concept.split() for word in said)) for concept in CONCEPTS)]
            for said in words
        ]
