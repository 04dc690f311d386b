"""Secrets are masked in settings, texts and log records, and everything else stays readable."""

import io
import json
import logging
import string
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Configuration
from penstock.common.masking import (
    _CONSTANTS,
    MASK,
    SecretFilter,
    is_secret,
    masked_setting,
    masked_settings,
    masked_start,
    masked_text,
    secrets_of,
    secrets_of_arguments,
)
from penstock.common.options import OPTIONS

SECRET_KEYS = [
    "spark.hadoop.fs.s3a.access.key",
    "spark.hadoop.fs.s3a.secret.key",
    "spark.hadoop.fs.s3a.session.token",
    "spark.hadoop.fs.azure.account.key.name.dfs.core.windows.net",
    "spark.hadoop.fs.azure.sas.container.account",
    "spark.ssl.keyPassword",
    "spark.ssl.keyStorePassword",
    "sasl.password",
    "state.checkpoints.fs.anything",
    "my.apikey",
    "my.api-key",
    "API_KEY",
    "AWS_SECRET_ACCESS_KEY",
    "license.key",
    "oauth.clientSecret",
    "github-token",
    "db.pwd",
    "auth.tokens",
    "github.tokens",
    "token1",
    "api.keys",
    "encryption_keys",
    "some.key.pair",
    "my.keypair",
    "authorization",
    "http.headers.Authorization",
]
READABLE_KEYS = [
    "rest.auth.token-file",
    "rest.auth.enabled",
    "high-availability.zookeeper.client.credentials-file",
    "spark.hadoop.fs.s3a.aws.credentials.provider",
    "key.group",
    "pipeline.max-parallelism",
    "keys.max",
    "key.deserializer",
    "spark.ssl.keyStore",
    "tokenizer.name",
    "max_tokens",
    "tokens.per.second",
    "partition.keys",
    "spark.io.encryption.keySizeBits",
    "password.min-length",
    "spark.sql.authorization.enabled",
    "monkey",
]
secrets = st.text(string.ascii_letters + string.digits + "!$%^+-_~./:@'\"\\ äß=?&#", min_size=4, max_size=30).filter(
    lambda text: text.strip() == text and not text.startswith("*") and text not in _CONSTANTS
)
plain_passwords = st.text(string.ascii_letters + string.digits + "!$%^+-_~'", min_size=8, max_size=30).filter(
    lambda text: not text.isdigit() and text not in _CONSTANTS
)


@pytest.mark.parametrize("key", SECRET_KEYS)
def test_the_value_of_a_secret_setting_is_masked(key: str) -> None:
    assert masked_settings({key: "hunter2"}) == {key: MASK}


@pytest.mark.parametrize("key", READABLE_KEYS)
def test_other_settings_stay_readable(key: str) -> None:
    assert masked_settings({key: "some/value"}) == {key: "some/value"}


def test_penstocks_own_options_are_readable_except_private_keys() -> None:
    assert {key for key in OPTIONS if is_secret(key)} == {
        "state.checkpoints.fs.*",
        "rest.ssl.private-key",
        "queryable-state.ssl.private-key",
    }


def test_an_empty_secret_is_shown_as_empty() -> None:
    assert masked_setting("db.password", "") == ""


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("postgresql://user:pw@host/db", "postgresql://user:***@host/db"),
        ("redis://:pw@host:6379/0", "redis://:***@host:6379/0"),
        ("s3://AKIA:se/cr+et@bucket/x", "s3://AKIA:***@bucket/x"),
        ("redis://u:p@ss@h,redis://u:pw2@h2", "redis://u:***@h,redis://u:***@h2"),
        ("jdbc:postgresql://host/db?user=me&password=pw&ssl=true", "jdbc:postgresql://host/db?user=me&password=***&ssl=true"),
        ("host=x password='p w' user=y", "host=x password='***' user=y"),
        ("a?password=''000000&b=1", "a?password=***&b=1"),
        ("password='one' 'two'", "password='***' 'two'"),
        ("password='p w'x&b=1", "password=***&b=1"),
        ("x=\"password='one'\" y", "x=\"password='***'\" y"),
        ('Login required username="a" password="b";', 'Login required username="a" password="***";'),
        ("{'fs.s3a.secret.key': 'abc', 'n': 1}", "{'fs.s3a.secret.key': '***', 'n': 1}"),
        ('{"token": "abc", "n": 1}', '{"token": "***", "n": 1}'),
        ("password: hunter2", "password: ***"),
        ("user: me, password: swordfish, port: 5", "user: me, password: ***, port: 5"),
        ("password = swordfish of mine", "password = *** of mine"),
        ("token: eyJhbGciOiJIUzI1NiJ9.e30 expired", "token: *** expired"),
        ("run --password hunter2 job.py", "run --password *** job.py"),
        ("run --db-password swordfish --user x", "run --db-password *** --user x"),
        ("run --token=abc x", "run --token=*** x"),
        ("['--password', 'two words', 'x']", "['--password', '***', 'x']"),
        ("[('fs.s3a.secret.key', 'abc'), ('a', 'b')]", "[('fs.s3a.secret.key', '***'), ('a', 'b')]"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
        ("authorization: Basic dXNlcjpwdw==, Host: h", "authorization: Basic ***, Host: h"),
        ("{'Authorization': 'Bearer abc'}", "{'Authorization': '***'}"),
        (r'{"x": "{\"password\":\"a\\\" b\",\"n\":1}"}', r'{"x": "{\"password\":\"***\",\"n\":1}"}'),
        ("https://ghp_token@host/repository", "https://***@host/repository"),
        ("https://0123456789abcdef0123456789abcdef@host/1", "https://***@host/1"),
        ('msg="login password=hunter2 failed"', 'msg="login password=*** failed"'),
        ('password="never closed', 'password="***'),
        ('password="never closed\\', 'password="***\\'),
    ],
)  # fmt: skip
def test_secrets_in_uris_and_assignments_are_masked(text: str, masked: str) -> None:
    assert masked_text(text) == masked
    assert masked_text(masked) == masked
    assert masked_setting("my.setting", text) == masked


