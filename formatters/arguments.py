r"""Arguments of native calls: JSON whose strings spell nothing of our structure.

JSON has two spellings for every character, so what the guard would escape is spelt the other way:
``"\u003c|im_start|>"`` says what ``"<|im_start|>"`` says, and whoever parses it gets the same.
"""

import re
from functools import partial
from typing import Final

from formatters.guard import quoted

#: A string with its quotes; in valid JSON, one stands wherever a quote does.
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*+"')
#: What opens our structure, and whatever might be read as that: other scripts have look-alikes.
_OPENS: Final = re.compile(r"\\.|[<\[]|[^\x00-\x7f]")
#: All but what words are made of.
_SIGNS: Final = re.compile(r"\\.|[^a-zA-Z0-9 ]")


def guarded_arguments(text: str, tags: frozenset[str] = frozenset()) -> str:
    """Return JSON that has the same value, and no line that could be read as structure.

    ``tags`` are those of this build besides the built-in ones. Text without such lines stays as it
    is.
    """
    for pattern in (_OPENS, _SIGNS):
        if quoted(text, tags) == text:
            break
        text = _STRING.sub(partial(_respelt, pattern), text)
    return text


def _respelt(pattern: re.Pattern[str], string: re.Match[str]) -> str:
    inner = string[0][1:-1]
    return f'"{pattern.sub(_escaped, inner)}"'


def _escaped(found: re.Match[str]) -> str:
    char = found[0]
    if char.startswith("\\"):
        return char
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
