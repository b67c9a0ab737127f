"""The settings of TLS to the bus."""

from pathlib import Path

from service.config.section import Section


class TlsSettings(Section):
    """Whom connections to the bus trust, and how they show who they are."""

    #: Certificates that the server's has to descend from; None for those of the system.
    ca_file: Path | None = None
    #: The own certificate and its key, in PEM, for servers that ask for one.
    cert_file: Path | None = None
    key_file: Path | None = None
    #: Whether the server's certificate has to name the host of the URL.
    check_hostname: bool = True
