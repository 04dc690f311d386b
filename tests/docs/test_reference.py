"""The reference is complete: every public name and error is in it, with a docstring; generated pages are current."""

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

from test_imports import MODULES, public

from scripts import reference
from scripts.error_messages import messages
from scripts.site_links import read

API = Path(__file__).parents[2] / "docs" / "reference" / "api"


def documented() -> list[tuple[str, str]]:
    """Module and name of everything that the API pages describe."""
    found = []
    for page in sorted(API.glob("*.md")):
        module = ""
        for line in page.read_text().splitlines():
            if match := re.match(r"\.\. currentmodule:: (\S+)", line):
                module = match.group(1)
            elif match := re.match(r"\.\. (?:auto)?(?:class|function|exception|data):: (\w+)", line):
                found.append((module, match.group(1)))
    return found


class TestTheApiReference:
    def test_every_public_name_is_described_once(self) -> None:
        names = [name for _, name in documented()]
        assert sorted(names) == sorted(public())

    def test_every_name_is_shown_with_a_module_that_users_import_it_from(self) -> None:
        wrong = [
            f"{module}.{name}"
            for module, name in documented()
            if module not in MODULES or name not in importlib.import_module(module).__all__
        ]
        assert wrong == []


def undocumented(name: str, thing: Any) -> list[str]:
    """What of a public name has no docstring: itself, its public methods and properties."""
    if not inspect.getdoc(thing):
        return [name]
    if not inspect.isclass(thing):
        return []
    return [f"{name}.{member}" for member in public_members(thing) if not inspect.getdoc(getattr(thing, member))]


def public_members(thing: type) -> list[str]:
    """Return the public methods and properties of a class, with those that it inherits within Penstock."""
    names = [
        member
        for base in thing.__mro__
        if base.__module__.startswith("penstock.")
        for member in vars(base)
        if not member.startswith("_")
    ]
    described = [(member, inspect.getattr_static(thing, member)) for member in dict.fromkeys(names)]
    return [
        member
        for member, value in described
        if hasattr(thing, member)
        if inspect.isroutine(value) or isinstance(value, (property, classmethod, staticmethod))
    ]


def test_every_public_name_and_its_members_have_docstrings() -> None:
    things = {name: getattr(importlib.import_module(module), name) for name, module in public().items()}
    assert [gap for name, thing in things.items() for gap in undocumented(name, thing)] == []


class TestDocstringsThatAreMissing:
    def test_a_method_without_one_is_named(self) -> None:
        class Documented:
            """Do something."""

            def explained(self) -> None:
                """Explain."""

            def silent(self) -> None: ...

            def _private(self) -> None: ...

        Documented.__module__ = "penstock.x"
        assert undocumented("Documented", Documented) == ["Documented.silent"]


def test_the_generated_pages_are_current() -> None:
    stale = [file.name for file, text in reference.pages().items() if file.read_text() != text]
    assert stale == [], "Run `make reference`."


class TestErrors:
    def test_every_error_explains_its_cause_and_remedy(self) -> None:
        explained = {error.__name__: reference.explained(error) for error in reference.errors()}
        assert len(explained) > 100
        assert [name for name, (cause, _) in explained.items() if len(cause.split()) <= 3] == []
        assert [name for name, (_, remedy) in explained.items() if len(remedy.split()) <= 2] == []

    def test_every_error_belongs_to_a_topic(self) -> None:
        page = (reference.REFERENCE / "errors.md").read_text()
        assert [error.__name__ for error in reference.errors() if f"\n### {error.__name__}\n" not in page] == []

    def test_notes_are_on_errors_that_exist(self) -> None:
        assert set(reference.notes()) <= {error.__name__ for error in reference.errors()}

    def test_almost_every_error_shows_the_text_of_its_messages(self) -> None:
        names = [error.__name__ for error in reference.errors()]
        assert len(messages(names)) > 0.9 * len(names)

    def test_messages_are_read_off_the_code(self, tmp_path: Path) -> None:
        (tmp_path / "code.py").write_text(
            "class Torn(Exception):\n"
            "    def __init__(self, name):\n"
            "        super().__init__(f'The sail {name} is torn. Mend it.')\n"
            "raise Lost(f'No anchor at {place}.' ' Look for it.', place, fix=f'Drop another at {place}.')\n"
            "raise Lost(computed)\n"
        )
        assert messages(["Torn", "Lost"], tmp_path) == {
            "Lost": ["No anchor at …. Look for it. Drop another at …."],
            "Torn": ["The sail … is torn. Mend it."],
        }


def test_every_public_method_appears_in_the_built_reference(site: Path) -> None:
    pages = (site / "reference" / "api").glob("*.html")
    shown = {tuple(name.split(".")[-2:]) for page in pages for name in read(page).ids}
    things = {getattr(importlib.import_module(module), name): name for name, module in public().items()}
    classes = {thing: name for thing, name in things.items() if inspect.isclass(thing)}
    missing = [
        f"{name}.{member}"
        for thing, name in classes.items()
        if not issubclass(thing, Exception)
        for member in public_members(thing)
        if not any((classes[base], member) in shown for base in thing.__mro__ if base in classes)
    ]
    assert missing == []
