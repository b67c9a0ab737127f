"""Laws of the account: a row is where its decision says that it is."""

from hypothesis import given
from hypothesis import strategies as st

from bench.account import Account, texts
from bench.laws.builds import FORMS
from service.wire.response import COUNTS
from tests.laws.building import CAPS, SPARE, build, every_strategy, protected
from tests.laws.examples import ASKED, Asked, choices, few


@every_strategy
@few
@given(asked=ASKED, spare=SPARE, cap=CAPS, data=st.data())
def test_the_account_is_true(
    name: str, asked: Asked, spare: int, cap: int | None, data: st.DataObject
) -> None:
    """What is kept is in the messages whole, and what is left out is nowhere; counts add up."""
    strategy, form = data.draw(choices(name)), data.draw(st.sampled_from(FORMS))
    available = protected(asked, strategy) + spare
    content = build(asked, strategy, max_tokens=available, memory_tokens=cap, format=form)
    if content.status == "error":
        assert name == "none"
        return
    summaries = [text for _, text in asked.summaries]
    others = [asked.words, asked.profile, asked.tools, asked.context, summaries]
    rows = (*asked.past, *asked.run)
    account = Account()
    account.add("a context", rows, "\n".join(texts(others)), content)

    assert account.kept_but_absent == []
    assert account.left_out_but_present == []
    assert sum(getattr(content, count) for count in COUNTS) == len(rows)
