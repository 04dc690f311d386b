"""What a program uses that Penstock lacks or treats differently, found without running the program.

The program is parsed, and the classes of its variables are inferred from Penstock's annotations: the value of
`env.from_source(...)` is a DataStream. A member of an object whose class is unknown is reported if its name can mean
nothing else.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.absent import ALTERNATIVES
from penstock.cli.api_names import (
    ROOTS,
    Found,
    Remark,
    Status,
    find_distinctive,
    find_member,
    find_module,
    find_name,
    module_of,
    parameters_of,
    result_of,
)
from penstock.common.configuration import Configuration
from penstock.common.options import BadSetting, check_values, is_effective, is_known, near_miss
from penstock.common.options.flink.rulings import exact, ruling_of
from penstock.connectors.kafka.java_properties import to_librdkafka, why_dropped
from penstock.errors import PenstockError

_WITH_PROPERTIES = ("set_properties", "FlinkKafkaConsumer", "FlinkKafkaProducer")
"""Functions that take a dict of properties of the Kafka client."""
_SETTERS = ("set_string", "set_integer", "set_boolean", "set_float", "set_bytearray")


@dataclass
class Finding:
    """A name or setting of a program, and the lines that use it."""

    name: str
    status: Status
    text: str
    lines: list[int] = field(default_factory=list)


class Value(NamedTuple):
    """What an expression evaluates to, if it is known: a class or module itself, or an instance of a class."""

    of: Any
    is_instance: bool = False
    function: Any = None
    """The method or function, if the expression names one; `of` is then its class."""


_UNKNOWN = Value(None)
_ABSENT = Value(Ellipsis)
"""A name that is absent, and reported where it is imported."""


def check_program(source: str, file: str = "<program>") -> list[Finding]:
    """Return the findings of a program, by first line.

    Args:
        source: The text of the program.
        file: Its name, for syntax errors.

    Raises:
        SyntaxError: The text is not Python.
    """
    tree = ast.parse(source, file)
    check = _Check()
    check.body(tree.body)
    check.later()
    check.settings(tree)
    check.kafka_properties(tree)
    return sorted(check.findings.values(), key=lambda finding: (finding.lines[0], finding.name))


def imports_pyflink(source: str) -> bool:
    """Return whether a program still imports PyFlink."""
    modules: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules.append(node.module)
    return any(module.partition(".")[0] == ROOTS[0] for module in modules)


class _Check:
    def __init__(self) -> None:
        self.findings: dict[tuple[str, Status], Finding] = {}
        self._scopes: list[dict[str, Value]] = [{}]
        self._functions: list[tuple[ast.FunctionDef | ast.AsyncFunctionDef, list[dict[str, Value]]]] = []
        self._imports_all = False

    def _report(self, name: str, remark: Remark, line: int) -> None:
        finding = self.findings.setdefault((name, remark.status), Finding(name, *remark))
        if line not in finding.lines:
            finding.lines.append(line)

    # -- statements ----------------------------------------------------------------------------------------------------

    def body(self, statements: list[ast.stmt]) -> None:
        """Visit statements in order. The bodies of functions come last, when all names of the module are known."""
        for statement in statements:
            self._statement(statement)

    def later(self) -> None:
        """Visit the bodies of all functions."""
        while self._functions:
            function, scopes = self._functions.pop(0)
            self._scopes = scopes
            self.body(function.body)

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                self._import(alias, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            self._import_from(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self._function(node, [])
        elif isinstance(node, ast.ClassDef):
            self._class(node)
        else:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr):
                    self._value(child)
            self._assignment(node)
            for _, inner in ast.iter_fields(node):
                for each in inner if isinstance(inner, list) else []:
                    if isinstance(each, ast.stmt):
                        self._statement(each)
                    elif isinstance(each, ast.ExceptHandler | ast.match_case):
                        self.body(each.body)
                    elif isinstance(each, ast.withitem):
                        self._bind(each.optional_vars, self._value(each.context_expr))

    def _assignment(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Assign):
            value = self._value(node.value)
            for target in node.targets:
                self._bind(target, value)
        elif isinstance(node, ast.AnnAssign):
            declared = self._annotated(node.annotation)
            self._bind(node.target, declared if declared.of else self._value(node.value) if node.value else _UNKNOWN)

    def _bind(self, target: ast.expr | None, value: Value) -> None:
        path = _path(target) if target is not None else None
        if path is not None:
            self._scopes[-1][path] = value
            if path.startswith("self."):
                # Other methods of the class see it, too.
                self._scopes[-2][path] = value

    def _import(self, alias: ast.alias, line: int) -> None:
        module = module_of(alias.name)
        if module is None:
            return
        found = find_module(module)
        if found.remark is not None:
            self._report(alias.name, found.remark, line)
        bound = found if alias.asname else find_module("")
        self._scopes[-1][alias.asname or alias.name.partition(".")[0]] = _value_of(bound)

    def _import_from(self, node: ast.ImportFrom) -> None:
        module = module_of(node.module or "") if not node.level else None
        if module is None:
            return
        for alias in node.names:
            if alias.name == "*":
                self._import_all(node, module)
                continue
            found = find_name(module, alias.name)
            if found.remark is not None:
                self._report(f"{node.module}.{alias.name}", found.remark, node.lineno)
            self._scopes[-1][alias.asname or alias.name] = _value_of(found)

    def _import_all(self, node: ast.ImportFrom, module: str) -> None:
        self._imports_all = True
        home = find_module(module)
        if home.remark is not None:
            self._report(str(node.module), home.remark, node.lineno)
        for name in getattr(home.value, "__all__", ()):
            self._scopes[-1][name] = _value_of(find_name(module, name))

    def _class(self, node: ast.ClassDef) -> None:
        bases = [self._value(base) for base in node.bases]
        for decorator in node.decorator_list:
            self._value(decorator)
        ours = next((base.of for base in bases if isinstance(base.of, type) and not base.is_instance), None)
        self._scopes.append({})
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                overridden = None if ours is None else getattr(ours, statement.name, None)
                self._function(statement, [None, *parameters_of(overridden, ours)] if ours and overridden else [])
            else:
                self._statement(statement)
        self._scopes.pop()

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, types: list[type | None]) -> None:
        for each in (*node.decorator_list, *node.args.defaults):
            self._value(each)
        scope: dict[str, Value] = {}
        arguments = [*node.args.posonlyargs, *node.args.args]
        for at, argument in enumerate(arguments):
            declared = self._annotated(argument.annotation)
            known = types[at] if at < len(types) else None
            scope[argument.arg] = declared if declared.of else Value(known, True) if known else _UNKNOWN
        for argument in node.args.kwonlyargs:
            scope[argument.arg] = self._annotated(argument.annotation)
        self._functions.append((node, [*self._scopes, scope]))
        if node.returns is not None:
            result = self._annotated(node.returns)
            if result.of:
                self._scopes[-1][node.name] = Value(result.of, True, node)

    def _annotated(self, annotation: ast.expr | None) -> Value:
        """Return an instance of the class that an annotation names."""
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            try:
                return self._annotated(ast.parse(annotation.value, mode="eval").body)
            except SyntaxError:
                return _UNKNOWN
        if isinstance(annotation, ast.Subscript):
            return self._annotated(annotation.value)
        if isinstance(annotation, ast.BinOp):
            return self._annotated(annotation.left)
        found = self._value(annotation) if annotation is not None else _UNKNOWN
        return Value(found.of, True) if isinstance(found.of, type) and not found.is_instance else _UNKNOWN

    # -- expressions ---------------------------------------------------------------------------------------------------

    def _value(self, node: ast.expr) -> Value:
        """Visit an expression, and return what it evaluates to."""
        if isinstance(node, ast.Name):
            return self._name(node)
        if isinstance(node, ast.Attribute):
            return self._member(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.Lambda):
            self._scopes.append({argument.arg: _UNKNOWN for argument in node.args.args})
            self._value(node.body)
            self._scopes.pop()
            return _UNKNOWN
        if isinstance(node, ast.NamedExpr):
            value = self._value(node.value)
            self._bind(node.target, value)
            return value
        for child in ast.walk(node) if _has_comprehension(node) else ast.iter_child_nodes(node):
            if isinstance(child, ast.expr) and child is not node:
                self._value(child)
        return _UNKNOWN

    def _name(self, node: ast.Name) -> Value:
        value = self._look_up(node.id)
        if value is _UNKNOWN and self._imports_all and node.id in ALTERNATIVES and isinstance(node.ctx, ast.Load):
            self._report(node.id, Remark(Status.ABSENT, ALTERNATIVES[node.id]), node.lineno)
            return _ABSENT
        return value

    def _look_up(self, name: str) -> Value:
        return next((scope[name] for scope in reversed(self._scopes) if name in scope), _UNKNOWN)

    def _member(self, node: ast.Attribute) -> Value:
        path = _path(node)
        if path is not None and path.startswith("self."):
            known = self._look_up(path)
            if known is not _UNKNOWN:
                return known
        base = self._value(node.value)
        line = node.end_lineno or node.lineno
        if node.attr.startswith("_j_"):
            self._report(f"….{node.attr}", Remark(Status.ABSENT, ALTERNATIVES["java_gateway"]), line)
            return _ABSENT
        if base is _ABSENT or isinstance(node.ctx, ast.Store):
            return base if base is _ABSENT else _UNKNOWN
        if base.of is None or base.function is not None:
            distinctive = find_distinctive(node.attr)
            if distinctive is not None and base.of is None:
                self._report(*distinctive, line)
            return _UNKNOWN
        found = find_member(base.of, node.attr)
        if found.remark is not None:
            self._report(_display(base.of, node.attr), found.remark, line)
        return _member_value(base.of, found)

    def _call(self, node: ast.Call) -> Value:
        called = self._value(node.func)
        for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
            self._value(argument)
        if called is _ABSENT:
            return _ABSENT
        if called.function is not None:
            if isinstance(called.function, ast.AST):
                return Value(called.of, True)
            result = result_of(called.function, called.of if isinstance(called.of, type) else None)
            return Value(result, True) if result is not None else _UNKNOWN
        return Value(called.of, True) if isinstance(called.of, type) and not called.is_instance else _UNKNOWN

    # -- settings ------------------------------------------------------------------------------------------------------

    def settings(self, tree: ast.Module) -> None:
        """Report settings: what calls of a Configuration set, and keys of Flink's anywhere else."""
        seen: set[ast.expr] = set()
        for node in ast.walk(tree):
            for key, value in _set_in(node):
                seen.add(key)
                self._setting(_text(key), key.lineno, value)
        for node in ast.walk(tree):
            key_text = _text(node)
            if key_text in exact() and node not in seen and not is_effective(key_text):
                self._setting(key_text, getattr(node, "lineno", 1), None)

    def kafka_properties(self, tree: ast.Module) -> None:
        """Report properties of the Java client that have no effect here, or that librdkafka cannot apply."""
        nodes = [pair for node in ast.walk(tree) for pair in _properties_in(node)]
        values = {_text(name): _text(value) for name, value in nodes}
        for name, _ in nodes:
            remark = property_remark(_text(name), values)
            if remark is not None:
                self._report(_text(name), remark, name.lineno)

    def _setting(self, key: str, line: int, value: ast.expr | None) -> None:
        remark = setting_remark(key, value.value if isinstance(value, ast.Constant) else None)
        if remark is not None:
            self._report(key, remark, line)


