"""Letters and signs by the plain ones that they look like.

After Unicode's list of confusable characters (UTS 39), and brackets of many kinds.
"""

from typing import Final

#: Letters of other scripts, small capitals and the like, by the letter that they look like, and
#: that Unicode does not fold. Only letters that can pass unnoticed in a word are here.
LETTERS: Final = {
    "a": "АаΑαɑᴀᎪꓮᗅ⍺𐊠𖽀",
    "b": "ВЬΒʙᏴᏏꓐᗷᖯᑲƄꞴ𐊂𐊡𐌁",
    "c": "СсᴄᏟꓚϹϲⲤⲥς𐊢𐌂𐐕𐐽𐔜𑣩𑣲🝌",
    "d": "ԁᴅᎠᏧꓓԃᗞᗪꓒᑯ",
    "e": "ЕеΕεᴇᎬꓰҽ℮ꬲⴹ⋿𐊆𑢦𑢮",
    "f": "ꜰϜϝꓝƒքᖴꞘꞙꬵ𐊇𐊥𐔥𑢢𑣂𝈓",
    "g": "ɡɢԌԍᏀꓖցƍᏳᶃ",
    "h": "НһΗʜհᎻᏂꓧⲎⲏᕼ𐋏",
    "i": "ІіΙιıɪᎥꓲᛁⵏ⍳ꙇƖɩ˛۱Ⲓ𐊊𐌉𐌠𑣃𖼨",
    "j": "ЈјϳᴊᎫꓙᒍꞲ",
    "k": "КкΚκᴋᏦꓗⲔᛕ𐔘",
    "l": "ӏʟᏞꓡᒪⳐ⏽𐐛𐔦𑢣𑢲𖼖𝈪",
    "m": "МмΜᴍᎷꓟⲘⲙᗰϺᛖ𐊰𐌑",
    "n": "ΝɴηոռꓠⲚⲛᴎ𐔓",
    "o": "ОоΟοσᴏօՕꓳⲞⲟ০୦〇߀ዐଠ०۵੦૦௦౦೦൦๐໐ംഠဝ၀ჿᴑⵔꬽ𐊒𐊫𐐄𐐬𐓂𐓪𐔖𑓐𑢵𑣈𑣗𑣠",
    "p": "РрΡρᴘᏢꓑⲢⲣᑭ⍴𐊕",
    "q": "ԛԚզգⵕ",
    "r": "ʀᎡᏒꓣᴦгᖇꭇꭈⲅꮁ𐒴𖼵𝈖",
    "s": "ЅѕꜱᏕᏚꓢՏƽ𐊖𐐠𐑈𑣁𖼺",
    "t": "ТтΤτᴛᎢꓔⲦⲧ⊤⟙𐊗𐊱𐌕𑢼𖼊🝨",
    "u": "υսՍᴜꓴʋᑌ∪ሀꞟꭎ⋃ꭒ𐓎𐓶𑢸𑣘𖽂",
    "v": "νᴠѵѴᏙꓦᐯ۷∨⋁ⴸꛟ𐔝𑜆𑢠𑣀𖼈𝈍",
    "w": "ᴡԝԜᎳᏔꓪѡɯա𑜊𑜎𑜏𑣦𑣯",
    "x": "ХхΧχꓫⲬⲭ᙭×╳ᕁᕽ᙮ᚷ⤫⤬⨯ⵝꞳ𐊐𐊴𐌗𐌢𐔧𑣬",
    "y": "УуΥʏүγꓬⲨⲩᎩꭚყɣᎽᶌỿ𐊲𑢤𑣜𖽃",
    "z": "ΖᴢᏃꓜⲌⲍ𐋵𑢩𑣄𑣥",
    "[": "【〔〖〘〚⟦❲⁅⦋⟬「『⌈⌊⎡⎣⸢⸤⦃⦗⟅⧘",
    "]": "】〕〗〙〛⟧❳⁆⦌⟭」』⌉⌋⎤⎦⸣⸥⦄⦘⟆⧙",
    "<": "⟨〈《‹«❬❮❰≪⟪˂ᐸᚲ⋖⪡⧼◁◀◄⊲≺˱𝈶ᐊ⮜⯇",
    ">": "⟩〉》›»❭❯❱≫⟫˃ᐳ𖼿⋗⪢⧽▷▶►⊳≻˲𝈷ᐅ⮞⯈",
    "/": "∕⁄╱⧸᜵⁁⟋Ⳇ〳ノ㇓丿𝈺",
    ":": "∶ː꞉˸։᛬ꓽः᠃᠉⁚⁝⦂︰︙⁞",
    "|": "│┃∣ǀ❘❙¦⏽║",
    "_": "ˍ‿⁀﹍﹎﹏",
    "-": "‐‒−",
    " ": "⠀",
}
LOOKALIKES: Final = {ord(char): plain for plain, chars in LETTERS.items() for char in chars}

#: Signs that can be read as a letter, and as a sign as well.
SIGNS: Final = frozenset(
    code for code, plain in LOOKALIKES.items() if plain.isalpha() and not chr(code).isalnum()
)
