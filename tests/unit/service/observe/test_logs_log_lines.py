"""Lines of log on their way to a file."""

import asyncio
import io
import subprocess
import sys
import threading

from service.observe.logs import Lines, Logger


class Pieces(io.StringIO):
    """A file that remembers what came in one piece."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []

    def write(self, text: str) -> int:
        """Take a piece."""
        if text:
            self.pieces.append(text)
        return len(text)


def _logger() -> tuple[Logger, Pieces]:
    file = Pieces()
    return Logger("x", Lines(file)), file


async def test_lines_of_one_turn_are_one_piece() -> None:
    """What is logged in one turn of the event loop is written together before the next."""
    log, file = _logger()
    log.info("a")
    log.info("b")
    assert file.pieces == []
    await asyncio.sleep(0)
    assert file.pieces == ["a\nb\n"]
    log.info("c")
    await asyncio.sleep(0)
    assert file.pieces == ["a\nb\n", "c\n"]


async def test_a_line_is_written_before_anybody_hears_of_what_it_tells() -> None:
    """Whoever a task wakes after it has logged finds the line written."""
    log, file = _logger()
    told: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def work() -> None:
        log.info("done")
        told.set_result(None)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(work())
        await told
        assert file.pieces == ["done\n"]


async def test_what_is_wrong_is_written_at_once() -> None:
    """A warning does not wait, and neither do the lines before it."""
    log, file = _logger()
    log.info("a")
    log.warning("b")
    assert file.pieces == ["a\nb\n"]
    await asyncio.sleep(0)
    assert file.pieces == ["a\nb\n"]


async def test_other_threads_do_not_wait_for_the_loop() -> None:
    """A line of a thread without a loop is written at once, behind those that waited."""
    log, file = _logger()
    log.info("a")
    thread = threading.Thread(target=log.info, args=("b",))
    thread.start()
    thread.join()
    assert file.pieces == ["a\nb\n"]


def test_without_a_loop_nothing_waits() -> None:
    """A program without an event loop has each line at once, also after one has ended."""
    log, file = _logger()
    log.info("a")

    async def in_a_loop() -> None:
        log.info("b")

    asyncio.run(in_a_loop())
    log.info("c")
    assert file.pieces == ["a\n", "b\n", "c\n"]


def test_a_line_may_come_in_the_middle_of_a_write() -> None:
    """As of a task that the garbage collector ends just then: nothing waits for itself."""

    class Interrupted(Pieces):
        """A file in whose first write another line comes."""

        def write(self, text: str) -> int:
            if not self.pieces:
                self.pieces.append("")
                log.warning("within")
            return super().write(text)

    file = Interrupted()
    log = Logger("x", Lines(file))
    thread = threading.Thread(target=log.warning, args=("around",), daemon=True)
    thread.start()
    thread.join(timeout=30)
    assert not thread.is_alive()
    assert file.pieces == ["", "within\n", "around\n"]


async def test_pieces_are_short_enough_to_stay_whole() -> None:
    """No piece has more than a pipe takes at once, and none ends within a line."""
    log, file = _logger()
    lines = [f"{place}{'x' * 300}" for place in range(40)]
    for line in [*lines, "y" * 9000]:
        log.info(line)
    await asyncio.sleep(0)
    *pieces, long = file.pieces
    assert "".join(pieces).splitlines() == lines
    assert all(len(piece) <= 4096 and piece.endswith("\n") for piece in pieces)
    assert len(pieces) == 4
    assert long == "y" * 9000 + "\n"


def test_what_waits_is_written_as_the_process_ends() -> None:
    """A program that ends within a turn of its loop loses no line."""
    program = """
import asyncio, sys
from service.observe.logs import Lines, Logger

def end():
    Logger("x", Lines(sys.stderr)).info("last words")
    sys.exit()

loop = asyncio.new_event_loop()
loop.call_soon(end)
loop.run_forever()
"""
    ended = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert ended.stderr == "last words\n"
