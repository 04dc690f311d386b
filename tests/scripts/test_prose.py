"""The prose check of `make lint` finds phrases that read as a translation, and nothing else."""

import pytest

from scripts.prose import findings


def phrases(text: str) -> list[tuple[int, str]]:
    return [(line, phrase) for line, phrase, _ in findings(text)]


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("Nobody reads it.", "Nobody"),
        ("It is written beside the others.", "beside"),
        ("The state is made anew.", "anew"),
        ("A directory of its own.", "of its own"),
        ("What is stored is kept.", "What is"),
        ("There is no such file.", "is no"),
        ("Locked so that readers do not see it.", "so that readers do not"),
        ("The user may stop it.", "may"),
        ("def test_of_a_lost_row() -> None:", "test_of_a_lost_row"),
        ("    def test_and_is_closed(self) -> None:", "test_and_is_closed"),
    ],
)
def test_a_phrase_to_avoid_is_reported(text: str, phrase: str) -> None:
    assert phrases(text) == [(1, phrase)]


@pytest.mark.parametrize(
    "text",
    [
        "The driver publishes the manifest.",
        "The date is 5 May 2026, or May 6.",
        "This is not an int; it is nothing new.",
        "Locked so that readers see all of it. It does not move.",
        "mayor, besideX, untold_",
        "def test_a_lost_row_fails_the_epoch() -> None:",
        "A phrase from elsewhere: nobody.  <!-- prose: ok -->",
    ],
)
def test_idiomatic_text_passes(text: str) -> None:
    assert phrases(text) == []


def test_a_phrase_over_the_end_of_a_line_counts_for_its_first_line() -> None:
    assert phrases("One.\n# It has a file of its\n# own.\n") == [(2, "of its own")]
