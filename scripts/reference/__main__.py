"""Write the pages that are generated from the code into a folder: ``docs``."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from scripts.reference import commands, configuration, messages, metrics, python

#: The function that generates each page.
PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "commands.md": commands.page,
    "configuration.md": configuration.page,
    "messages.md": messages.page,
    "metrics.md": metrics.page,
    "python.md": python.page,
}


def write(folder: Path) -> None:
    """Write every page into a folder."""
    for name, page in PAGES.items():
        (folder / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