@pytest.mark.parametrize(
    "text",
    [
        "http://host:8081/jobs/a@b",
        "http://[::1]:8081/x@y",
        '{"a":"http://host:8081","b":"me@host"}',
        "postgresql://user@host/db",
        "ssh://git@host:22/repository",
        "key=5 has no state; partition_key=eu, sort-key: 3",
        "The token: unexpected end. A password is missing",
        "Unexpected token: '}' (line 4)",
        "token: expected a number",
        "the option --password is required",
        "argument --password: expected one argument",
        "Send 'Authorization: Bearer <token>' with the token in the file",
        "def connect(user: str, password: str, port: int)",
        "if token == expected: token = self.next()",
        "['id', 'password', 'email']",
        "https://me@example.com/x",
        "abfss://production-data-lake-2024@account.dfs.core.windows.net/x",
        "max_tokens=4096",
        "rest.auth.token-file=/home/me/token",
        "at 12:30 wrote to me@example.com",
    ],
)
def test_texts_without_secrets_stay_unchanged(text: str) -> None:
    assert masked_text(text) == text


@given(st.text(st.characters(exclude_characters="=:-", codec="utf-8")))
def test_any_text_without_assignments_and_uris_stays_unchanged(text: str) -> None:
    assert masked_text(text, ["not-in-the-text-at-all"]) == text


@given(secret=secrets, before=st.text(), after=st.text(), key=st.sampled_from(SECRET_KEYS))
def test_a_known_secret_never_survives_in_a_text(secret: str, before: str, after: str, key: str) -> None:
    settings = {key: secret}
    if key.startswith("state.checkpoints.fs."):
        settings = {"state.checkpoints.fs.secret": secret}
    known = secrets_of(settings)
    for form in (secret, quote(secret, safe=""), repr(secret), repr({"x": secret})):
        text = masked_text(f"{before} {form} {after}", known)
        assert secret not in text.replace(before, "").replace(after, "")
    assert secret not in f"{masked_settings(settings)}"
    assert secret not in f"{Configuration.from_dict(settings)!r}".replace(key, "")


@given(password=plain_passwords, scheme=st.sampled_from(["postgresql", "redis", "jdbc:mysql", "amqp", "s3"]))
def test_an_unknown_password_in_a_uri_never_survives(password: str, scheme: str) -> None:
    uri = f"{scheme}://user:{password}@host:5432/db"
    shown = masked_text(f"cannot connect to {uri}: refused")
    assert shown == f"cannot connect to {scheme}://user:***@host:5432/db: refused"
    assert secrets_of({"my.uri": uri}) == {password}


@given(password=plain_passwords)
def test_an_unknown_password_in_an_assignment_never_survives(password: str) -> None:
    texts = (
        f"a?password={password}&b=1",
        f"db_password={password} x",
        repr({"password": password}),
        repr(("password", password)),
        repr(["--password", password]),
        json.dumps({"x": json.dumps({"password": password})}),
        json.dumps({"x": json.dumps({"x": json.dumps({"password": password})})}),
    )
    for text in texts:
        assert password not in masked_text(text)


