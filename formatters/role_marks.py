r"""The special tokens of published chat templates, which split a prompt into roles.

A tokenizer that reads them in text takes them for its own, in any position. It knows them by
the letter: it has no look-alikes, and finds none after a character that splits them. So each is
broken by a backslash after its first character, and one that has backslashes there already gets
another, so that it can be had back::

    <|im_start|>    <\|im_start|>
    <\|im_start|>   <\\|im_start|>

No token has a backslash, so that breaking one makes no other.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Mapping
from functools import cache
from itertools import chain, product
from typing import Final

#: Tokens by the starts of models' names, in which "*" is up to 64 characters other than blanks,
#: bars, brackets, quotes, "#" and backslashes; "▁" is a blank, and "(/)" writes a token and the one
#: that ends it. Sources: the tokenizers and templates that the models were published with
#: (``tokenizer_config.json``, ``chat_template.jinja``), most of them collected in llama.cpp's
#: ``src/llama-chat.cpp`` and ``models/templates``; for OpenAI, tiktoken's ``openai_public.py`` and
#: the Harmony response format; for Mistral, mistral-common's ``SpecialTokens``; for Gemma, "Gemma
#: formatting and system instructions".
_TABLE: Final[Mapping[str, str]] = {
    "gpt o1 o3 o4 chatgpt codex": "<|*|>",
    "llama meta-llama codellama": "<|*|> <(/)s> <unk> [(/)INST] <<(/)SYS>>",
    "mistral mixtral ministral codestral devstral magistral pixtral open-mistral": """
        <(/)s> <unk> <pad> [(/)INST] [(/)SYSTEM_PROMPT] [(/)AVAILABLE_TOOLS] [TOOL_CALLS]
        [(/)TOOL_RESULTS] [TOOL_CONTENT] [ARGS] [CALL_ID] [(/)THINK] [(/)MODEL_SETTINGS] [IMG]
        [IMG_BREAK] [IMG_END] [PREFIX] [MIDDLE] [SUFFIX] [AUDIO] [BEGIN_AUDIO] [TRANSCRIBE]
        [control_*]
    """,
    "gemma codegemma functiongemma": """
        <bos> <eos> <pad> <unk> <mask> <start_of_turn> <end_of_turn> <start_of_image> <end_of_image>
        <image_soft_token> <start_function_call> <end_function_call> <start_function_declaration>
        <end_function_declaration> <start_function_response> <end_function_response> <escape>
        <unused*> <|*|> <|*> <*|> <|"|>
    """,
    "qwen qwq qvq": """
        <|*|> <(/)tool_call> <(/)tool_response> <(/)think> <function=*> </function> <parameter=*>
        </parameter>
    """,
    "deepseek": """
        <｜*｜> <(/)｜*｜ <|*|> <(/)|DSML| <(/)think> <begin_of_sentence> <end_of_sentence>
    """,
    "glm chatglm": """
        <|*|> [gMASK] [sMASK] [MASK] <sop> <eop> <(/)think> <(/)tool_call> <(/)arg_key>
        <(/)arg_value> [Round▁*]
    """,
    "kimi moonshot": """
        <|*|> [BOS] [EOS] [PAD] [UNK] [EOT] [start_header_id] [end_header_id] [extra_id_*]
    """,
    "minimax": """
        ]~!b[ ]~b] [e~[ ]!p~[ ]!d~[ <(/)minimax:tool_call> <(/)think> <beginning_of_sentence>
        <end_of_sentence> <invoke▁name= </invoke> <parameter▁name= </parameter>
    """,
    "command c4ai aya": """
        <|*|> <BOS_TOKEN> <EOS_TOKEN> <PAD_TOKEN> <UNK_TOKEN> <MASK_TOKEN> <SEP_TOKEN> <CLS_TOKEN>
    """,
    "granite": "<|*|> <(/)tool_call> <(/)tool_response>",
    "phi yi falcon zephyr stablelm dots step apriel lfm megrez jamba gigachat internlm baichuan": (
        "<|*|> <(/)s> <eoh> <eoa> <eom> <eot> <TOKENS_UNUSED_*> <reserved_*> <(/)tool_call> "
        "<(/)tool_calls> [BEGIN▁FINAL▁RESPONSE] [END▁FINAL▁RESPONSE] <(/)think>"
    ),
    "hermes nemotron": """
        <|*|> <(/)s> <extra_id_*> <SPECIAL_*> <(/)TOOLCALL> <(/)TOOL_RESPONSE> <(/)AVAILABLE_TOOLS>
        <(/)think> <(/)tool_call> <(/)tool_response> <(/)tool_result>
    """,
    "exaone": "[|*|] <(/)thought> <(/)tool_call>",
    "seed doubao": "<(/)seed:*> <function=*> </function> <parameter=*> </parameter>",
    "ling ring bailing": "<|*|> <(/)role>",
    "hunyuan": "<｜*｜> <|*|>",
    "minicpm": "<|*|> <(/)s> <用户> <AI>",
    "smolvlm idefics smollm": "<|*|> <end_of_utterance> <fake_token_around_image>",
    "telechat": "<_start> <_end> <_user> <_bot> <_system> <_pad>",
    "inkbot": "<#*#>",
    "yandexgpt": "<(/)s> [SEP] [NL] ▁Пользователь: ▁Ассистент:",
    "bert t5": "[CLS] [SEP] [MASK] [PAD] [UNK] </s> <extra_id_*>",
    "calls-in-xml": """
        <(/)function_calls> <(/)function_results> <invoke▁name= </invoke> <parameter▁name=
        </parameter>
    """,
}
#: The same, with each token written out.
TOKENS: Final = {
    family: frozenset(
        token.replace("(/)", slash).replace("▁", " ")
        for token, slash in product(tokens.split(), ("", "/"))
    )
    for family, tokens in _TABLE.items()
}

#: Those of models of any family that were trained further, as for ChatML.
FINE_TUNED: Final = frozenset({"<|*|>"})

_NAME: Final = r"[^\s<>|｜#\"\[\]\\]{1,64}+"


@cache
def find_tokens(family: str | None = None) -> re.Pattern[str]:
    """Return a pattern of the first characters of a family's tokens; None for those of all."""
    families = TOKENS.values() if family is None else [TOKENS[family], FINE_TUNED]
    rests: dict[str, set[str]] = defaultdict(set)
    for token in chain.from_iterable(families):
        # the blank that a token begins with may be ours, and a search that began with it would stop
        # at every second word
        letter, rest = re.escape(token.lstrip()[0]), token.lstrip()[1:]
        start = rf"{letter}(?<!\S{letter})" if token.startswith(" ") else letter
        rests[start].add(rest)
    return re.compile(
        "|".join(rf"{start}(?=\\*+{_follow(rests[start])})" for start in sorted(rests))
    )


def _follow(rests: Collection[str]) -> str:
    """Return a pattern of what follows the start of tokens, each character read once."""
    if "" in rests:
        return ""  # a shorter token
    ways = [
        (_NAME if first == "*" else re.escape(first))
        + _follow({rest[1:] for rest in rests if rest[0] == first})
        for first in sorted({rest[0] for rest in rests})
    ]
    return ways[0] if len(ways) == 1 else f"(?:{'|'.join(ways)})"


def family_of(model: str) -> str | None:
    """Return the family of a model by its name, such as ``mistral-large``; None if unknown.

    A name may begin with its vendor's: ``mistralai/Mistral-7B-Instruct``. The family is a whole
    word of it, as "intellect" and "stepfun" are other words than "in" and "step".
    """
    name = model.lower().rpartition("/")[2]
    return next((key for key in TOKENS if re.match(_FAMILY_NAMES[key], name)), None)


#: Patterns of the starts of models' names.
_FAMILY_NAMES: Final = {key: rf"(?:{'|'.join(key.split())})(?![a-z])" for key in TOKENS}
