"""What our structure looks like once a line is folded: the forms that the guard looks for.

Two kinds. A *line* of structure means what it means by how it begins: tags, speakers, annotations.
A *mark* means it wherever it stands: the input's elements, and the tokens with which models' chat
templates tell roles apart. The patterns read lines as `formatters.lookalikes` folds them: in lower
case, without emphasis, escapes and what doesn't show.
"""

import re
from functools import lru_cache
from typing import Final

from formatters.lookalikes import folded

#: The names that the service keeps for itself.
BUILT_IN_TAGS: Final = frozenset(
    {
        "CORE_IDENTITY",
        "CAPABILITIES",
        "SHARED_MEMORY",
        "FRIENDS_INFO",
        "THIS_MOMENT",
        "RECALLED",
        "SUMMARY",
        "HISTORY",
        "RUN",
        "CONTEXT SUMMARY",
    }
)

#: Those of them that accounts use and messages don't. Only their plain form is escaped: "[ RUN ]"
#: of a log and "[Summary](#summary)" of a document are ordinary text.
_UNPRINTED: Final = frozenset({"SUMMARY", "HISTORY", "RUN"})

# Every repetition here is possessive or bounded: no text makes a search take more than linear time.

#: What may stand before a line of ours: indentation, quotes, and what Markdown puts first.
_OPEN: Final = r"(?:[\s>_|#+=•·–—\"'“”„‘’({-]|\d{1,3}[.)])*+"

#: What may stand before a role of a chat template: less, as "- User: …" is a list.
_BARE: Final = r"[\s>_\"'“”„‘’]*+(?:#++\s*+)?"

#: What may stand between the parts of a name or a line.
_GAP: Final = r"[\s_|-]*+"

#: The end of a name, so that "[capabilities-list]" is another one.
_END: Final = r"(?![_-]*+[a-z0-9])"

#: A time, or whatever else stands in brackets before a speaker.
_STAMP: Final = rf"(?:\[[^\]]{{0,64}}\]++{_GAP})?"

#: A colon that is no "::" of code and no "://".
_COLON: Final = rf"[\])]?{_GAP}:(?!:|//)"


def _spelt(name: str) -> str:
    """Return a pattern of a name: any gap between its words, and 1 for I and l, 0 for O."""
    words = (re.escape(word) for word in re.split("[ _]+", folded(name)))
    alike = {"i": "[il1|]", "l": "[il1|]", "o": "[o0]"}
    return _GAP.join(re.sub("[ilo]", lambda letter: alike[letter[0]], word) for word in words)


#: A day as we write it, with whatever dash.
_DATE: Final = r"\d{4}\s*+[-–—]\s*+\d\d\s*+[-–—]\s*+\d\d"

_ELEMENTS: Final = (
    rf"(?:{_spelt('human_input')}|{_spelt('current_time')}|{_spelt('operator_note')})"
)

_LINES: Final = (
    rf"{_OPEN}\[?/?(?:{'|'.join(sorted(_UNPRINTED)).lower()})\](?!\()",
    # our speakers, and the roles of chat templates
    rf"{_OPEN}{_STAMP}[\[(]?(?:human|nexus){_COLON}",
    rf"{_BARE}{_STAMP}[\[(]?(?:gpt4\s++correct\s++)?(?:user|assistant|system){_COLON}",
    # any other speaker, behind a time exactly as we write it: a log's lines have seconds
    rf"{_OPEN}\[[\s\[/_|-]*+(?:unknown\s*+time|\d{{4}}-\d\d-\d\d\s*+\d\d:\d\d)\s*+\]++"
    rf"{_GAP}[^\s:]{{1,64}}\s*+:",
    # the line of a day, which has nothing else on it: a log's lines go on
    rf"{_OPEN}(?:\[[\s\[/_|-]*+)?(?:unknown{_GAP}time|{_DATE})\s*+\]\W*+$",
    # annotations
    rf"{_OPEN}\[[\s\[/_|-]*+{_spelt('tool')}{_GAP}use\s*+:",
    rf"{_OPEN}(?:\[[\s\[/_|-]*+)?{_spelt('tool result cleared')}",
    # headings of templates that teach by instructions
    r"[\s>_]*+#{3,}\s*+(?:(?:instructions?|input|response)\s*+:"
    r"|(?:system\s++prompt|user\s++message|assistant)\s*+:?\s*+$)",
    # the rest of an element that began on the line before
    rf"{_OPEN}[/\s]*+{_ELEMENTS}[^<>]{{0,64}}>",
)

#: Lines that only `[CAPABILITIES]` gives a meaning.
_HEADINGS: Final = (
    r"[\s>_|]*+"
    r"(?:#{1,6}\s|parameters\s*+:\s*+$|[-+]\s.*(?<![a-z0-9_])(?:required|optional)\s*+\))"
)

# Each alternative begins with a character and nothing else, for which the search is much faster.

#: Tokens that split a prompt into roles, and those around tool calls, by the letter. A tokenizer
#: that looks for them finds them in the middle of a word too.
MARKS: Final = re.compile(
    "|".join(
        (
            rf"<[\s/|_-]*+{_ELEMENTS}(?:{_END}|\w{{1,16}}[\s/]*+>)",
            # ChatML, Llama 3 and 4, Phi, Command, DeepSeek, Gemma 4: "<|im_start|>", "<turn|>"
            r"<\|[\w▁.:/-]{1,48}\|?>",
            r"<[\w▁.:/-]{1,48}\|>",
            # the same with blanks, or cut off: only of names that are in use
            r"<\s*+\|[\s/]*+(?:[ib]m_(?:start|end|sep|user|system|assistant)|start_header_id"
            r"|end_header_id|eo[tm]_id|(?:begin|start|end)_?of_?(?:text|turn|sentence)|system|user"
            r"|assistant|human|chatbot)(?![a-z0-9])",
            # Llama 2 and Mistral
            r"\[[\s/]*+(?:inst|(?:system|user)_prompt|available_tools|tool_(?:calls|results|content)"
            r"|gmask)\s*+\]",
            r"<\s*+/?\s*+sys\s*+>",
            # "Vec<S>" is a type
            r"<(?<![a-z0-9_]<)s>|<\s*+/\s*+s\s*+>",
            # Gemma, Granite, Hermes and others
            r"<[/\s]*+(?:\w{1,8}:)?(?:(?:start|end)_of_(?:turn|role|text|image)|[be]os"
            r"|tool_(?:call|response|result)s?|function_(?:call|result)s?)\s*+[|>]",
        )
    )
)


@lru_cache(maxsize=256)  # requests with blocks of their own bring few distinct sets of tags
def line_pattern(tags: frozenset[str], *, headings: bool) -> re.Pattern[str]:
    """Return what a line of structure begins with, where these tags are in use besides ours."""
    names = "|".join(map(_spelt, sorted(BUILT_IN_TAGS - _UNPRINTED | tags)))
    own = (
        rf"{_OPEN}[\[<][\s\[/_|-]*+(?:{names}){_END}",
        # the rest of a tag that began on the line before; "](" goes on with a link
        rf"{_OPEN}[/\s]*+(?:{names})(?:\s[^\[\]]{{0,64}})?\](?!\()",
    )
    return re.compile("|".join([*own, *_LINES, *([_HEADINGS] if headings else [])]))
