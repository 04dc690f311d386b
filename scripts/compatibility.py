"""Generate docs/migrate/compatibility.md: every public name of PyFlink's DataStream API, and whether Penstock has it.

`make compatibility` runs it. The script finds the names and compares their signatures. The explanations for absent and
differing names are written by hand in penstock/compatibility.py; an outdated entry there, or an absent name without an
entry, is an error.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from penstock.absent import ALTERNATIVES, AbsentAttribute, AbsentImport, AbsentMember
from penstock.cli.api_names import find_member, find_module, public_classes
from penstock.common.tuning import REASONS
from penstock.compatibility import DIFFERS, JAVA_OBJECTS, SAME_RESULTS
from scripts.pyflink_names import Name, Parameter, public_names
from scripts.pyflink_wheel import RELEASE, file_names, read

PAGE = Path(__file__).parents[1] / "docs" / "migrate" / "compatibility.md"
PACKAGES = ("common", "datastream", "metrics", "util")
WITHOUT_NAMES = ("table", "java_gateway")
"""Modules that are absent altogether, and are not listed name by name."""

SAME, NOTED, WITHOUT_EFFECT, DIFFERENT, ABSENT = "same", "noted", "accepted", "differs", "absent"

COUNTED = ("common", "datastream")
"""The packages whose share of accepted names the page gives."""
ACCEPTED = (SAME, WITHOUT_EFFECT)
"""A program that uses only such names runs, with the same results, and has nothing to observe."""
LEFT_OUT = tuple(
    f"pyflink.datastream.connectors.{system}"
    for system in ("cassandra", "elasticsearch", "jdbc", "kinesis", "pulsar", "rabbitmq")
)
"""Connectors that exist only as Java libraries. The share leaves them out, and what the next line refers to."""
NOT_COUNTED = {JAVA_OBJECTS}
"""The reason of names for Java objects."""


class StaleEntries(Exception):
    """penstock/compatibility.py disagrees with the two libraries; the message lists the entries."""


@dataclass
class Finding:
    """One name of a PyFlink module, or `Class.member`."""

    path: str
    status: str
    how: str = ""
    """The reason, or what differs."""


class Share(NamedTuple):
    """How many of some names are the same or accepted."""

    accepted: int
    names: int

    @property
    def percent(self) -> float:
        return 100 * self.accepted / self.names


class Comparison:
    """Compares both libraries; `modules` has the findings by PyFlink module, `problems` the errors to fix."""

    def __init__(self) -> None:
        self.modules: dict[str, list[Finding]] = {}
        self.reexports: dict[str, list[Finding]] = {}
        self.problems: list[str] = []
        self._used: set[str] = set()
        self._asked: set[str] = set()
        self._present: set[str] = set()
        for module, is_package in _modules():
            self._compare_module(module, is_package)
        for module in WITHOUT_NAMES:
            self._text(module, self._import(f"pyflink.{module}"))
        self._check_entries()

    def _compare_module(self, module: str, is_package: bool) -> None:
        names = public_names(module, read, is_package)
        if not names:
            return
        ours = self._import(module)
        if isinstance(ours, ImportError) and not isinstance(ours, AbsentImport):
            self.problems.append(f"{module.removeprefix('pyflink.')} is absent and has no entry: {ours}")
            return
        here: list[Finding] = []
        passed_on: list[Finding] = []
        for name in names.values():
            if name.home:
                passed_on.append(self._module_name(ours, module, name))
            else:
                here += self._findings(ours, module, name)
        self.modules[module] = here
        self.reexports[module] = passed_on

    def _import(self, module: str) -> Any:
        """Return our module, or the ImportError if it is absent."""
        try:
            return importlib.import_module(module.replace("pyflink", "penstock", 1))
        except ImportError as error:
            return error

    def _module_name(self, ours: Any, module: str, name: Name) -> Finding:
        if isinstance(ours, ImportError):
            key = name.name if name.name in ALTERNATIVES else module.removeprefix("pyflink.")
            return Finding(name.name, ABSENT, self._text(key, ours))
        try:
            getattr(ours, name.name)
        except AttributeError as error:
            return Finding(name.name, ABSENT, self._text(name.name, error, ours.__name__))
        self._present.add(name.name)
        return Finding(name.name, SAME)

    def _findings(self, ours: Any, module: str, name: Name) -> Iterator[Finding]:
        found = self._module_name(ours, module, name)
        if found.status == ABSENT:
            yield found
            yield from (Finding(f"{name.name}.{member}", ABSENT, found.how) for member in name.public_members())
            return
        yield from self._compare(name.name, name, getattr(ours, name.name))

    def _compare(self, path: str, theirs: Name, ours: Any) -> Iterator[Finding]:
        self._present.add(path)
        if theirs.kind in ("method", "function"):
            yield self._noted(path, call_difference(theirs.parameters, ours, theirs.kind == "method"))
        elif theirs.kind == "value":
            yield self._noted(path, "" if theirs.value is None else _value_difference(theirs.value, ours))
        elif theirs.kind == "property":
            yield self._noted(path, "")
        else:
            yield self._noted(path, _constructor_difference(theirs, ours))
            for member in theirs.public_members().values():
                yield from self._compare_member(f"{path}.{member.name}", member, ours)

    def _compare_member(self, path: str, theirs: Name, cls: type) -> Iterator[Finding]:
        self._asked.add(path)
        static = inspect.getattr_static(cls, theirs.name, None)
        if isinstance(static, AbsentMember):
            self._used |= {key for key, text in ALTERNATIVES.items() if text == static.text and _same_tail(key, path)}
            yield Finding(path, ABSENT, static.text)
            yield from (Finding(f"{path}.{member}", ABSENT, static.text) for member in theirs.public_members())
        elif static is None:
            self.problems.append(f"{path} is absent from {cls.__module__}.{cls.__qualname__} and has no entry")
        elif isinstance(static, property):
            yield self._noted(path, "" if theirs.kind == "property" else "a property here")
        else:
            yield from self._compare(path, theirs, getattr(cls, theirs.name))

    def _noted(self, path: str, difference: str) -> Finding:
        note = DIFFERS.get(path, "")
        if note:
            self._used.add(path)
        how = "; ".join(part for part in (difference, note) if part)
        if not difference and path in REASONS:
            return Finding(path, WITHOUT_EFFECT, REASONS[path])
        if not difference and path in SAME_RESULTS:
            return Finding(path, NOTED, note)
        return Finding(path, DIFFERENT if how else SAME, how)

    def _text(self, key: str, error: Any, where: str = "") -> str:
        self._asked.add(key)
        if isinstance(error, AbsentImport | AbsentAttribute):
            self._used.add(key)
            return ALTERNATIVES[key]
        hint = f" (or {where} lacks explain_absent)" if where else ""
        self.problems.append(f"{key} is absent and has no entry{hint}: {error}")
        return ""

    def _check_entries(self) -> None:
        for key in ALTERNATIVES:
            if key in self._present:
                self.problems.append(f"{key} exists, but is listed as absent")
            elif key not in self._used | self._asked and not self._is_module(key):
                self.problems.append(f"{key} is listed as absent, but PyFlink has no such name")
        for key in DIFFERS:
            if key not in self._used:
                self.problems.append(f"{key} has a note, but the two libraries do not share this name")
        for key in SAME_RESULTS:
            if key not in DIFFERS:
                self.problems.append(f"{key} is in SAME_RESULTS, but has no note")
        for key in REASONS:
            if key not in self._present and not _exists(key):
                self.problems.append(f"{key} is listed as accepted, but Penstock has no such name")

    def share(self) -> Share:
        """Return how many names of the counted packages are the same or accepted."""
        findings = [
            finding
            for module, found in self.modules.items()
            if module.split(".")[1] in COUNTED and not module.startswith(LEFT_OUT)
            for finding in found
            if finding.how not in NOT_COUNTED
        ]
        return Share(sum(finding.status in ACCEPTED for finding in findings), len(findings))

    def _is_module(self, key: str) -> bool:
        file = f"pyflink/{key.replace('.', '/')}"
        if f"{file}.py" not in file_names() and f"{file}/__init__.py" not in file_names():
            return False
        if not isinstance(self._import(f"pyflink.{key}"), ImportError):
            self.problems.append(f"{key} exists, but is listed as absent")
        return True


def _exists(key: str) -> bool:
    """Return whether Penstock has a name of an earlier PyFlink, such as `ExecutionConfig.register_kryo_type`."""
    owner, _, member = key.partition("(")[0].partition(".")
    if find_module(key).value is not None:
        return True
    found = public_classes().get(owner)
    for name in member.split(".") if found is not None and member else ():
        found = find_member(found, name).value if found is not None else None
    return found is not None


def _modules() -> Iterator[tuple[str, bool]]:
    for file in sorted(file_names()):
        parts = file.removesuffix(".py").split("/")
        if file.endswith(".py") and parts[0] == "pyflink" and parts[1] in PACKAGES and "tests" not in parts:
            is_package = parts[-1] == "__init__"
            yield ".".join(parts[:-1] if is_package else parts), is_package


def _same_tail(key: str, path: str) -> bool:
    return key.rpartition(".")[2] == path.rpartition(".")[2]


# -- signatures --------------------------------------------------------------------------------------------------------


def call_difference(theirs: Iterable[Parameter], function: Any, is_method: bool) -> str:
    """Describe which calls that PyFlink accepts are rejected here; empty if all are accepted."""
    try:
        ours = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return "is not a function here"
    # A function looked up on its class still has `self`; class methods and static methods do not.
    if is_method and inspect.isfunction(function) and ours and ours[0].name == "self":
        ours = ours[1:]
    theirs = list(theirs)
    wanted = [parameter for parameter in theirs if not _is_java(parameter)]
    # PyFlink's own code passes the Java object instead of the other parameters, so those are optional there only.
    has_java = len(wanted) < len(theirs)
    first_java = next((at for at, parameter in enumerate(theirs) if _is_java(parameter)), len(theirs))
    behind_java = {parameter.name for parameter in theirs[first_java:]}
    by_name = {parameter.name: parameter for parameter in ours}
    order = [p.name for p in ours if p.kind is p.POSITIONAL_OR_KEYWORD]
    many = any(p.kind is p.VAR_POSITIONAL for p in ours)
    said = []
    for place, parameter in enumerate(p for p in wanted if p.kind in ("plain", "keyword")):
        mine = by_name.get(parameter.name)
        if mine is None:
            other = order[place] if place < len(order) else None
            if other is not None and other not in {p.name for p in wanted}:
                said.append(f"`{parameter.name}` is called `{other}`")
            else:
                said.append(f"no parameter `{parameter.name}`")
        elif (
            parameter.kind == "plain"
            and parameter.name not in behind_java
            and (place >= len(order) or order[place] != parameter.name)
        ):
            said.append(f"`{parameter.name}` is at a different position")
        elif has_java and parameter.default == "None" and mine.default is mine.empty:
            continue
        elif parameter.default is not None and not _same_default(parameter.default, mine.default):
            default = "no default" if mine.default is mine.empty else f"the default `{mine.default!r}`"
            said.append(f"`{parameter.name}` has {default}, not `{parameter.default}`")
    if any(p.kind == "*args" for p in wanted) and not many:
        said.append("accepts no additional positional arguments")
    names = {p.name for p in wanted}
    required = [p.name for p in ours if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    renamed = {text.split("`")[3] for text in said if "is called" in text}
    said += [f"`{name}` is also required" for name in required if name not in names and name not in renamed]
    return "; ".join(said)


def _is_java(parameter: Parameter) -> bool:
    return parameter.name.lstrip("_").startswith("j_")


def _same_default(theirs: str, ours: Any) -> bool:
    if ours is inspect.Parameter.empty:
        return False
    try:
        return bool(_constant(ast.parse(theirs, mode="eval").body) == ours)
    except ValueError:
        return str(ours) == theirs or repr(ours) == theirs


def _constant(node: ast.expr) -> Any:
    """Evaluate a literal or a product such as `1024 * 1024`. Raises ValueError for other expressions."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return _constant(node.left) * _constant(node.right)
    return ast.literal_eval(node)


