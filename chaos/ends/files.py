"""Numbers that the job makes itself in front of it, and files behind it: nothing to be started, fed or killed."""

from __future__ import annotations

from pathlib import Path

from chaos.oracle import Output, read_output


class FileEnds:
    def __init__(self, work: Path) -> None:
        self._work = work

    def where(self) -> dict[str, str]:
        return {"kind": "files", "total": str(self._work / "total"), "out": str(self._work / "out")}

    def end_input(self, total: int) -> None:
        (self._work / ".total").write_text(str(total))
        (self._work / ".total").rename(self._work / "total")

    def output(self) -> dict[str, Output]:
        return read_output(self._work / "out")

    def remove(self) -> None:
        """All is below the work directory."""
