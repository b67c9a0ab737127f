"""Pages of other origins: those that the settings name may ask, and no other."""

import httpx2
import pytest

from tests.serving import TOKEN, asking, serving

APP = "https://app.example"
ALLOWED = {"allowed_origins": [APP]}
OTHERS = ("https://evil.example", "http://app.example", "null")
#: The headers that a browser adds to a request of another site's page.
ASKS = {"Origin": APP, "Sec-Fetch-Site": "cross-site", "X-Owner-Key": "ana"}
WANTS = {"Origin": APP, "Access-Control-Request-Method": "POST"}


def allowances(answer: httpx2.Response) -> list[str]:
    """Return the headers that allow a page something."""
    return [name for name in answer.headers if name.startswith("access-control-allow")]


async def test_a_page_that_is_named_reads_the_answers() -> None:
    """All of them: also those that refuse, so that it can say why."""
    async with serving({**ALLOWED, "token": TOKEN, "concurrency": 1}) as scene:
        known = {**ASKS, "Authorization": f"Bearer {TOKEN}"}
        for path, headers, status in (
            ("/v1/history", known, 200),
            ("/v1/history", ASKS, 401),
            ("/v1/history", {**known, "X-Owner-Key": ""}, 400),
            ("/v1/nothing", known, 404),
            ("/v1/prune", known, 405),
            ("/robots.txt", {"Origin": APP}, 200),
        ):
            answer = await scene.http.get(path, headers=headers)
            allowed = answer.headers["access-control-allow-origin"]
            assert (answer.status_code, allowed) == (status, APP), path
            assert "Origin" in answer.headers["vary"]
            assert "access-control-allow-credentials" not in answer.headers
        large = b"x" * 300_000
        refused = await scene.http.post("/v1/prune/preview", content=large, headers=known)
        assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (415, APP)


async def test_a_fault_of_ours_can_be_read_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the page would see a network that fails."""
    async with serving(ALLOWED) as scene:

        async def broken(_owner_key: str) -> None:
            raise RuntimeError("a fault")

        monkeypatch.setattr(scene.builder.history, "stats", broken)
        answer = await scene.http.get("/v1/history", headers=ASKS)
        assert answer.status_code == 500
        assert answer.headers["access-control-allow-origin"] == APP


async def test_a_page_that_is_named_hears_the_feed() -> None:
    """As it comes, not when it has ended."""
    async with (
        serving(ALLOWED) as scene,
        scene.http.stream("GET", "/v1/live", headers=ASKS) as live,
    ):
        assert live.headers["access-control-allow-origin"] == APP
        lines = live.aiter_lines()
        while await anext(lines) != ": hello":
            pass
        await scene.built()
        while not (await anext(lines)).startswith("data: "):
            pass


async def test_a_page_that_is_named_may_ask_whether_it_may() -> None:
    """Without the token, which browsers don't send then; in a network of one's own, too."""
    async with serving({**ALLOWED, "token": TOKEN}) as scene:
        for path in ("/v1/history", "/v1/prune", "/v1/live", "/v1/build", "/version"):
            headers = {
                **WANTS,
                "Access-Control-Request-Headers": "authorization,content-type,x-owner-key",
                "Access-Control-Request-Private-Network": "true",
            }
            answer = await scene.http.options(path, headers=headers)
            assert (answer.status_code, answer.text) == (200, "OK")
            assert answer.headers["access-control-allow-origin"] == APP
            assert answer.headers["access-control-allow-methods"] == "GET, POST"
            assert "X-Owner-Key" in answer.headers["access-control-allow-headers"]
            assert answer.headers["access-control-allow-private-network"] == "true"


async def test_what_no_page_needs_is_not_allowed() -> None:
    """Other methods, and other headers."""
    async with serving(ALLOWED) as scene:
        for asked in (
            {**WANTS, "Access-Control-Request-Method": "DELETE"},
            {**WANTS, "Access-Control-Request-Headers": "x-forwarded-for"},
        ):
            assert (await scene.http.options("/v1/prune", headers=asked)).status_code == 400


@pytest.mark.parametrize("origin", OTHERS)
async def test_other_pages_are_refused_as_if_none_were_named(origin: str) -> None:
    """They may neither ask, nor ask whether they may, nor read the files."""
    async with serving(ALLOWED) as scene:
        await scene.remember()
        headers = {**ASKS, "Origin": origin}
        body = {"ids": ["m0"]}
        answers = [
            await scene.http.post("/v1/prune", json=body, headers=headers),
            await scene.http.post("/v1/build", json=asking(), headers=headers),
            await scene.http.get("/v1/live", headers=headers),
            await scene.http.options("/v1/prune", headers={**WANTS, "Origin": origin}),
        ]
        file = await scene.http.get("/robots.txt", headers=headers)
        stats = await scene.builder.history.stats("ana")

    assert [answer.status_code for answer in answers] == [403] * 4
    assert not [name for answer in (*answers, file) for name in allowances(answer)]
    assert (stats.rows, stats.pruned) == (6, 0)


async def test_a_request_that_hides_its_page_is_refused() -> None:
    """As of an image or a form on it: browsers name the origin where answers are read."""
    async with serving(ALLOWED) as scene:
        headers = {"Sec-Fetch-Site": "cross-site", "X-Owner-Key": "ana"}
        assert (await scene.http.get("/v1/history", headers=headers)).status_code == 403


async def test_nobody_is_allowed_by_itself() -> None:
    """And no answer says anything of it."""
    async with serving() as scene:
        for answer in (
            await scene.http.get("/v1/history", headers=ASKS),
            await scene.http.options("/v1/history", headers=WANTS),
        ):
            assert (answer.status_code, allowances(answer)) == (403, [])
