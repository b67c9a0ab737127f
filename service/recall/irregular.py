"""English words in forms that no stemmer joins, such as "went" and "children"."""

from collections.abc import Mapping
from typing import Final

#: Words, each with its irregular forms. Forms that mostly mean something else, such as "bit", are
#: left out, as are stop words.
_FORMS: Final = """
    arise arose arisen, awake awoke awoken, bear bore borne, beat beaten, become became, begin
    began begun, bend bent, bite bitten, bleed bled, blow blew blown, break broke broken, breed
    bred, bring brought, build built, burn burnt, buy bought, catch caught, choose chose chosen,
    cling clung, come came, creep crept, deal dealt, dig dug, draw drew drawn, dream dreamt, drink
    drank drunk, drive drove driven, eat ate eaten, fall fell fallen, feed fed, feel felt, fight
    fought, find found, flee fled, fling flung, fly flew flown, forbid forbade forbidden, forget
    forgot forgotten, forgive forgave forgiven, freeze froze frozen, get got gotten, give gave
    given, go went gone, grow grew grown, hang hung, hear heard, hide hid hidden, hold held, keep
    kept, kneel knelt, know knew known, lay laid, lead led, lean leant, leap leapt, learn learnt,
    leave left, lend lent, lie lain, light lit, lose lost, make made, mean meant, meet met,
    mistake mistook mistaken, overcome overcame, pay paid, prove proven, ride rode ridden, ring
    rang rung, rise rose risen, run ran, say said, see saw seen, seek sought, sell sold, send
    sent, sew sewn, shake shook shaken, shine shone, shoot shot, show shown, shrink shrank shrunk,
    sing sang sung, sink sank sunk, sit sat, sleep slept, slide slid, speak spoke spoken, spell
    spelt, spend spent, spill spilt, spin spun, spring sprang sprung, stand stood, steal stole
    stolen, stick stuck, strike struck, strive strove striven, swear swore sworn, sweep swept,
    swell swollen, swim swam swum, swing swung, take took taken, teach taught, tear tore torn,
    tell told, think thought, throw threw thrown, undergo underwent undergone, understand
    understood, wake woke woken, wear wore worn, weave wove woven, weep wept, win won, withdraw
    withdrew withdrawn, write wrote written, child children, foot feet, goose geese, half halves,
    knife knives, life lives, loaf loaves, man men, mouse mice, person people, shelf shelves,
    thief thieves, tooth teeth, wife wives, wolf wolves, woman women
"""

#: The word of each irregular form.
IRREGULAR: Final[Mapping[str, str]] = {
    form: word for word, *forms in map(str.split, _FORMS.split(",")) for form in forms
}
