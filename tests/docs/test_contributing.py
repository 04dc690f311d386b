"""CONTRIBUTING.md, CHANGELOG.md and README.md name only commands and files that there are."""

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PAGES = ["CONTRIBUTING.md", "CHANGELOG.md", "README.md"]

LINK = re.compile(r"\]\(([^)#]+)(?:#([^)]+))?\)")
NAMED = re.compile(r"`((?:penstock|tests|docs|chaos|bench|scripts|examples)/[\w./-]+)`")
TARGET = re.compile(r"\bmake ([a-z][a-z-]*)")


@cache
def targets() -> set[str]:
    """The targets of the Makefile that are meant to be called."""
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony is not None
    return set(phony[1].split())


def code(page: str) -> str:
    """What stands in code, so that `make` is the command and not the verb."""
    return "\n".join(block or span for block, span in re.findall(r"```sh\n(.*?)```|`([^`\n]+)`", page, re.DOTALL))


@pytest.mark.parametrize("page", PAGES)
def test_every_make_command_is_a_target(page: str) -> None:
    named = set(TARGET.findall(code((ROOT / page).read_text())))
    assert named
    assert named <= targets()


@pytest.mark.parametrize("page", PAGES)
def test_every_file_and_link_exists(page: str) -> None:
    text = (ROOT / page).read_text()
    named = [*(link for link, _ in LINK.findall(text)), *NAMED.findall(text)]
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_link_into_a_page_leads_to_a_heading(page: str) -> None:
    for path, anchor in LINK.findall((ROOT / page).read_text()):
        if anchor:
            headings = re.findall(r"^#+ (.*)$", (ROOT / path).read_text(), re.MULTILINE)
            anchors = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
            assert anchor in anchors, f"{path}#{anchor}"


def test_make_without_a_target_lists_every_target_for_people() -> None:
    printed = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    listed = {line.split()[1] for line in printed.splitlines()}
    # Parts of other targets.
    assert listed == targets() - {"help", "java", "browser", "test-plain", "test-spark"}


def test_the_hook_before_a_commit_runs_make_lint_and_nothing_else() -> None:
    """So that what is checked is defined once, in the Makefile."""
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    (hook,) = repository["hooks"]
    assert (repository["repo"], hook["language"]) == ("local", "system")
    assert hook["entry"].split() == ["make", "--no-print-directory", "lint"]
    assert hook["pass_filenames"] is False
    assert hook["always_run"] is True