@given(password=plain_passwords)
def test_the_password_of_a_truncated_text_never_survives(password: str) -> None:
    assert password not in masked_text(f'{{"user": "me", "password": "{password}')


@given(before=st.text(), after=st.text(), cut=st.integers(0, 60))
def test_no_part_of_a_secret_is_at_the_end_of_a_text_that_is_cut(before: str, after: str, cut: int) -> None:
    secret = "Correct-Horse-Battery"
    text = f"{before}{secret * 2_000}{after}"
    shown = masked_start(text, cut, lambda each: masked_text(each, [secret]))
    assert len(shown) <= cut + 1
    assert "Correct" not in shown.removeprefix(before).replace(MASK, "")


def test_the_rest_of_a_long_text_is_not_masked() -> None:
    masked: list[str] = []

    def mask(text: str) -> str:
        masked.append(text)
        return text

    assert masked_start("x" * 10_000_000, 100, mask) == "x" * 100 + "…"
    assert masked_start("x" * 100, 100, mask) == "x" * 100
    assert sum(map(len, masked)) < 100_000


@pytest.mark.parametrize(
    "part",
    [
        *("a", "A", "1", "a.", "a-", "-", "_", " ", "\\", "'", '"', ":", "=", "\n"),
        *("://", "://a", "://a:", "://a:b@", "https://a", "https://gh1", "https://a1-"),
        *("a=", 'a="', 'a="\\', "password=", 'password="\\', "password: ", "password = basic ", "--password "),
        *('("a", ', 'password\\":\\"', '\\"password\\":\\\\"', "a ", 'a" : '),
    ],
)
def test_a_long_text_of_any_shape_is_masked(part: str) -> None:
    # With a search that is quadratic in the text, this would exceed the timeout by far.
    text = part * (300_000 // len(part))
    assert masked_text(f"{text} password=hunter2") is not None
    assert is_secret(text) in (True, False)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--db-password", "hunter22"],
        ["--token=hunter22"],
        ["x", "--token", "hunter22", "--user", "me"],
        ["DB_PASSWORD='hunter22'"],
        ["redis://me:hunter22@host/0"],
        ['{"password": "hunter22"}'],
        ["-D", "spark.hadoop.fs.s3a.secret.key=hunter22"],
    ],
)
def test_the_secrets_in_arguments_are_known(arguments: list[str]) -> None:
    assert secrets_of_arguments(arguments) == {"hunter22"}


@pytest.mark.parametrize(
    "arguments", [[], ["--password"], ["--password", "--verbose"], ["--key", "eu"], ["--token-file", "x"], ["a=b"]]
)
def test_other_arguments_are_no_secrets(arguments: list[str]) -> None:
    assert secrets_of_arguments(arguments) == set()


def test_a_truth_value_is_not_a_secret() -> None:
    settings = {"hadoop.security.authorization": "true", "state.checkpoints.fs.secret": "false"}
    assert masked_settings(settings) == settings
    assert secrets_of(settings) == set()


def test_secrets_inside_json_settings_are_known() -> None:
    value = '{"account_key": "abcdef", "region": "eu-central-1"}'
    assert "abcdef" in secrets_of({"state.checkpoints.fs.client_kwargs": value})
    assert "eu-central-1" not in secrets_of({"state.checkpoints.fs.client_kwargs": value})


def test_the_secrets_of_store_options_are_known_by_their_names() -> None:
    settings = {"state.checkpoints.fs.anon": "true", "state.checkpoints.fs.secret": "hunter22"}
    assert secrets_of(settings) == {"hunter22"}


def test_short_values_do_not_mask_ordinary_words() -> None:
    assert masked_text("a cat sat", secrets_of({"db.password": "a"})) == "a cat sat"


def logged(log_filter: SecretFilter, *arguments: object, **more: object) -> str:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(log_filter)
    logger = logging.Logger("test")
    logger.addHandler(handler)
    logger.error(*arguments, **more)  # type: ignore[arg-type]
    return stream.getvalue()


def test_log_records_are_masked_with_their_arguments() -> None:
    log_filter = SecretFilter({"db.password": "hunter22"})
    assert logged(log_filter, "cannot log in as %s with %s", "me", "hunter22") == "cannot log in as me with ***\n"


def test_tracebacks_in_log_records_are_masked() -> None:
    log_filter = SecretFilter()
    log_filter.learn({"db.password": "hunter22"})
    try:
        raise ValueError("rejected hunter22")
    except ValueError:
        text = logged(log_filter, "failed", exc_info=True, stack_info=True)
    assert "ValueError: rejected ***" in text
    assert "Traceback" in text
    assert "hunter22" not in text