def _constructor_difference(theirs: Name, ours: Any) -> str:
    if not isinstance(ours, type):
        return "is not a class here"
    constructor = theirs.members.get("__init__")
    # Constructors that wrap Java objects are for PyFlink's own code, not for users.
    if constructor is None or any(_is_java(p) and p.default is None for p in constructor.parameters):
        return ""
    own = vars(ours).get("__init__")
    return call_difference(constructor.parameters, own, True) if own is not None else ""


def _value_difference(theirs: str, ours: Any) -> str:
    try:
        value = ast.literal_eval(theirs)
    except ValueError:
        return ""
    mine = getattr(ours, "value", ours)
    # A comma at the end of a line of PyFlink's makes some values of enums tuples.
    return "" if value in (mine, (mine,)) else f"is `{mine!r}`, not `{theirs}`"


# -- the page ----------------------------------------------------------------------------------------------------------


def page(comparison: Comparison) -> str:
    findings = [finding for found in comparison.modules.values() for finding in found]
    counts = Counter(finding.status for finding in findings)
    share = comparison.share()
    lines = [
        "# Compatibility with PyFlink",
        "",
        "A PyFlink 2.3 DataStream program runs on Penstock if you change its import root from `pyflink` to `penstock` "
        "and it uses only names listed as *same*, *noted* or *accepted* below. A name is the same if Penstock accepts "
        "every call that PyFlink's signature accepts. Of a noted one the results are the same, but the note describes "
        "something that you can observe. An accepted call tunes something that Penstock does not have: it changes "
        "nothing, and a line in the log names it. An absent name raises an error that names the alternative. "
        "Parameters that take Java objects are ignored. Members of absent classes are counted but not listed.",
        "",
        f"`make compatibility` generates this page from {RELEASE.replace('==', ' ')} and Penstock's code; the "
        "explanations for absent and differing names come from `penstock/compatibility.py`.",
        "",
        "| | names and members |",
        "|---|---|",
        *(f"| {status} | {counts[status]:,} |" for status in (SAME, WITHOUT_EFFECT, NOTED, DIFFERENT, ABSENT)),
        "",
        f"Of {share.names:,} names in `pyflink.common` and `pyflink.datastream`, {share.percent:.1f} % are the same "
        "or accepted; noted ones are not among them. This leaves out connectors that exist only as Java libraries "
        "(Cassandra, Elasticsearch, JDBC, Kinesis, Pulsar, RabbitMQ) and names for Java objects. Every other name "
        "below has its reason. `penstock check job.py` lists those that a program uses.",
        "",
        *(f"`pyflink.{module}`: {ALTERNATIVES[module]}\n" for module in WITHOUT_NAMES),
    ]
    for module in comparison.modules:
        lines += _section(module, comparison.modules[module], comparison.reexports[module])
    return "\n".join(lines).rstrip() + "\n"


