"""Flink's compaction of small files, which has no effect here."""

from __future__ import annotations

from penstock.errors import PenstockError


class FileCompactStrategy:
    """When Flink would compact files. Create one with ``FileCompactStrategy.builder()``."""

    @staticmethod
    def builder() -> FileCompactStrategy.Builder:
        """Return a builder."""
        return FileCompactStrategy.Builder()

    class Builder:
        """Builds a ``FileCompactStrategy``."""

        def __init__(self) -> None:
            self._conditions = False

        def enable_compaction_on_checkpoint(
            self, num_checkpoints_before_compaction: int
        ) -> FileCompactStrategy.Builder:
            """Set the number of checkpoints after which Flink would compact files."""
            return self._when(num_checkpoints_before_compaction, "num_checkpoints_before_compaction")

        def set_size_threshold(self, size_threshold: int) -> FileCompactStrategy.Builder:
            """Set the size in bytes from which Flink would compact files."""
            return self._when(size_threshold, "size_threshold")

        def set_num_compact_threads(self, num_compact_threads: int) -> FileCompactStrategy.Builder:
            """Set the number of threads that Flink would use."""
            if num_compact_threads < 1:
                raise PenstockError(f"num_compact_threads must be positive, not {num_compact_threads}.")
            return self

        def build(self) -> FileCompactStrategy:
            """Return the strategy.

            Raises:
                PenstockError: If nothing would ever start a compaction.
            """
            if not self._conditions:
                raise PenstockError(
                    "A FileCompactStrategy needs a condition.",
                    fix="Call enable_compaction_on_checkpoint or set_size_threshold.",
                )
            return FileCompactStrategy()

        def _when(self, number: int, name: str) -> FileCompactStrategy.Builder:
            if number < 1:
                raise PenstockError(f"{name} must be positive, not {number}.")
            self._conditions = True
            return self


class FileCompactor:
    """How Flink would compact files."""

    @staticmethod
    def concat_file_compactor(file_delimiter: bytes | None = None) -> FileCompactor:
        """Return the compactor that concatenates files."""
        return FileCompactor()

    @staticmethod
    def identical_file_compactor() -> FileCompactor:
        """Return the compactor that copies files."""
        return FileCompactor()
