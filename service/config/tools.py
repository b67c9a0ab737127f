"""The settings of tools: files, modules, and servers that list theirs over MCP."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr, field_validator, model_validator

from service.config.section import Seconds, Section, Text, WebUrl

#: Letters and digits, with single ``_`` or ``-`` between them: a name of a tool begins with it, and
#: the two ``_`` behind it have to be told from those in it.
SERVER_NAME = r"^[A-Za-z](?:[_-]?[A-Za-z0-9])*$"


class McpServerSettings(Section):
    """A server whose tools are listed, never called: a command to start, or a URL."""

    #: Stands before the names of its tools.
    name: Annotated[str, Field(pattern=SERVER_NAME, max_length=24)]
    #: Speaks MCP on its standard input and output.
    command: Text | None = None
    #: What the command is started with.
    args: tuple[str, ...] = ()
    #: Variables of the command besides a few of this process, such as PATH and HOME.
    env: Mapping[str, SecretStr] = {}
    #: Of a server that speaks MCP over streamable HTTP.
    url: WebUrl | None = None
    #: Sent with each request to the URL.
    headers: Mapping[str, SecretStr] = {}
    #: Names of tools as the server has them; ``*``, ``?`` and ``[…]`` as in names of files.
    allow: tuple[Text, ...] = ("*",)
    #: Goes before what is allowed.
    deny: tuple[Text, ...] = ()
    #: How often tools are listed anew besides the server's own notices of changes.
    refresh_seconds: Seconds = 300.0
    #: To connect, and for a listing with all its pages.
    timeout_seconds: Seconds = 10.0

    @field_validator("headers")
    @classmethod
    def _fit_into_a_request(cls, value: Mapping[str, SecretStr]) -> Mapping[str, SecretStr]:
        for name, secret in value.items():
            for text in (name, secret.get_secret_value()):
                if not text or not text.isascii() or not text.isprintable():
                    raise ValueError(f"the header {name!r} must be printable ASCII characters")
        return value

    @model_validator(mode="after")
    def _reach_it_in_one_way(self) -> "McpServerSettings":
        if (self.command is None) == (self.url is None):
            raise ValueError("either a command or a url is needed, and not both")
        if self.url is not None and (self.args or self.env):
            raise ValueError("args and env go with a command, not with a url")
        if self.command is not None and self.headers:
            raise ValueError("headers go with a url, not with a command")
        return self


class ToolsSettings(Section):
    """Where tool definitions come from."""

    #: Files and folders, seen from the working directory.
    paths: tuple[Path, ...] = ()
    #: Python modules.
    modules: tuple[Text, ...] = ()
    #: Servers; of tools with one name, the first that is listed here stays.
    mcp: tuple[McpServerSettings, ...] = ()
    #: Where the last listing of each server is kept; None keeps it in memory alone.
    snapshots: Path | None = None

    @field_validator("mcp")
    @classmethod
    def _tell_servers_apart(
        cls, value: tuple[McpServerSettings, ...]
    ) -> tuple[McpServerSettings, ...]:
        names = [server.name for server in value]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two servers are called {name!r}")
        return value
