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
from formatters.model import Tag

#: The names that the service keeps for itself.
BUILT_IN_TAGS: Final = frozenset(
    {
        Tag.CORE_IDENTITY,
        Tag.CAPABILITIES,
        Tag.SHARED_MEMORY,
        Tag.FRIENDS_INFO,
        Tag.THIS_MOMENT,
        Tag.RECALLED,
        Tag.SUMMARY,
        Tag.HISTORY,
        Tag.RUN,
        Tag.CONTEXT_SUMMARY,
    }
)

#: Those of them that accounts use and messages don't. Only their plain form is escaped: "[ RUN ]"
#: of a log and "[Summary](#summary)" of a document are ordinary text.
_UNPRINTED: Final = frozenset({Tag.SUMMARY, Tag.HISTORY, Tag.RUN})

# Every repetition here is possessive or bounded: no text makes a search take more than linear time.

#: What may stand before a line of ours: all that is no word, such as indentation, quotes, bullets,
#: pictures, signs of comments and what Markdown puts first, and an angle that no name follows. Then
#: numbers, and letters of lists.
_SIGNS: Final = r"(?:[^\w\[<]|_|<(?=[\s_|-]*+[^a-z/\s_|-]))"
_LISTED: Final = r"(?:[a-z]|[ivx]{2,4})[.)](?!\S)"
OPEN: Final = rf"(?:{_SIGNS}|\d++(?![^\W_])|{_LISTED})*+"

#: HTML before a line of ours, which shows nothing of itself.
_HTML: Final = rf"(?:</?[a-z][a-z0-9]{{0,15}}(?:\s[^<>]*+)?/?>{_SIGNS}*+)"

#: An angle before a name that is no tag's, as of a quotation: "« Human: …".
_ANGLE: Final = r"(?:<[\s_|/-]*+)?"

#: What may stand before a role of a chat template: less, as "- User: …" is a list.
_BARE: Final = r"(?:[\s>_\"'“”„‘’\u2600-\u27bf\U0001f000-\U0001faff]|<(?=\s))*+(?:#++\s*+)?"

#: What may stand between the parts of a name or a line.
_GAP: Final = r"[\s_|–—-]*+"

#: The end of a name, so that "[capabilities-list]" is another one.
_END: Final = r"(?![_-]*+[a-z0-9])"

#: A time, or whatever else stands in brackets before a speaker.
_STAMP: Final = rf"(?:\[[^\]]{{0,64}}\]++:?{_GAP})?"

#: A colon that is no "::" of code and no "://".
_COLON: Final = rf"[\])]?(?:{_GAP}:(?!:|//)|::\s)"

#: Letters that others, or two of them, are read as. A bar may have been taken for a gap's.
_ALIKE: Final = {"i": "[il1|]", "l": "[il1|]", "o": "[o0]", "m": "(?:m|rn)"}
_BEHIND_A_BAR: Final = r"(?:[il1|]|(?<=\|))"


def _spelt(name: str) -> str:
    """Return a pattern of a name: any gap between its words, and 1 for I and l, 0 for O."""
    first, *others = re.split("[ _]+", folded(name))
    later = (
        f"{_BEHIND_A_BAR}{_word(word[1:])}" if word[:1] in ("i", "l") else _word(word)
        for word in others
    )
    return _GAP.join([_word(first), *later])


def _word(word: str) -> str:
    return re.sub("[ilmo]", lambda letter: _ALIKE[letter[0]], re.escape(word))


#: A day as we write it, with whatever dash.
_DATE: Final = r"\d{4}\s*+[-–—]\s*+\d\d\s*+[-–—]\s*+\d\d"

_ELEMENTS: Final = (
    rf"(?:{_spelt('human_input')}|{_spelt('current_time')}|{_spelt('operator_note')})"
)

