import pytest
from hypothesis import given
from hypothesis import strategies as st

from formatters.redaction import redact_secrets

#: Made of parts, so that no scanner of repositories takes them for real.
BODY = "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dE3fG5"


@pytest.mark.parametrize(
    ("secret", "kind"),
    [
        (f"sk-{BODY}", "API key"),
        (f"sk-proj-{BODY}_-x", "API key"),
        (f"sk-ant-api03-{BODY}", "API key"),
        (f"gsk_{BODY}", "API key"),
        (f"hf_{BODY}", "API key"),
        (f"npm_{BODY}", "API key"),
        (f"SG.{BODY[:22]}.{BODY}", "API key"),
        (f"123456789:AA{BODY[:33]}", "API key"),
        (f"AIza{BODY[:35]}", "Google key"),
        (f"AKIA{'ABCDEFGH12345678'}", "AWS key"),
        (f"ghp_{BODY}", "GitHub token"),
        (f"github_pat_{BODY}", "GitHub token"),
        (f"glpat-{BODY[:20]}", "GitLab token"),
        (f"xoxb-{'1234567890'}-{BODY[:24]}", "Slack token"),
        (f"https://hooks.slack.com/services/T0/B0/{BODY}", "Slack token"),
        (f"sk_live_{BODY}", "Stripe key"),
        (f"eyJhbGciOiJI.eyJzdWIiOiIx.{BODY}", "JWT"),
        (
            f"-----BEGIN RSA PRIVATE KEY-----\n{BODY}\n{BODY}\n-----END RSA PRIVATE KEY-----",
            "private key",
        ),
        (f"-----BEGIN PRIVATE KEY-----\n{BODY * 2}", "private key"),
    ],
)
def test_what_issuers_give_out_is_known(secret: str, kind: str) -> None:
    """A token is known by its form alone, and nothing around it changes."""
    assert redact_secrets(f"use {secret} here") == f"use [redacted: {kind}] here"
    assert redact_secrets(f'"{secret}",') == f'"[redacted: {kind}]",'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgres://ana:pa55@db/x", "postgres://[redacted: credentials]@db/x"),
        ("Authorization: Bearer abcdefg", "Authorization: Bearer [redacted: credentials]"),
        (
            '{"authorization": "Basic QWxhZGRpbg=="}',
            '{"authorization": "Basic [redacted: credentials]"}',
        ),
        (f"send Bearer {BODY}.", "send Bearer [redacted: token]"),
        ("password=swordfish", "password=[redacted: password]"),
        ("the password is tiger22.", "the password is [redacted: password]."),
        ('"passwd": "lantern"', '"passwd": "[redacted: password]"'),
        ('password = "swordfish"', 'password = "[redacted: password]"'),
        ("DB_PASSWORD = 'correctHorse_battery'", "DB_PASSWORD = '[redacted: password]'"),
        ("passphrase => `lantern.`", "passphrase => `[redacted: password].`"),
        ("the password is 'lantern'", "the password is '[redacted: password]'"),
        (f"API_KEY={BODY}", "API_KEY=[redacted: secret]"),
        (f"client_secret: '{BODY}'", "client_secret: '[redacted: secret]'"),
        (f"?a=1&access_token={BODY}&b=2", "?a=1&access_token=[redacted: secret]&b=2"),
    ],
)
def test_what_is_named_a_secret_goes(text: str, expected: str) -> None:
    """The name stays, its value goes."""
    assert redact_secrets(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "My password is something I forgot.",
        "password: required",
        "password=settings.password, token=self.token",
        "password=get_password(), pwd=${PWD}",
        "password = input('Password: ')",
        "password=0x123456",
        "password=hello.",
        'password = "DB_PASSWORD"',
        'password = "user-password"',
        'password: "Please enter one"',
        "token = tokenizer.encode(text); max_tokens=100000000000",
        "api_key: your-api-key-1234567890",
        "secret=aaaaaaaaaaaa11",
        "the token is 123456789012345",
        "a bearer of bad news, Bearer authentication-and-more",
        "http://localhost:8080/a@b and https://example.com/x",
        "ssh git@github.com:owner/name.git",
        "sk-learn-and-other-long-names-of-things",
        "commit 3f786850e387550fdab836ed7e6dc881de23001b",
        "id 123e4567-e89b-12d3-a456-426614174000",
        "authorization: {header}",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    """Prose about secrets, code that handles them, and identifiers are left alone."""
    assert redact_secrets(text) == text


PIECES = st.sampled_from(
    [
        *(
            "password",
            "token",
            "=",
            ": ",
            '"',
            " is ",
            "sk-",
            "eyJ",
            ".",
            "-",
            "_",
            "://",
            "@",
            ":",
        ),
        "-----BEGIN PRIVATE KEY-----",  # kingfisher:ignore - the beginning of none
        *("-----END", "Bearer ", "authorization", "a1", " ", "\n"),
        BODY,
    ]
)


@given(st.lists(PIECES, max_size=30).map("".join))
def test_redacting_again_changes_nothing(text: str) -> None:
    """The placeholder of a secret is no secret."""
    once = redact_secrets(text)
    assert redact_secrets(once) == once


@pytest.mark.parametrize(
    "part",
    ["sk-", "eyJaaaaaaaa.", "eyJ-", "-----BEGIN PRIVATE KEY-----", "a:b@", "://a:", "password=",
     "password ", "authorization:", "Bearer ", "token=a1", "-", "A" * 64 + "\n", "secret_",
     "1234567890:AA"],
)  # fmt: skip
def test_no_text_takes_forever(part: str) -> None:
    """Long runs of what patterns begin with come through."""
    assert redact_secrets(part * (40_000 // len(part)))
