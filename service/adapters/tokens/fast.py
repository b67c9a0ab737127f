"""A faster counter from the extra ``fast``, used only if it counts as tiktoken does."""

import functools
from importlib import import_module
from typing import Final
from unicodedata import category

import structlog

from formatters.model import Count
from formatters.rows import fix_surrogates
from service.adapters.tokens.encodings import count_tokens, load_encoding, try_count

log = structlog.get_logger(__name__)

#: The category of characters that Unicode had not assigned in the version of this Python.
UNASSIGNED: Final = "Cn"


def is_assigned(text: str) -> bool:
    """Return whether Unicode defines all characters of a text, so that tokenizers split it alike.

    A tokenizer has the tables of one Unicode version, and takes later characters for non-letters.
    """
    return text.isascii() or all(category(character) != UNASSIGNED for character in set(text))


@functools.cache
def load_fast_count(name: str) -> Count | None:
    """Return toktok's count of an encoding; None if it isn't installed or differs from tiktoken."""
    try:
        truncate = import_module("toktok").truncate
    except ImportError:
        return None
    except AttributeError as error:
        log.warning("tokenizer.fast_refused", tokenizer=name, reason=repr(error))
        return None

    def count(text: str) -> int:
        # `truncate` reports the tokens of the whole text; `batch_count` starts threads at each call
        try:
            tokens: int = truncate(text, 0, name)[1]
        except UnicodeEncodeError:  # lone surrogates, which tiktoken replaces
            tokens = truncate(fix_surrogates(text), 0, name)[1]
        return tokens

    encoding = load_encoding(name)
    for text in samples():
        if try_count(count, text, name) != count_tokens(encoding, text):
            log.warning("tokenizer.fast_refused", tokenizer=name, reason="it counts otherwise")
            return None
    return count