#: What begins behind whatever stands before a line of ours.
_OPENED: Final = (
    rf"{_HTML}*+\[?/?(?:{'|'.join(sorted(_UNPRINTED)).lower()})\](?!\()",
    # our speakers
    rf"{_HTML}*+{_STAMP}[\[(<]?(?:{_spelt('human')}|nexus)[\])>]?{_GAP}:",
    rf"{_HTML}*<(?:{_spelt('human')}|nexus)>{_GAP}:",
    # any other speaker, behind a time exactly as we write it: a log's lines have seconds
    rf"{_HTML}*+\[[\s\[/_|-]*+(?:unknown\s*+time|{_DATE}\s*+\d\d:\d\d)\s*+\]++"
    rf"{_GAP}[^\s:]{{1,64}}\s*+:",
    # annotations
    rf"{_HTML}*+\[[\s\[/_|-]*+{_spelt('tool')}{_GAP}use\s*+:",
    rf"{_HTML}*+(?:\[[\s\[/_|-]*+)?{_spelt('tool result cleared')}",
    # the rest of an element that began on the line before
    rf"[/\s]*+{_ELEMENTS}[^<>]{{0,64}}>",
)

_LINES: Final = (
    # the roles of chat templates
    rf"{_BARE}{_STAMP}[\[(]?(?:gpt4\s++correct\s++)?"
    rf"(?:user|{_spelt('assistant')}|{_spelt('system')}){_COLON}",
    # the line of a day, which has nothing else on it: a log's lines go on
    rf"(?:{_SIGNS}|\d{{1,3}}[.)]|{_LISTED})*+{_HTML}*+{_ANGLE}(?:\[[\s\[/_|-]*+)?"
    rf"(?:unknown{_GAP}time|{_DATE})\s*+\][^\w<]*+(?:</[a-z][a-z0-9]{{0,15}}\s*+>\W*+)*+\W*+$",
    # headings of templates that teach by instructions
    r"[\s>_]*+#{3,}\s*+(?:(?:instructions?|input|response)\s*+:"
    r"|(?:system\s++prompt|user\s++message|assistant)\s*+:?\s*+$)",
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
            rf"<[\s/|_!?-]*+(?:\w{{1,8}}:)?{_ELEMENTS}(?:{_END}|\w{{1,16}}[\s/]*+>)",
            # ChatML, Llama 3 and 4, Phi, Command, DeepSeek, Gemma 4: "<|im_start|>", "<turn|>"
            r"<\|[\w▁.:/-]{1,48}\|?>",
            r"<[\w▁.:/-]{1,48}\|>",
            # DeepSeek's calls, EXAONE
            r"<[/\s]*+\|dsml\||\[\|(?:system|user|assistant|human|ai|tool|endofturn)\|\]",
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
            # Gemma, Granite, Hermes, Nemotron and others
            r"<[/\s]*+(?:\w{1,8}[:_])?(?:(?:start|end|begin|beginning)_of_(?:turn|role|text|image"
            r"|sentence)|(?:start|end)_function_(?:call|declaration|response)|(?:[be]o|so)[sp]"
            r"|(?:[be]o[spt]|pad|unk)_token|eo[ahmt]|(?:extra_id|special|reserved)_\d{1,4}"
            r"|tool_(?:call|response|result|use)s?|function_(?:call|result)s?)\s*+[|>]",
            # calls in XML, and roles of Ling
            r"<[/\s]*+(?:\w{1,8}:)?(?:invoke(?:\s*+>|\s++name\s*+=)|(?:function|parameter)\s*+=)"
            r"|<\s*+role\s*+>\s*+(?:system|human|user|assistant|observation)\s*+(?=<)",
        )
    )
)


@lru_cache(maxsize=256)  # requests with blocks of their own bring few distinct sets of tags
def line_pattern(tags: frozenset[str], *, headings: bool) -> re.Pattern[str]:
    """Return what a line of structure begins with, where these tags are in use besides ours."""
    names = "|".join(map(_spelt, sorted(BUILT_IN_TAGS - _UNPRINTED | tags)))
    opened = (
        rf"(?:\[[^\[\]]{{0,32}}\]{_SIGNS}*+)?[\[<][\s\[/_|-]*+(?:{names}){_END}",
        rf"{_HTML}+[\[<][\s\[/_|-]*+(?:{names}){_END}",
        # the rest of a tag that began on the line before; "](" goes on with a link
        rf"[/\s]*+(?:{names})(?:\s[^\[\]]{{0,64}})?\](?!\()",
        *_OPENED,
    )
    behind = rf"{OPEN}{_ANGLE}(?:{'|'.join(opened)})"
    return re.compile("|".join([behind, *_LINES, *([_HEADINGS] if headings else [])]))
