"""Uploads that are not programs, to a real Dispatcher: each is refused with its reason, and nothing of it is kept."""

from __future__ import annotations

import io
import json
import platform
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from service import Service

from penstock.cluster.program import MANIFEST

MAIN = "print('hello')\n" * 100


def archive(change: Callable[[zipfile.ZipFile], object] = lambda file: None, **members: str) -> bytes:
    """Return a zip file with a main module and these members, after a change to it."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("__main__.py", MAIN)
        for name, text in members.items():
            file.writestr(name, text)
        change(file)
    return data.getvalue()


def packed(python: str, entry: str = "job.py", source: str = MAIN) -> bytes:
    manifest = json.dumps({"entry": entry, "python": python, "penstock": "0.1.0"})
    return archive(**{MANIFEST: manifest, "program/job.py": source})


def link(file: zipfile.ZipFile) -> None:
    member = zipfile.ZipInfo("passwords")
    member.external_attr = 0o120777 << 16
    file.writestr(member, "/etc/passwd")


def claims_gigabytes(file: zipfile.ZipFile) -> None:
    file.filelist[0].file_size = 3 << 30


def claims_less_than_it_has(file: zipfile.ZipFile) -> None:
    file.filelist[0].file_size = 10


def damaged(content: bytes) -> bytes:
    middle = len(content) // 4
    return content[:middle] + bytes([content[middle] ^ 255]) + content[middle + 1 :]


OURS = platform.python_version()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("cluster")) as service:
        yield service


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("job.zip", archive()[:-40], "job.zip is not a zip file, or is damaged: File is not a zip file."),
        ("job.zip", archive()[:60], "job.zip is not a zip file, or is damaged: File is not a zip file."),
        ("job.zip", b"", "job.zip is not a zip file, or is damaged: File is not a zip file."),
        ("job.zip", damaged(archive()), "job.zip is not a zip file, or is damaged: "),
        ("job.zip", archive(claims_gigabytes), "job.zip has 3,072.0 MB of files, but 1,024.0 MB is the limit."),
        ("job.zip", archive(claims_less_than_it_has), "job.zip is not a zip file, or is damaged: "),
        ("job.zip", archive(link), "job.zip has a link or a special file, 'passwords'."),
        ("job.zip", archive(**{"../../evil.py": ""}), "job.zip has a file with the name '../../evil.py', which is not"),
        ("job.zip", archive(**{"/evil.py": ""}), "job.zip has a file with the name '/evil.py', which is not"),
        ("job.zip", archive(**{"a\nb.py": ""}), "job.zip has a file with a name that cannot be used: "),
        ("job.whl", archive(), "job.whl is not a wheel: it has no metadata."),
        ("job.zip", packed("3.5.0"), f"The program was packed with Python 3.5.0, but the service runs {OURS}."),
        ("job.zip", packed(OURS, "main.py"), "job.zip has no file program/main.py, although its manifest names it."),
        ("job.zip", packed(OURS, source="def f(:"), "job.zip/program/job.py, line 1: "),
        ("job.zip", archive(**{MANIFEST: "{"}), f"The file {MANIFEST} of the program cannot be read: "),
        ("job.py", b"x = 1\ndef f(:\n", "job.py, line 2: "),
        ("job.py", b"-" * 200_000 + b"1", "job.py is not a Python program: "),
        ("job.jar", b"PK", "'job.jar' is not a program. Upload a .py, .zip or .whl file."),
    ],
)
def test_a_corrupt_program_is_refused_and_not_kept(service: Service, name: str, content: bytes, reason: str) -> None:
    good = service.rest.upload("good.py", MAIN)
    status, data = service.rest.answer_to_upload(name, content)
    assert (status, list(json.loads(data))) == (400, ["errors"])
    (text,) = json.loads(data)["errors"]
    assert text.startswith(reason)
    assert [each["id"] for each in service.rest.ask("GET", "/jars")["files"]] == [good]
    assert service.dispatcher._records.programs() == {good[:64]}
    assert list((service.dispatcher.directory.root / "uploads").iterdir()) == []


def test_a_program_of_this_python_version_is_accepted(service: Service, tmp_path: Path) -> None:
    """The programs above are refused for the reason that the message gives."""
    for content in (archive(), packed(OURS)):
        status, data = service.rest.answer_to_upload("job.zip", content, "application/x-java-archive")
        assert status == 200, data
        service.rest.ask("DELETE", f"/jars/{json.loads(data)['filename'].rsplit('/', 1)[-1]}")
