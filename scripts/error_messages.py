"""Read the texts of error messages off the code: by error class, each message with its values as `…`."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "penstock"
VALUE = "…"


def messages(classes: Iterable[str], package: Path = PACKAGE) -> dict[str, list[str]]:
    """Return the messages that the code of `package` passes to each class of errors, in order of appearance.

    A class gets its messages where it is constructed, or in its own `__init__`. A message that is computed elsewhere
    has no text here.
    """
    wanted = set(classes)
    found: dict[str, list[str]] = defaultdict(list)
    for file in sorted(package.rglob("*.py")):
        for name, message in _in_module(ast.parse(file.read_text()), wanted):
            if message not in found[name]:
                found[name].append(message)
    return dict(found)


def _in_module(tree: ast.Module, wanted: set[str]) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (name := _name_of(node.func)) in wanted:
            yield from _in_call(name, node)
        elif isinstance(node, ast.ClassDef) and node.name in wanted:
            for call in ast.walk(node):
                if isinstance(call, ast.Call) and _is_constructor(call.func):
                    yield from _in_call(node.name, call)


def _name_of(func: ast.expr) -> str:
    if isinstance(func, ast.Attribute):
        return func.attr
    return func.id if isinstance(func, ast.Name) else ""


def _is_constructor(func: ast.expr) -> bool:
    """Whether `func` is `cls` or `super().__init__`."""
    if isinstance(func, ast.Attribute):
        return func.attr == "__init__" and isinstance(func.value, ast.Call) and _name_of(func.value.func) == "super"
    return _name_of(func) == "cls"


def _in_call(name: str, call: ast.Call) -> Iterator[tuple[str, str]]:
    fix = next((_text(keyword.value) for keyword in call.keywords if keyword.arg == "fix"), "")
    for argument in call.args:
        text = _text(argument)
        if len(text.replace(VALUE, "").split()) >= 3:
            yield name, " ".join(f"{text} {fix if fix != VALUE else ''}".split())
            return


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(value) if isinstance(value, ast.Constant) else VALUE for value in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left) + _text(node.right)
    if isinstance(node, ast.IfExp):
        return _text(node.body) or _text(node.orelse)
    return VALUE
