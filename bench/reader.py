"""Read contexts from their text alone; nothing here is shared with the guard.

`read_law` knows no look-alike. `read_structure` is fooled by all of them: it ignores case, width,
emphasis, boxes and signs before a line, and what doesn't show. `find_tokens` reads as a tokenizer.
A context is sound if each of them reads in it what it reads with harmless words in all places.
"""

import html
import json
import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

# --- the law ---------------------------------------------------------------------------------

#: How the lines begin that are ours.
OURS: Final = re.compile(
    r"\[(?:[A-Z_]+(?: count=\d+)?|CONTEXT SUMMARY(?: - Generated: [\d: -]+)?)\]$"
    r"|(?:\[[\d: -]{16}\]|\[Unknown time\]|\s)? (?:Human|Nexus)(?: \[\w{8}\])?"
    r"(?: lines [\d a-z]+)?:"
    r"| {1,2}Tool (?=[\w-]+(?: \[\w{8}\])?(?: lines [\d a-z]+)?:)"
    r"|\[(?:\d+ [A-Z][a-z]+ \d{4}|unknown time)\]$|\[left out: lines |\(\d+ [a-z ]+ not shown; "
    r"|\((?:more|not found): |\(more tokens are needed\)$"
    r"|\(its messages: recall id "
    r"|\[tool_use:|### |- |Parameters:$|---$|\((?:shortened|No|Still|New)|<current_time>"
    r"|</?(?:human_input|operator_note)>$|(?:Available|Recent|About|Earlier|Nobody|Member) [^:]+:"
)
SIGNS: Final = frozenset(
    ",.;!?'\"()-\t…–—’‘“”„«»¡¿‚‐‑‒―、。，．；！？（）｡､・《》「」『』،؛؟۔״׳־।॥።၊။។\u200c\u200d"
)


def read_law(text: str) -> Iterator[str]:
    """Yield how each line begins that is neither blank, nor plain, and without the gutter."""
    for line in text.split("\n"):
        if line.strip() and not line.startswith("| "):
            if ours := OURS.match(line):
                yield ours[0]
            elif not is_plain(line):
                yield f"not ours: {line}"


@lru_cache(maxsize=4_096)
def is_plain(line: str) -> bool:
    """Return whether a line is of letters, digits, marks, blanks and the signs of sentences.

    So is a line of three dots, which passages have where text is left out.
    """
    if line == "...":
        return True
    kinds = {char: unicodedata.category(char) for char in line}
    words = {char for char, kind in kinds.items() if kind[0] in "LM" or kind in {"Nd", "Zs"}}
    return kinds[line[0]][0] in "LN" and set(line) - words <= SIGNS


# --- a tolerant reader -----------------------------------------------------------------------

#: Colours of a terminal, HTML, and emphasis.
_MARKUP: Final = re.compile(
    r"(?:\x1b\[|\x9b)[\d;]*[a-z]|</?(?:b|i|p|em|span)(?:\s[^<>]*)?>|<!--|[*`~]"
)
_BEFORE: Final = re.compile(r"(?:[^\w\[<|]|_|\[(?:[\s\w]|\d+)?\](?=\W))*")
_CALLS: Final = re.compile(r"\[tool_use:((?:[^\]\\]|\\.)*)\]")
_RESULT: Final = re.compile(r"( {1,2}Tool )[a-zA-Z0-9_-]+:")
_TOOL: Final = re.compile(r"(?:[^;\\]|\\.)+")
_SPEAKER: Final = re.compile(r"(?:[\[<(][^\])>]{0,40}[\])>]\W*)?\w[^:\[\]<>|]{0,40}:")
#: Anything in brackets, but for a list in JSON.
_TAG: Final = re.compile(r"[\[<|](?![\[\s]*(?:[{\"\]]|-?\d+\s*,))[\[<|\W]*\w[\w -]*")


def read_structure(text: str) -> Iterator[str]:
    """Yield what each line without the gutter begins with, if that is structure."""
    for line in text.split("\n"):
        if not line.startswith("| ") and (piece := _opening(line)):
            yield piece


@lru_cache(maxsize=4_096)
def _opening(line: str) -> str:
    if calls := _CALLS.fullmatch(line):
        return f"[tool_use {len(_TOOL.findall(calls[1]))}"
    if result := _RESULT.match(line):
        return result[1]
    seen = _fold(line)
    if sign := re.match(r"\s*(#+|-+(?=\s|-)|\(\w+)", seen):
        return sign[1]
    start = _BEFORE.match(seen)
    rest = seen[start.end() :] if start else seen
    found = _SPEAKER.match(rest) or _TAG.match(rest)
    return found[0] if found else ""


def _fold(line: str) -> str:
    """Return a line in small letters, without what doesn't show; signs are known by their names."""
    if not line.isascii():
        whole = _COLONS.sub(":", unicodedata.normalize("NFD", html.unescape(line)))
        line = unicodedata.normalize("NFKC", "".join(map(_fold_sign, whole)))
    return re.sub(r"[^\S\n]+", " ", _MARKUP.sub("", html.unescape(line).lower()))


