"""Every `penstock` command that the docs and the messages name exists, with these options."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from penstock.cli.main import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
GENERATED = ROOT / "docs" / "reference" / "cli.md"
"""Written from the commands themselves."""
ENDS = re.compile(r"\s+#.*|\s*[|&;].*|\s+[>2]+ ?\S+|…")
"""What follows a command in a line of a shell."""


def in_shell_blocks(text: str) -> Iterator[str]:
    for block in re.findall(r"```(?:sh|console)\n(.*?)```", text, re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            yield from re.findall(r"(?:^|[($ /])penstock ([a-z].*?)\)?$", line.strip())


def inline(text: str) -> list[str]:
    return [" ".join(each.split()) for each in re.findall(r"`(?:\.venv/bin/)?penstock ([a-z][^`]*)`", text)]


def in_messages() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "penstock").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            text = "".join(
                each.value if isinstance(each, ast.Constant) and isinstance(each.value, str) else "x" for each in parts
            )
            for command in inline(text):
                yield f"{path.relative_to(ROOT)}", command


def named() -> list[tuple[str, str]]:
    found = set(in_messages())
    for page in PAGES:
        if page != GENERATED:
            text = page.read_text()
            outside = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
            found |= {(str(page.relative_to(ROOT)), each) for each in (*in_shell_blocks(text), *inline(outside))}
    return sorted(found)


COMMAND: Any = typer.main.get_command(app)


def refusal(line: str) -> str:
    """Return why the command line would be refused; empty if it would not. Incomplete ones are accepted."""
    words = shlex.split(ENDS.sub("", line.replace("$(", "").replace("[", "").replace("]", "")))
    command, context = COMMAND, COMMAND.context_class(COMMAND, info_name="penstock")
    try:
        while hasattr(command, "resolve_command") and words and not words[0].startswith("-"):
            name, command, words = command.resolve_command(context, words)
            context = command.context_class(command, parent=context, info_name=name, **command.context_settings)
        command.make_parser(context).parse_args(list(words))
    except typer.Exit:
        return ""
    except Exception as error:
        text = error.format_message()  # type: ignore[attr-defined]
        # A value can be missing, as in "pass `penstock run -p`".
        return "" if "requires an argument" in text else text
    return ""


def leaves(command: Any, name: str = "penstock") -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        yield name, command
        return
    for word, each in command.commands.items():
        yield from leaves(each, f"{name} {word}")


def test_every_command_has_json_for_scripts() -> None:
    commands = dict(leaves(COMMAND))
    assert len(commands) > 15
    without = [name for name, each in commands.items() if "--json" not in {o for p in each.params for o in p.opts}]
    assert without == []


@pytest.mark.parametrize(
    "line",
    ["lists", "cluster begin", "run --detach job.py", "logs --tail counts", "cancel --force counts", "savepoint -x a"],
)
def test_a_command_that_does_not_exist_is_found(line: str) -> None:
    assert "No such" in refusal(line)


def test_every_command_of_the_docs_and_the_messages_exists() -> None:
    found = named()
    assert len(found) > 150
    assert {place for place, _ in found} >= {"README.md", "docs/run/service.md", "penstock/cli/cluster.py"}
    assert [(place, line, why) for place, line in found if (why := refusal(line))] == []
