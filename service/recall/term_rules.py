"""Which rules terms are made by, so that an index of terms that others made is known."""

from functools import cache
from hashlib import blake2b
from typing import Final

from service.recall.terms import terms_of

#: To be raised with a change that none of the texts below shows.
VERSION: Final = 1

#: What a change of stemmers, stop words, cuts or Unicode would show in.
_TEXTS: Final = (
    "She was running to the sailors' meetings about 2,500 résumés, and e-mailed them twice.",
    "Nous avons regardé les chevaux qui couraient près des maisons, c'était magnifique.",
    "Wir sind gestern an den schönen Häusern vorbeigelaufen und haben Brötchen gekauft.",
    "Los niños estaban corriendo por las plazas mientras cantábamos canciones antiguas.",
    "Мы вчера гуляли по набережной и разговаривали о прочитанных книгах.",
    "昨日は琵琶湖で釣りをしました。今度は一緒に行きましょう。",
    "周末我们去了颐和园划船,还看了一本关于历史的书。",
    "우리는 부산에서 배를 탔고 맛있는 국수를 먹었어요.",
    "\ufb01sh \u2460 \uff21\uff22\uff23 \u00b2 naïve Straße İstanbul snake_case",
)


@cache
def term_rules() -> str:
    """Return the name of the rules: the same as long as they make the same terms."""
    digest = blake2b(digest_size=6)
    for text in _TEXTS:
        digest.update("\n".join((*terms_of(text), "")).encode())
    return f"{VERSION}-{digest.hexdigest()}"
