"""Generate the packaged table of kinds, `service/recall/kinds.txt`.

    python -m scripts.refresh_kinds --source DIR

The source is the folder of WordNet 3.0's database, with ``data.noun`` and ``index.noun``, such as
``/usr/share/wordnet`` of Debian's package ``wordnet-base``. Nothing is downloaded.
"""

import argparse
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from service.adapters.tokens.encodings import load_encoding
from service.recall import kinds

#: The meaning that all others are kinds of, and one whose kinds are left out: names of species.
ROOT: Final = "entity"
LEFT_OUT: Final = "taxonomic_group"
#: Tokens of o200k_base in a word at most: longer words are too rare in conversations.
MAX_TOKENS: Final = 2
#: The words that count; those of several words would need phrases to be found.
WORD: Final = re.compile("[a-z]{3,}")
#: The pointers to kinds and to instances.
BELOW: Final = ("~", "~i")


class Meaning(NamedTuple):
    """A meaning: its words, and the numbers of its kinds."""

    words: list[str]
    below: list[int]


#: A line of the table: its depth and its words.
Line = tuple[int, list[str]]


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True)
    source = parser.parse_args().source
    meanings = read_meanings((source / "data.noun").read_text(encoding="utf-8"))
    first = read_index((source / "index.noun").read_text(encoding="utf-8"))
    path = Path(kinds.__file__).with_suffix(".txt")
    path.write_text(make_table(meanings, first), encoding="utf-8")


def read_meanings(data: str) -> dict[int, Meaning]:
    """Return the meanings of a database file by their numbers."""
    found = {}
    for line in data.splitlines():
        if line.startswith(" "):  # the licence
            continue
        fields = line.partition(" | ")[0].split()
        count = 2 * int(fields[3], 16)
        words = [word.lower() for word in fields[4 : 4 + count : 2]]
        pointers = fields[5 + count :]
        pairs = zip(pointers[::4], pointers[1::4], strict=False)
        below = [int(number) for kind, number in pairs if kind in BELOW]
        found[int(fields[0])] = Meaning(words, below)
    return found


def read_index(index: str) -> dict[str, int]:
    """Return the number of the first meaning of each word of an index file."""
    found = {}
    for line in index.splitlines():
        if not line.startswith(" "):
            word, _, _, pointers, *rest = line.split()
            found[word] = int(rest[int(pointers) + 2])
    return found


def make_table(meanings: dict[int, Meaning], first: dict[str, int]) -> str:
    """Return the table; a meaning that is a kind of several is below the first of them."""
    seen = {first[LEFT_OUT]} if LEFT_OUT in first else set()

    def visit(number: int, depth: int) -> Iterator[Line]:
        if number in seen:
            return
        seen.add(number)
        meaning = meanings[number]
        words = [word for word in meaning.words if is_known(word)]
        yield depth, [f"{word}*" if first[word] == number else word for word in words]
        for below in meaning.below:
            yield from visit(below, depth + 1)

    lines = without_empty(visit(first[ROOT], 0))
    texts = (f"{chr(ord('a') + depth)} {' '.join(words)}" for depth, words in lines)
    return "".join(f"{text.rstrip()}\n" for text in texts)


def is_known(word: str) -> bool:
    """Return whether a word is common enough for the table."""
    if not WORD.fullmatch(word):
        return False
    return len(load_encoding("o200k_base").encode_ordinary(f" {word}")) <= MAX_TOKENS


def without_empty(lines: Iterable[Line]) -> list[Line]:
    """Return the lines without meanings that have no words, neither their own nor below them."""
    kept: list[Line] = []
    for depth, words in reversed(list(lines)):
        if words or (kept and kept[-1][0] > depth):
            kept.append((depth, words))
    return kept[::-1]


if __name__ == "__main__":
    main()
