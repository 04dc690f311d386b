"""Logging a browser in: codes work once and for ten minutes, sessions for twelve hours and across restarts."""

import pytest

from penstock.web.login import CODE_S, SESSION_S, Logins, login_code, login_url

NOW = 1_760_000_000.0


def logins(token="secret", started=NOW - 100):
    return Logins(token, started)


def test_a_code_becomes_a_session():
    service = logins()
    session = service.redeem(login_code("secret", NOW), NOW + 5)
    assert session is not None
    assert service.is_session(session, NOW + 6)


def test_a_code_works_once():
    service, code = logins(), login_code("secret", NOW)
    assert service.redeem(code, NOW + 1)
    assert service.redeem(code, NOW + 2) is None


def test_a_code_expires():
    assert logins().redeem(login_code("secret", NOW), NOW + CODE_S) is None


def test_a_code_made_before_the_service_started_could_have_been_used_and_is_refused():
    assert logins(started=NOW + 1).redeem(login_code("secret", NOW), NOW + 2) is None


def test_a_session_outlives_a_restart_of_the_service_and_expires():
    session = logins().redeem(login_code("secret", NOW), NOW)
    restarted = logins(started=NOW + 60)
    assert restarted.is_session(session, NOW + SESSION_S - 1)
    assert not restarted.is_session(session, NOW + SESSION_S)


@pytest.mark.parametrize("value", ["", ".", "x.y.z", "1760000000.a.b", "é.é.é", "9" * 300, "1760000000..", "²²²²..x"])
def test_other_values_are_neither_codes_nor_sessions(value):
    assert logins().redeem(value, NOW) is None
    assert not logins().is_session(value, NOW)


def test_codes_and_sessions_cannot_stand_for_each_other():
    service = logins()
    code = login_code("secret", NOW)
    session = service.redeem(code, NOW)
    assert not service.is_session(login_code("secret", NOW), NOW)
    assert service.redeem(session, NOW) is None


def test_another_token_signs_neither():
    assert logins("other").redeem(login_code("secret", NOW), NOW) is None
    assert not logins("other").is_session(logins().redeem(login_code("secret", NOW), NOW), NOW)


def test_a_changed_time_breaks_the_signature():
    code = login_code("secret", NOW - 2 * CODE_S)
    moved = f"{int(NOW)}.{code.partition('.')[2]}"
    assert logins().redeem(moved, NOW) is None


def test_a_service_without_a_token_needs_no_code():
    assert login_url("http://127.0.0.1:8081", "") == "http://127.0.0.1:8081/web/"
    assert login_url("http://127.0.0.1:8081", "t").startswith("http://127.0.0.1:8081/web/login?code=")