def _section(module: str, findings: list[Finding], passed_on: list[Finding]) -> Iterator[str]:
    yield f"## {module}"
    yield ""
    there = [finding.path for finding in passed_on if finding.status != ABSENT]
    away = [finding.path for finding in passed_on if finding.status == ABSENT]
    if there:
        yield f"Re-exported from other modules: {_code(there)}.\n"
    if away:
        yield f"Absent, as in the modules that define them: {_code(away)}.\n"
    same = [finding.path for finding in findings if finding.status == SAME]
    if same:
        yield f"Same: {'; '.join(_by_class(same))}.\n"
    rows = list(_rows(findings))
    if rows:
        yield from ("| name | | |", "|---|---|---|", *rows, "")


def _by_class(paths: list[str]) -> Iterator[str]:
    owners: dict[str, list[str]] = {}
    for path in paths:
        owner, _, member = path.partition(".")
        owners.setdefault(owner, [])
        if member:
            owners[owner].append(member)
    for owner, members in owners.items():
        yield f"`{owner}`" + (f" ({', '.join(members)})" if members else "")


def _rows(findings: list[Finding]) -> Iterator[str]:
    """Yield one row per difference, and one per reason of acceptance or absence."""
    for finding in findings:
        if finding.status in (DIFFERENT, NOTED):
            yield f"| `{finding.path}` | {finding.status} | {_sentence(finding.how)} |"
    for status in (WITHOUT_EFFECT, ABSENT):
        paths_with = {finding.path for finding in findings if finding.status == status}
        reasons: dict[str, list[str]] = {}
        for finding in findings:
            # The members of an absent class are not listed.
            if finding.status == status and (status != ABSENT or finding.path.rpartition(".")[0] not in paths_with):
                reasons.setdefault(finding.how, []).append(finding.path)
        for how, paths in reasons.items():
            yield f"| {_code(paths)} | {status} | {_sentence(how)} |"


def _code(paths: list[str]) -> str:
    return ", ".join(f"`{path}`" for path in paths)


def _sentence(text: str) -> str:
    text = text.replace("|", "\\|")
    return text[0].upper() + text[1:] + ("" if text.endswith(".") else ".")


def render() -> str:
    comparison = Comparison()
    if comparison.problems:
        listed = "\n".join(f"  {problem}" for problem in sorted(set(comparison.problems)))
        raise StaleEntries(f"Fix these entries in penstock/compatibility.py:\n{listed}")
    return page(comparison)


if __name__ == "__main__":
    try:
        PAGE.write_text(render())
    except StaleEntries as error:
        sys.exit(str(error))