def setting_remark(key: str, value: object) -> Remark | None:
    """Return the remark on a setting; `value` is None if it is not known."""
    if not is_known(key):
        near = near_miss(key)
        return Remark(Status.ABSENT, f"Unknown setting. Did you mean '{near}'?" if near else "Unknown setting.")
    text = "" if value is None else Configuration.from_dict({key: value}).get_string(key, "")
    ruling = None if is_effective(key) else ruling_of(key)
    if ruling is None:
        return None if value is None else _bad_value({key: text})
    if not ruling.refused:
        return Remark(Status.ACCEPTED, ruling.why)
    if value is not None and not ruling.refuses(text):
        return None
    return Remark(Status.REFUSED, f"{ruling.why} {ruling.fix}")


def property_remark(name: str, values: Mapping[str, str]) -> Remark | None:
    """Return the remark on a property of the Kafka client; `values` are all properties of the program by name."""
    dropped = why_dropped(name)
    if dropped is not None:
        return Remark(Status.ACCEPTED, f"Not needed: {dropped}.")
    if not name.startswith("ssl."):
        return None
    kinds = {other: value for other, value in values.items() if other.endswith(".type")}
    try:
        to_librdkafka("The client", {**kinds, name: values[name]}, consumer=True)
    except PenstockError as error:
        return Remark(Status.REFUSED, str(error))
    return None


