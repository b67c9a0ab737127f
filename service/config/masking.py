"""Hides passwords in text that people will see."""

import re

MASK = "***"

# To the last @ of the URL: a password may hold one, or a slash, without being encoded. What looks
# like a port is none; the length keeps the search linear.
_PASSWORD = re.compile(r"(://[^\s/:@]*:)(?!\d+(?:[/?#\s]|$))[^\s\"'<>]{1,512}@")
_PARAMETER = re.compile(r"([?&](?:password|passwd|secret|token|api_?key)=)[^\s&#]+", re.IGNORECASE)


def mask_urls(text: str) -> str:
    """Return the text with the passwords of the URLs in it masked."""
    if "://" not in text:
        return text
    return _PARAMETER.sub(rf"\1{MASK}", _PASSWORD.sub(rf"\1{MASK}@", text))
