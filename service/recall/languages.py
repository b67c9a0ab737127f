"""Languages: which one people write here, told by the small words that every text has."""

from collections.abc import Iterable, Mapping
from typing import Final

from Stemmer import algorithms
from stop_words import AVAILABLE_LANGUAGES, get_stop_words

#: Taken where no language has a good share of the words.
DEFAULT: Final = "english"
#: What that is. Texts in a language have a third to a half of its stop words, others under a tenth.
LEAST_SHARE: Final = 0.15

#: English words that tell of no subject. The list of the package has 1,333, with "home" and "work"
#: among them, which costs one to three of a hundred messages that would be found.
_ENGLISH: Final = """
    a an the and but if or because as until while of at by for with about against between into
    through during before after above below to from up down in out on off over under again further
    then once here there when where why how what which who whom whose this that these those
    i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his
    himself she her hers herself it its itself they them their theirs themselves
    am is are was were be been being have has had having do does did doing done
    will would shall should can could may might must
    all any both each few more most other some such no nor not only own same so than too very just
    also now
"""

#: What apostrophes leave of "it's", "don't", "we'll" and "l'eau".
_ENDINGS: Final = frozenset({"s", "t", "d", "m", "l", "ll", "re", "ve", "c", "j", "n", "qu"})

#: The stop words of each language that there is a stemmer for; read once, when this is imported.
STOP_WORDS: Final[Mapping[str, frozenset[str]]] = {
    **{
        language: frozenset(get_stop_words(language)) | _ENDINGS
        for language in sorted(set(AVAILABLE_LANGUAGES) & set(algorithms()))
    },
    DEFAULT: frozenset(_ENGLISH.split()) | _ENDINGS,
}

#: Pairs of characters in the small words of languages that are taken in pairs.
STOP_PAIRS: Final = frozenset(
    word[at : at + 2]
    for language in ("chinese", "japanese", "korean")
    for word in get_stop_words(language)
    for at in range(len(word) - 1)
)


def language_of(words: Iterable[str]) -> str:
    """Return the language with the largest share of its stop words among these words."""
    told = list(words)
    hits = {name: sum(map(stops.__contains__, told)) for name, stops in STOP_WORDS.items()}
    # of two with the same share, English
    best = max(hits, key=lambda name: (hits[name], name == DEFAULT))
    return best if hits[best] >= LEAST_SHARE * len(told) > 0 else DEFAULT