def _bad_value(setting: dict[str, str]) -> Remark | None:
    try:
        check_values(setting)
    except BadSetting as error:
        return Remark(Status.REFUSED, str(error))
    return None


def _set_in(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """Yield the settings that a call makes, as nodes."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return
    name, args = node.func.attr, node.args
    if name in _SETTERS and len(args) == 2 and _text(args[0]):
        yield args[0], args[1]
    elif name == "from_dict" and args and isinstance(args[0], ast.Dict):
        for key, value in zip(args[0].keys, args[0].values, strict=True):
            if key is not None and _text(key):
                yield key, value


def _properties_in(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield the properties that a call passes to a Kafka client, as nodes."""
    if not isinstance(node, ast.Call):
        return
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name == "set_property" and len(node.args) == 2 and _text(node.args[0]):
        yield node.args[0], node.args[1]
    elif name in _WITH_PROPERTIES:
        for given in (*node.args, *(keyword.value for keyword in node.keywords)):
            if isinstance(given, ast.Dict):
                yield from ((key, value) for key, value in zip(given.keys, given.values) if key and _text(key))


def _text(node: ast.AST) -> str:
    """Return the text of a string in the program; empty for other nodes."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _has_comprehension(node: ast.expr) -> bool:
    return isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp)


def _value_of(found: Found) -> Value:
    if found.value is None:
        return _ABSENT
    if isinstance(found.value, type) or not callable(found.value):
        return Value(found.value) if not _is_plain(found.value) else _UNKNOWN
    return Value(found.value, function=found.value)


def _is_plain(value: Any) -> bool:
    return not isinstance(value, type) and not hasattr(value, "__path__") and not hasattr(value, "__spec__")


def _member_value(owner: Any, found: Found) -> Value:
    """Return what a member of a class or module evaluates to."""
    member = found.value
    if member is None:
        return _ABSENT if found.remark is not None else _UNKNOWN
    if not isinstance(owner, type):
        return _value_of(found)
    if isinstance(member, type):
        return Value(member)
    if isinstance(member, property):
        result = result_of(member, owner)
        return Value(result, True) if result is not None else _UNKNOWN
    if callable(member) or isinstance(member, classmethod | staticmethod):
        return Value(owner, True, member)
    return Value(type(member), True) if type(member) is owner else _UNKNOWN


def _display(owner: Any, member: str) -> str:
    return f"{owner.__qualname__ if isinstance(owner, type) else owner.__name__}.{member}"


def _path(node: ast.expr | None) -> str | None:
    """Return `name` or `self.name` for a target that is one of them."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return f"self.{node.attr}"
    return None
