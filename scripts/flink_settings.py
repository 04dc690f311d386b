"""Record the settings of Flink in tests/data/flink_settings.tsv: each key with its type, default and releases.

    python -m scripts.flink_settings [FOLDER]

The script downloads Flink's libraries (570 MB) with pip, and reads the constants of its option classes with a small
Java program. FOLDER keeps the downloads. It needs a JDK. The file has facts only; penstock/common/options/flink says
what Penstock does with each key.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

DATA = Path(__file__).parents[1] / "tests" / "data" / "flink_settings.tsv"
PROGRAM = Path(__file__).with_name("FlinkOptions.java")
RELEASES = {"2.3": "2.3.0", "1.20": "1.20.3"}
HEADER = "key\ttype\tdefault\treleases\treplaced by"

# What a statement sets in a table, catalog, module, function or hint, and what Flink writes into job graphs.
NOT_SETTINGS = re.compile(
    r"ConnectorOptions|FormatOptions|DynamicTable|FactoryUtil|\.Lookup\w*Options|CommonCatalogOptions|"
    r"CommonModuleOptions|CatalogStoreFactoryOptions|CatalogFactoryOptions|ArrowTableSourceOptions|RuntimeConfigOptions|"
    r"StreamConfig$|AsyncSinkConnectorOptions|\.descriptors\.|Internal$"
)
# Settings that the classes above define.
ALSO_SETTINGS = {"table.catalog-store.kind", "workflow-scheduler.type"}
PREFIXES = {
    "TraceOptions": "traces.reporter.<name>.",
    "EventOptions": "events.reporter.<name>.",
    "MetricOptions": "metrics.reporter.<name>.",
    "ReporterOptions": "metrics.reporter.<name>.",
    "GPUDriverOptions": "external-resource.<resource_name>.param.",
    "SecurityOptions": "security.delegation.token.provider.<service>.",
}
"""By end of the class, what precedes a key that the class gives without its prefix."""
LOCAL = ("factory.", "scope.", "filter.", "exporter.", "service.", "discovery-script.", "batch.")
"""Beginnings of keys that have a dot, and no prefix all the same."""


class Setting(NamedTuple):
    """A setting of one release."""

    key: str
    type: str
    default: str
    replaced_by: str = ""


def settings(release: str, folder: Path) -> dict[str, Setting]:
    """Return the settings of a release by key, with its deprecated spellings."""
    found: dict[str, Setting] = {}
    for line in _constants(release, folder):
        owner, key, type_, default, deprecated = line.split("\t")
        if NOT_SETTINGS.search(owner.partition("$")[0]) and key not in ALSO_SETTINGS:
            continue
        key = _with_prefix(owner, key)
        if not key.startswith(("$internal.", "internal.", "partition.")):
            found[key] = Setting(key, type_, default)
        for spelling in deprecated.split():
            found.setdefault(spelling, Setting(spelling, type_, default, key))
    return found


def _with_prefix(owner: str, key: str) -> str:
    if "." in key and not key.startswith(LOCAL):
        return key
    return next((prefix for end, prefix in PREFIXES.items() if owner.endswith(end)), "") + key


def _constants(release: str, folder: Path) -> Iterator[str]:
    jars = _jars(release, folder)
    subprocess.run(["javac", "-d", folder, PROGRAM], check=True)
    path = ":".join(map(str, [folder, *jars]))
    flink = [jar for jar in jars if jar.name.startswith("flink-")]
    run = subprocess.run(["java", "-cp", path, PROGRAM.stem, *flink], capture_output=True, text=True, check=True)
    yield from run.stdout.splitlines()


def _jars(release: str, folder: Path) -> list[Path]:
    package = f"apache-flink-libraries=={RELEASES[release]}"
    into = folder / release
    if not into.exists():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), package]
        subprocess.run(command, check=True)
        into.mkdir()
        (archive,) = folder.glob(f"apache[-_]flink[-_]libraries-{RELEASES[release]}*")
        with zipfile.ZipFile(archive) if archive.suffix == ".whl" else tarfile.open(archive) as opened:
            opened.extractall(into)
    return sorted(path for path in into.rglob("*.jar") if path.parts[-2] in ("lib", "opt") or "plugins" in path.parts)


def lines(folder: Path) -> Iterator[str]:
    by_release = {release: settings(release, folder) for release in RELEASES}
    yield HEADER
    for key in sorted(set().union(*by_release.values())):
        found = {release: known[key] for release, known in by_release.items() if key in known}
        first = next(iter(found.values()))
        yield "\t".join((key, first.type, first.default, " ".join(found), first.replaced_by))


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(sys.argv[1]).absolute() if len(sys.argv) > 1 else Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        DATA.write_text("\n".join(lines(folder)) + "\n")


if __name__ == "__main__":
    main()
