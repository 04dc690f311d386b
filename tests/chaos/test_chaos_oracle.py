"""The rig must not pass by accident: the oracle finds every error planted in a good run's output and state."""

import json
from pathlib import Path

import pytest
from victim import TOTAL, run_victim

from chaos import oracle
from chaos.committed import committed_states
from chaos.ends.files import FileEnds


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("victim")
    run_victim(work)
    return work


@pytest.fixture
def out(finished: Path, tmp_path: Path) -> Path:
    """Return a copy of the output for tests to corrupt."""
    for path in (finished / "out").glob("part-*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def verdict(out: Path) -> list[str]:
    return oracle.check_output(oracle.read_output(out), oracle.expected(range(TOTAL)))


def a_part(out: Path, what: str) -> tuple[Path, list[str]]:
    """Return a part file that has a line of this kind, with that line first."""
    for path in sorted(out.glob("part-*")):
        lines = path.read_text().splitlines(keepends=True)
        chosen = [text for text in lines if json.loads(text)[0] == what]
        if chosen:
            return path, [chosen[0], *(text for text in lines if text != chosen[0])]
    raise AssertionError(what)


def test_a_good_run_has_no_violations(finished: Path, out: Path) -> None:
    assert verdict(out) == []
    lineage = next((finished / "checkpoints" / "chaos").iterdir())
    states, timers = committed_states(lineage, FileEnds(finished).where())
    output = next(iter(oracle.read_output(out).values()))
    assert oracle.check_states(states, oracle.expected(range(TOTAL)), output) == []
    assert timers == []


@pytest.mark.parametrize("what", ["record", "list", "timer", "window", "first", "second"])
def test_a_lost_duplicate_or_changed_line_is_reported(out: Path, what: str) -> None:
    path, lines = a_part(out, what)
    path.write_text("".join(lines[1:]))
    (lost,) = verdict(out)
    assert lost.startswith(f'lost: ["{what}"')

    path.write_text("".join([lines[0], *lines]))
    (twice,) = verdict(out)
    assert twice.startswith(f'duplicate: ["{what}"')

    changed = json.loads(lines[0])
    changed[2] += 1_000_000
    path.write_text("".join([json.dumps(changed) + "\n", *lines[1:]]))
    lost, never = verdict(out)
    assert lost.startswith(f'lost: ["{what}"')
    assert never.startswith(f'unexpected: ["{what}"')


def test_a_truncated_part_file_is_reported(out: Path) -> None:
    path, lines = a_part(out, "record")
    path.write_text("".join(lines)[:-5])
    assert any(wrong.startswith("not a line of this job") for wrong in verdict(out))


def test_missing_output_and_output_of_two_runs_are_reported(out: Path, tmp_path: Path) -> None:
    assert oracle.check_output({}, oracle.expected(range(TOTAL))) == ["no output is visible"]
    (tmp_path / "part-another-1-0-0").write_text("")
    (wrong,) = verdict(out)
    assert "2 runs have written" in wrong


def test_an_abandoned_run_can_lack_output_but_not_duplicate_it(out: Path) -> None:
    runs = oracle.read_output(out)
    (last,) = runs
    _, lines = a_part(out, "record")
    for count, found in ((1, 0), (2, 1)):
        (out / "part-earlier-1-0-0").write_text(lines[0] * count)
        runs = oracle.read_output(out)
        assert len(oracle.check_output(runs, oracle.expected(range(TOTAL)), last)) == found


@pytest.mark.parametrize(
    ("operator", "state"), [("first", "n"), ("first", "ids"), ("first", "note"), ("second", "n"), ("second", "total")]
)
def test_wrong_missing_and_unexpected_state_is_reported(finished: Path, operator: str, state: str) -> None:
    wanted = oracle.expected(range(TOTAL))
    output = next(iter(oracle.read_output(finished / "out").values()))
    lineage = next((finished / "checkpoints" / "chaos").iterdir())
    states, _ = committed_states(lineage, FileEnds(finished).where())
    held = states[operator, state]
    key = next(iter(held))
    for spoilt in ({**held, key: held[key] * 2}, {k: v for k, v in held.items() if k != key}, {**held, 999: held[key]}):
        (wrong,) = oracle.check_states({**states, (operator, state): spoilt}, wanted, output)
        assert f"state '{state}' of '{operator}'" in wrong


@pytest.mark.parametrize("operator", ["first", "second"])
def test_a_tag_of_another_attempt_is_reported(finished: Path, operator: str) -> None:
    output = next(iter(oracle.read_output(finished / "out").values()))
    lineage = next((finished / "checkpoints" / "chaos").iterdir())
    states, _ = committed_states(lineage, FileEnds(finished).where())
    tags = {key: dict(each) for key, each in states[operator, "tags"].items()}
    key = next(iter(tags))
    number = next(iter(tags[key]))
    tags[key][number] = "of another attempt"
    (wrong,) = oracle.check_states({**states, (operator, "tags"): tags}, oracle.expected(range(TOTAL)), output)
    assert f"record {number} has tag" in wrong


def test_an_unfinished_job_does_not_match_the_oracle(finished: Path) -> None:
    lineage = next((finished / "checkpoints" / "chaos").iterdir())
    states, _ = committed_states(lineage, FileEnds(finished).where())
    output = next(iter(oracle.read_output(finished / "out").values()))
    assert oracle.check_states(states, oracle.expected(range(TOTAL + 2)), output) != []