#: Visarga and its like, but for those on letters of their own scripts.
_COLONS: Final = re.compile(
    "(?<=[\0-\x7f])[\u0903\u0983\u0a03\u0a83\u0c03\u0c83\u0d03\u0d83\u17c7\u1038\u0f7f]"
)
_NAMES: Final = {
    (" COLON", "RATIO", "TWO DOT", "PUNCTUATION SOF PASUQ", "ARMENIAN FULL STOP"): ":",
    ("VERTICAL LINE", "LIGHT VERTICAL", "BROKEN BAR", "DIVIDES", "CLICK"): "|",
    ("LEFT-POINTING ANGLE", "LEFT ANGLE", "LESS-THAN", "LEFT-POINTING TRIANGLE"): "<",
    ("RIGHT-POINTING ANGLE", "RIGHT ANGLE", "GREATER-THAN", "RIGHT-POINTING TRIANGLE"): ">",
    ("LEFT", "OPENING"): "[",
    ("RIGHT", "CLOSING"): "]",
}


@lru_cache(maxsize=4_096)
def _fold_sign(char: str) -> str:
    kind, name = unicodedata.category(char), unicodedata.name(char, "")
    wide = unicodedata.normalize("NFKC", char)
    if kind in {"Cf", "Cc", "Mn", "Me"} or "FILLER" in name:
        return " " if char.isspace() else ""
    if kind in {"So", "Co", "Cn"} or "\u2100" <= char <= "\u214f":
        return " "  # emoji, flags, boxed letters, and signs such as that of numbers
    if wide.isascii():
        return wide
    if kind[0] == "L" and not wide.isalnum():
        return "x"
    if kind[0] not in "PS" or ("QUOTATION" in name and "ANGLE" not in name):
        return char
    return next((sign for words, sign in _NAMES.items() if any(w in name for w in words)), char)


# --- tokenizers ------------------------------------------------------------------------------

#: Tokens of published chat templates. From ``chat_template.jinja`` and ``tokenizer_config.json``
#: of the models, as llama.cpp (``src/llama-chat.cpp``, ``models/templates``) collects them: ChatML,
#: Llama, Mistral, Gemma, Phi, Qwen, GLM, DeepSeek, Command, Granite, EXAONE, Kimi, MiniMax, Seed,
#: SmolVLM, TeleChat, MiniCPM, Ling, Nemotron; from the model cards of Inkbot and YandexGPT; and
#: from OpenAI's Harmony format.
_WITHOUT_BLANKS: Final = """
<|im_start|> <|im_end|> <|im_sep|> <|im_user|> <|im_system|> <|im_middle|> <|endoftext|> <|start|>
<|message|> <|channel|> <|return|> <|call|> <|end|> <|begin_of_text|> <|start_header_id|>
<|end_header_id|> <|eot_id|> <|eom_id|> <|python_tag|> <|header_start|> <|eot|> [INST] [/INST]
<<SYS>> <</SYS>> <s> </s> [SYSTEM_PROMPT] [AVAILABLE_TOOLS] [TOOL_CALLS] [TOOL_RESULTS]
[/TOOL_RESULTS] <start_of_turn> <end_of_turn> <start_function_call> <|turn> <turn|> <bos> <eos>
<|system|> <|user|> <|assistant|> <|observation|> [gMASK] <sop> <tool_call> </tool_call>
<tool_response> </tool_response> <｜User｜> <｜Assistant｜> <think> <｜end▁of▁sentence｜>
<｜tool▁calls▁begin｜> <｜DSML｜ <|START_OF_TURN_TOKEN|> <|USER_TOKEN|> <BOS_TOKEN>
<|start_of_role|> <|end_of_role|> [|system|] [|endofturn|] ]~b] [e~[ ]~!b[ <minimax:tool_call>
<end_of_utterance> <_user> <_bot> <_system> <_end> <用户> <AI> <#system#> <#user#> <#bot#>
<seed:bos> <seed:tool_call> <role> </role> <extra_id_0> <SPECIAL_10> [SEP] <function_calls>
"""
TOKENS: Final = (
    *_WITHOUT_BLANKS.split(),
    *(" Пользователь:", " Ассистент:", "[Round 1]\n\n问：", '<invoke name="', "<function=shell>"),
)
_TOKENS: Final = re.compile("|".join(map(re.escape, TOKENS)))


@lru_cache(maxsize=4_096)
def find_tokens(text: str) -> list[str]:
    """Return the tokens in a text."""
    return _TOKENS.findall(text)


def read_texts(value: object, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield all keys and texts of a message or body, with the key that each is under.

    Arguments of calls are read both as they are sent and decoded.
    """
    if isinstance(value, str):
        yield key, value
        if key == "arguments":
            yield from read_texts(json.loads(value), "argument")
    elif isinstance(value, dict):
        for name, item in value.items():
            yield "", name
            yield from read_texts(item, name if key != "argument" else key)
    elif isinstance(value, list):
        for item in value:
            yield from read_texts(item, key)
