"""Redact secrets, such as tokens, keys and passwords, before a text is sent to a model.

Every pattern is anchored at a literal and bounded or possessive, so that the time is linear in any
text. The forms of tokens are those that their issuers document.
"""

import re
from typing import Final

#: No character of a token precedes it.
_START: Final = r"(?<![A-Za-z0-9_-])"
_KEY: Final = r"[A-Za-z0-9_-]"

#: A digit soon after the prefix: names like "sk-learn-pipelines" have none.
_DIGIT: Final = r"(?=[A-Za-z_-]{0,48}[0-9])"

#: The forms of tokens, by the kind that replaces them.
_TOKENS: Final = {
    "private key": (
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:(?:[^-]|-(?!----))*+-----END [A-Z0-9 ]{0,40}-----|(?:\s*+[A-Za-z0-9+/=]{40,}+)*+)"
    ),
    "JWT": rf"{_START}eyJ{_KEY}{{8,}}+\.{_KEY}{{8,}}+(?:\.{_KEY}*+){{1,3}}",
    "AWS key": r"(?<![A-Za-z0-9])(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])",
    "GitHub token": rf"{_START}(?:gh[pousr]_[A-Za-z0-9]{{30,}}+|github_pat_\w{{22,}}+)",
    "GitLab token": rf"{_START}gl(?:pat|ptt|dt|rt|cbt|ft|soat|agent|imt)-[\w.-]{{20,}}+",
    "Slack token": (
        rf"{_START}(?:xox[abceoprs]|xapp)-[A-Za-z0-9-]{{10,}}+"
        r"|https://hooks\.slack\.com/[a-z]{1,16}/[A-Za-z0-9/_-]{20,}+"
    ),
    "Stripe key": rf"{_START}(?:(?:[sr]k|pk)_(?:live|test)|whsec)_[A-Za-z0-9+/=]{{10,}}+",
    "Google key": rf"{_START}(?:AIza{_KEY}{{35}}|ya29\.[\w.-]{{20,}}+|GOCSPX-{_KEY}{{20,}}+)",
    "API key": (
        rf"{_START}(?:"
        # OpenAI, Anthropic, OpenRouter, DeepSeek and others with the same form
        rf"sk-{_DIGIT}{_KEY}{{20,}}+"
        # Groq, xAI, Perplexity, Hugging Face, Replicate, npm, Docker, PyPI, DigitalOcean
        rf"|(?:gsk_|xai-|pplx-|hf_|r8_|npm_|dckr_pat_|pypi-|do[opr]_v1_){_DIGIT}{_KEY}{{30,}}+"
        # Shopify, Databricks, Linear, Notion, Vault, Postman, Atlassian, age
        rf"|(?:shp(?:at|ca|pa|ss)_|dapi|lin_api_|ntn_|hvs\.|PMAK-|ATATT3){_DIGIT}{_KEY}{{24,}}+"
        r"|AGE-SECRET-KEY-1[A-Z0-9]{50,}+"
        # SendGrid, Telegram's bots
        rf"|SG\.{_KEY}{{16,}}+\.{_KEY}{{16,}}+|[0-9]{{8,10}}:AA{_KEY}{{33}})"
    ),
}

_NAMES: Final = (
    r"(?P<name>passwords?|passwd|passphrase|passcode|pwd|secrets?(?:[_-]?access)?(?:[_-]?key)?"
    r"|(?:access|auth|refresh|bearer|api|id|session|bot)?[_-]?token"
    r"|(?:api|access|account|private|signing|encryption|auth|master)[_-]?key"
    r"|credentials?|signature)"
)

#: A name, an operator, and a value up to a delimiter.
_ASSIGNMENT: Final = re.compile(
    rf"{_NAMES}(?P<operator>[\"'`]?(?:\s{{0,4}}(?:=>|:=|[=:])\s{{0,4}}|\s(?:is|was)\s(?:now\s)?)"
    r"[\"'`]?)(?P<value>[^\s\"'`<>\[\](){},;&]{6,512})",
    re.IGNORECASE,
)

_HEADER: Final = re.compile(
    r"(?P<kept>authorization[\"']?\s{0,4}[:=]\s{0,4}[\"']?(?:(?:bearer|basic|token|digest)\s++)?+)"
    r"(?!\[redacted)[^\s\"',;<>{}$()]{6,}+",
    re.IGNORECASE,
)
_BEARER: Final = re.compile(rf"(?i:\bbearer) {_DIGIT}[A-Za-z0-9._~+/=-]{{16,}}+")
_URL: Final = re.compile(r"(?<=://)[^\s/:@\"'<>]{0,128}:[^\s/@\"'<>]{1,256}@")

#: Values that refer to a secret or describe one.
_NO_VALUE: Final = re.compile(
    r"[$%*.#/\\]|(?:your|my|the|example|placeholder|changeme|xxx|redacted|process\.env|os\.|self\."
    r"|settings\.|config\.|env\.|required|optional|string|undefined|incorrect|invalid)",
    re.IGNORECASE,
)
#: Names of variables, which code has as values too.
_VARIABLE: Final = re.compile(r"[A-Za-z_.]*(?:pass|pwd|secret|token|key|cred|[a-z][A-Z]|_|\.)")
#: Names of keys and of variables of the environment, which code has between quotes.
_KEY_NAME: Final = re.compile(r"[A-Z_]+|[a-z_.-]*(?:pass|pwd|secret|token|key|cred)[a-z_.-]*")
_PASSWORD: Final = re.compile("pass|pwd", re.IGNORECASE)

_PATTERNS: Final = tuple((kind, re.compile(pattern)) for kind, pattern in _TOKENS.items())


def redact_secrets(text: str) -> str:
    """Return a text with ``[redacted: kind]`` in place of what looks like a secret."""
    for kind, pattern in _PATTERNS:
        text = pattern.sub(f"[redacted: {kind}]", text)
    text = _URL.sub("[redacted: credentials]@", text)
    text = _HEADER.sub(r"\g<kept>[redacted: credentials]", text)
    text = _BEARER.sub("Bearer [redacted: token]", text)
    return _ASSIGNMENT.sub(_redact_assignment, text)


def _redact_assignment(match: re.Match[str]) -> str:
    name, operator, value = match["name"], match["operator"], match["value"]
    secret = value.rstrip(".:!?")
    password = _PASSWORD.match(name)
    after = match.string[match.end() : match.end() + 1]
    is_secret = _is_password(secret, operator, after) if password else _is_random(secret)
    if _NO_VALUE.match(value) or not is_secret:
        return match[0]
    kind = "password" if password else "secret"
    return f"{name}{operator}[redacted: {kind}]{value[len(secret) :]}"


def _is_password(value: str, operator: str, after: str) -> bool:
    """Return whether a value is a password: in prose only with a digit, in code no variable."""
    if len(value) < 6:
        return False
    if any(char.isdigit() for char in value):
        return not value.startswith("0x")
    if operator[-1] in "\"'`":  # one word between quotes
        return after == operator[-1] and not _KEY_NAME.fullmatch(value)
    return operator in ("=", ":") and not _VARIABLE.match(value)


def _is_random(value: str) -> bool:
    """Return whether a value looks random: letters and digits, well mixed."""
    digits = sum(char.isdigit() for char in value)
    letters = sum(char.isalpha() for char in value)
    mixed = digits >= 2 or (digits and len(value) >= 24)
    return bool(mixed) and len(value) >= 12 and letters >= 2 and len(set(value)) >= 8