#: Each covers another case of the patterns that split texts into pieces.
_SAMPLES: Final = (
    # Latin: contractions in both cases, accents, composed and decomposed, case inside words
    "The ferry doesn't leave until we've paid; she'll wait, I'D GUESS, and THEY'RE late.",
    "Größenwahn, naïveté, façade, Łódź, İstanbul, Ærøskøbing, ǅungla",
    "Cafe\u0301 re\u0301sume\u0301 n\u0303 a\u030a\u0323",
    "parseHTTPResponse2JSON XMLHttpRequest snake_case_name kebab-case SCREAMING_CASE iPhone",
    "Supercalifragilisticexpialidocious" * 3,
    # other scripts
    "Съешь же ещё этих мягких французских булок",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία",
    "דג סקרן שט בים מאוכזב ולפתע מצא חברה",
    "الطقس جميل اليوم، أليس كذلك؟ ٠١٢٣٤٥٦٧٨٩",
    "مجھے معلوم نہیں کہ کشتی کب آئے گی۔",
    "आज मौसम बहुत अच्छा है। क्या नाव चलेगी?",
    "আমি নৌকার জন্য অপেক্ষা করছি।",
    "நான் படகுக்காகக் காத்திருக்கிறேன்.",
    "ฉันกำลังรอเรือข้ามฟากอยู่ที่ท่าเรือ",
    "ຂ້ອຍກຳລັງລໍຖ້າເຮືອ",
    "កប៉ាល់នឹងមកដល់ឆាប់ៗ",
    "လှေ ဘယ်အချိန်လာမလဲ",
    "მე ველოდები ნავს",
    "Ես սպասում եմ նավակին",
    "ጀልባው መቼ ይመጣል?",
    "ᎣᏏᏲ, ᏙᎯᏧ?",
    "今天天气很好,我们在湖边等渡船。",
    "吾輩は猫である。名前はまだ無い。カタカナとひらがな、全角ABC123",
    "나룻배가 언제 오는지 아세요? ㅋㅋㅋ",
    "Tôi đang đợi chuyến phà ở bến tàu",
    "混ぜた text με пять scripts هنا 여기",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝓈𝒸𝓇𝒾𝓅𝓉 𐌀𐌁𐌂 𓀀𓀁 𠀀𠀁𠀂",
    # emoji: joined, with a skin tone, flags, keycaps, selectors
    "👩‍👩‍👧‍👦 👍🏽 🏳️‍🌈 🇨🇭🇯🇵 1️⃣ ❤️ ☎︎ 🫠🫨",
    "😀" * 20,
    # numbers, signs and punctuation
    "1 22 333 4444 55555 1234567890 3.14159 1,000,000 -17 1e-9 0xDEADBEEF ½ Ⅳ ²",
    "$12.50 €3 ¥700 ±5% 20°C ∑∫√≠≤ ← → ↔ ■□ … — – “quoted” ‘so’ «là» „da“",
    "!!! ??? ... --- === ### *** ~~~ ||| /// \\\\\\ ((( ]]] }}} <<<>>> ::: ;;; ,,,",
    "=" * 100 + "\n" + "-" * 33 + "/\n//\n/r/n",
    # blanks and line ends
    " ",
    " " * 7,
    " " * 90 + "x",
    "\t\t\tindented\t \t with both \t\n",
    "\n\n\n\n",
    "line one\r\nline two\r\n\r\n  line four  \r\n",
    "trailing   \n   leading\n \n \n\n  both  \n",
    "no\u00a0break\u2003em\u3000wide\u200bzero\u2028line\u2029page\u0085next\ufeffmark",
    "\x00\x01\x02\x1b[31mred\x1b[0m\x1c\x1d\x1e\x1f\x7f",
    # special tokens as text
    "<|endoftext|><|fim_prefix|>a<|fim_middle|>b<|fim_suffix|><|endofprompt|>",
    "<|start|>system<|message|>You are<|end|><|im_start|>user<|im_sep|>hi<|im_end|><|return|>",
    # code and data
    "def wait(ferry: Ferry, *, minutes: int = 5) -> bool:\n    return ferry.due <= minutes  # ok\n",
    "const f = async (x) => { await g(`${x}`); return x?.y ?? [...z]; };\n\n\tif (a && !b) f();",
    '#include <stdio.h>\nint main(void) {\n\tprintf("%d\\n", 1 << 4);\n\treturn 0;\n}\n',
    "SELECT o.id, COUNT(*) FROM orders AS o WHERE o.total >= 10 GROUP BY 1 ORDER BY 2 DESC;",
    "$ grep -rn 'todo' --include='*.py' . | awk -F: '{print $1}' | sort -u > /dev/null 2>&1",
    '<div class="a b" id=\'c\'><a href="https://example.org/x?y=1&amp;z=%20#top">Zur&uuml;ck</a>',
    '{"name":"look","arguments":{"at":"the lake","n":[1,2.5,-3e2,true,null],"s":"a\\"b\\\\c\\n"}}',
    '{\n  "tool_calls": [\n    {\n      "id": "call_0aF9",\n      "index": 0\n    }\n  ]\n}',
    "| Ferry | Due |\n| --- | ---: |\n| *Heron* | **9:05** |\n\n- [ ] `wait`\n1. [go](x)\n> so\n",
    "QmFzZTY0IHRleHQgaXMgbm90IHByb3Nl/+A==",
    "d41d8cd98f00b204e9800998ecf8427e 550e8400-e29b-41d4-a716-446655440000",
    "2025-12-10T08:00:00.000Z [INFO] worker-3 10.0.0.17:6379 latency=12.5ms (ok)",
    "a" * 300,
    "ab1" * 60,
    # lone surrogates, which are not characters
    "broken \ud83d half \udc00 pairs \ud83d\ude00",
)


def samples() -> list[str]:
    """Return more than 200 texts: each sample as it is, repeated, in capitals, halves swapped."""
    texts = [variant for text in _SAMPLES for variant in _variants(text)]
    return [*texts, "", "\r\n".join(_SAMPLES)]


def _variants(text: str) -> tuple[str, ...]:
    half = len(text) // 2
    return text, f" {text}\r\n\r\n  {text}", text.upper(), f"{text[half:]}{text[:half]}"
