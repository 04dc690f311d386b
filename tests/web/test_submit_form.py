"""The form to submit a program: which settings it offers, and how it shows a dry run."""

import json

from penstock.common.options import OPTIONS
from penstock.web.board import parsed_settings
from penstock.web.dry_run_view import dry_run_view
from penstock.web.submit_page import job_settings, with_setting


def test_the_form_offers_the_settings_of_jobs_with_their_meanings():
    offered = job_settings()
    assert "number of subtasks" in offered["parallelism.default"].lower()
    assert not any(key.startswith(("rest.", "web.", "cluster.")) for key in offered)


def test_a_setting_is_added_once_with_its_default():
    text = with_setting("a: b", "execution.checkpointing.num-retained")
    assert text == "a: b\nexecution.checkpointing.num-retained: 1"
    assert with_setting(text, "execution.checkpointing.num-retained") == text


def test_every_offered_setting_with_its_default_is_accepted():
    text = ""
    for key in job_settings():
        text = with_setting(text, key)
    given = parsed_settings(text)
    assert list(given) == list(job_settings())
    for key, value in given.items():
        if value:
            assert OPTIONS[key].type.parse(key, value) == OPTIONS[key].default


OPERATOR = {"uid": "count", "name": "<b>count</b>", "verdict": "restored"}
STATE = {"name": "seen", "verdict": "incompatible", "stored": "value long", "declared": "value string"}


def test_a_dry_run_says_whether_the_job_would_start():
    answer = {
        "program": "words",
        "would_start": True,
        "operators": [{**OPERATOR, "states": [{**STATE, "verdict": "restored", "declared": "value long"}]}],
        "sources": [{"uid": "lines", "name": "lines", "verdict": "restored", "records": 1200, "positions": ["7"]}],
    }
    html = dry_run_view(json.dumps(answer))
    assert "would start" in html
    assert "resumes after 1,200 records" in html
    assert "<b>count</b>" not in html


def test_a_dry_run_names_what_does_not_fit_and_the_next_step():
    answer = {
        **{"program": "words", "would_start": False, "problem": "State 'seen' changed.", "fix": "Add a migration."},
        "operators": [{**OPERATOR, "states": [{**STATE, "reason": "text is not a number"}]}],
    }
    html = dry_run_view(json.dumps(answer))
    assert "would not start" in html
    assert "Add a migration." in html
    assert "value long becomes value string. text is not a number" in html
