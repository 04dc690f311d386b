"""Read PyFlink's public names from its source: its py4j conflicts with PySpark's, so it cannot be imported."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Parameter:
    name: str
    kind: str
    """`plain`, `*args`, `keyword` or `**kwargs`."""
    default: str | None = None
    """The source of the default; None if the parameter has none."""


@dataclass
class Name:
    """A name in a module, or a member of a class. `kind` is class, function, method, property or value."""

    name: str
    kind: str
    parameters: list[Parameter] = field(default_factory=list)
    members: dict[str, Name] = field(default_factory=dict)
    bases: list[str] = field(default_factory=list)
    value: str | None = None
    home: str = ""
    """The module that defines it, if it is re-exported."""

    def public_members(self) -> dict[str, Name]:
        return {name: member for name, member in self.members.items() if not name.startswith("_")}


def public_names(module: str, read: Callable[[str], str], is_package: bool) -> dict[str, Name]:
    """Return the names that `from module import *` imports, and those the module defines without an underscore."""
    tree = ast.parse(read(_file(module, is_package)))
    listed = _listed(tree)
    imported = _imported(tree)
    names = {name.name: name for name in _definitions(tree.body)}
    for defined in names.values():
        _inherit(defined, names, listed)
    public = [name for name in names if not name.startswith("_") and (listed is None or name in listed)]
    result = {name: names[name] for name in public}
    for name in listed or []:
        if name not in result and name in imported:
            result[name] = Name(name, "re-export", home=imported[name])
    for name, home in _installed(tree):
        result.setdefault(name, Name(name, "re-export", home=home))
    return result


def _installed(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the names that a module's own functions give it with setattr, and their modules."""
    for function in tree.body:
        if not isinstance(function, ast.FunctionDef):
            continue
        imported = _imported(function)
        for node in ast.walk(function):
            if not isinstance(node, ast.Call) or ast.unparse(node.func) != "setattr":
                continue
            target, name, value = map(ast.unparse, node.args)
            if target in imported:
                yield ast.literal_eval(name), imported[value.partition(".")[0]]


def _inherit(name: Name, names: dict[str, Name], listed: list[str] | None) -> None:
    """Add the members of private base classes to a class, since users only see them there."""
    for base in name.bases:
        hidden = names.get(base)
        if hidden is not None and (base.startswith("_") or (listed is not None and base not in listed)):
            _inherit(hidden, names, listed)
            name.members = {**hidden.members, **name.members}
    for member in name.public_members().values():
        _inherit(member, name.members, None)


def _file(module: str, is_package: bool) -> str:
    return module.replace(".", "/") + ("/__init__.py" if is_package else ".py")


def _listed(tree: ast.Module) -> list[str] | None:
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return list(dict.fromkeys(ast.literal_eval(node.value)))
    return None


def _imported(tree: ast.Module | ast.FunctionDef) -> dict[str, str]:
    return {
        alias.asname or alias.name: node.module
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }


def _definitions(body: list[ast.stmt], in_class: bool = False) -> Iterator[Name]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            members = {member.name: member for member in _definitions(node.body, in_class=True)}
            bases = [ast.unparse(base).split("[")[0].rpartition(".")[2] for base in node.bases]
            yield Name(node.name, "class", members=members, bases=bases)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            marks = {ast.unparse(mark).split("(")[0] for mark in node.decorator_list}
            if any(mark.endswith(".setter") for mark in marks):
                continue
            if "property" in marks:
                yield Name(node.name, "property")
            else:
                kind = "method" if in_class else "function"
                bound = in_class and "staticmethod" not in marks
                yield Name(node.name, kind, _parameters(node.args)[1 if bound else 0 :])
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                # TypeVars only serve PyFlink's own annotations.
                if isinstance(target, ast.Name) and not _is_type_variable(node.value):
                    yield Name(target.id, "value", value=None if node.value is None else ast.unparse(node.value))


def _is_type_variable(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value.func).endswith("TypeVar")


def _parameters(args: ast.arguments) -> list[Parameter]:
    plain = [*args.posonlyargs, *args.args]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(args.defaults)) + list(args.defaults)
    result = [Parameter(a.arg, "plain", _source(d)) for a, d in zip(plain, defaults)]
    if args.vararg:
        result.append(Parameter(args.vararg.arg, "*args"))
    result += [Parameter(a.arg, "keyword", _source(d)) for a, d in zip(args.kwonlyargs, args.kw_defaults)]
    if args.kwarg:
        result.append(Parameter(args.kwarg.arg, "**kwargs"))
    return result


def _source(default: ast.expr | None) -> str | None:
    return None if default is None else ast.unparse(default)
