"""Secrets are masked in settings, texts and log records, and everything else stays readable."""

import io
import logging
import string
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Configuration
from penstock.common.masking import (
    MASK,
    SecretFilter,
    is_secret,
    masked_setting,
    masked_settings,
    masked_text,
    secrets_of,
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
    "monkey",
]
secrets = st.text(string.ascii_letters + string.digits + "!$%^+-_~./:@'\"\\ äß=?&#", min_size=4, max_size=30).filter(
    lambda text: text.strip() == text and not text.startswith("*")
)
plain_passwords = st.text(string.ascii_letters + string.digits + "!$%^+-_~'", min_size=8, max_size=30).filter(
    lambda text: not text.isdigit()
)


@pytest.mark.parametrize("key", SECRET_KEYS)
def test_the_value_of_a_secret_setting_is_masked(key: str) -> None:
    assert masked_settings({key: "hunter2"}) == {key: MASK}


@pytest.mark.parametrize("key", READABLE_KEYS)
def test_other_settings_stay_readable(key: str) -> None:
    assert masked_settings({key: "some/value"}) == {key: "some/value"}


def test_penstocks_own_options_are_readable_except_the_private_key() -> None:
    assert {key for key in OPTIONS if is_secret(key)} == {"state.checkpoints.fs.*", "rest.ssl.private-key"}


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
        ('Login required username="a" password="b";', 'Login required username="a" password="***";'),
        ("{'fs.s3a.secret.key': 'abc', 'n': 1}", "{'fs.s3a.secret.key': '***', 'n': 1}"),
        ('{"token": "abc", "n": 1}', '{"token": "***", "n": 1}'),
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
        "rest.auth.token-file=/home/me/token",
        "at 12:30 wrote to me@example.com",
    ],
)
def test_texts_without_secrets_stay_unchanged(text: str) -> None:
    assert masked_text(text) == text


@given(st.text(st.characters(exclude_characters="=:", codec="utf-8")))
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
    for text in (f"a?password={password}&b=1", f"db_password={password} x", repr({"password": password})):
        assert password not in masked_text(text)


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
