"""The files of the page."""

from pathlib import Path

import httpx2
from starlette.applications import Starlette

from service.http.static_files import FOLDER, MEDIA_TYPES, static_routes


def asking(folder: Path) -> httpx2.AsyncClient:
    """Return a client of an application that serves a folder."""
    app = Starlette(routes=list(static_routes(folder)))
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://test")


async def test_files_have_their_types(tmp_path: Path) -> None:
    """Whatever the machine thinks of them; a file is sent again only where it has changed."""
    (tmp_path / "parts").mkdir()
    (tmp_path / "index.html").write_text("<p>ü")
    (tmp_path / "parts" / "bar.js").write_text("export {}")
    (tmp_path / "notes.md").write_text("private")
    async with asking(tmp_path) as client:
        page, script = await client.get("/"), await client.get("/parts/bar.js")
        again = await client.get("/", headers={"If-None-Match": page.headers["etag"]})

        assert (page.text, page.headers["content-type"]) == ("<p>ü", MEDIA_TYPES[".html"])
        assert script.headers["content-type"] == "text/javascript; charset=utf-8"
        assert (again.status_code, again.content) == (304, b"")
        assert (await client.get("/notes.md")).status_code == 404


async def test_a_file_is_known_by_a_weak_tag_and_in_a_list(tmp_path: Path) -> None:
    """As browsers send it after a proxy has compressed the file."""
    (tmp_path / "index.html").write_text("<p>ü")
    async with asking(tmp_path) as client:
        tag = (await client.get("/")).headers["etag"]

        for tags, status in ((f"W/{tag}", 304), (f'"a", {tag}', 304), ('"a"', 200), ("", 200)):
            again = await client.get("/", headers={"If-None-Match": tags})
            assert again.status_code == status


async def test_nothing_else_can_be_reached(tmp_path: Path) -> None:
    """No path leads out of the folder."""
    (tmp_path / "secret.txt").write_text("secret")
    inner = tmp_path / "static"
    inner.mkdir()
    (inner / "index.html").write_text("<p>ü")
    async with asking(inner) as client:
        for path in (
            "/../secret.txt",
            "/%2e%2e/secret.txt",
            "/..%2fsecret.txt",
            "/./../secret.txt",
        ):
            assert (await client.get(path)).status_code == 404


def test_every_file_that_is_shipped_has_a_type() -> None:
    """So that each is served."""
    assert {path.suffix for path in FOLDER.rglob("*") if path.is_file()} <= set(MEDIA_TYPES)
