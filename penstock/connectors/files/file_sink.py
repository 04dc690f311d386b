"""FileSink: complete files that readers see exactly once, when the checkpoint that holds their records is complete."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from penstock.common.serialization import BulkWriterFactory, Encoder
from penstock.common.tuning import accept
from penstock.common.typeinfo import TypeSpec
from penstock.connectors.files.buckets import BucketAssigner, BucketContext, FunctionAssigner
from penstock.connectors.files.compacting import FileCompactor, FileCompactStrategy
from penstock.connectors.files.filesystem import explained, is_hidden, local_path, remove
from penstock.connectors.files.part_files import FinishedPart, decode_part, decode_prepared, token_of
from penstock.connectors.files.rolling import OnCheckpointRollingPolicy, RollingPolicy
from penstock.connectors.files.showing import Notes, check_parts, show, show_open_parts, sweep
from penstock.connectors.files.writer import FileWriter
from penstock.connectors.preprocessing import StreamTransformer, SupportsPreprocessing
from penstock.connectors.sink import Sink, SinkWriter
from penstock.driver.committing import Commit, CommitContext
from penstock.errors import PenstockError
from penstock.runtime.context import RuntimeContext

Self = TypeVar("Self", bound="_Builder")


class OutputFileConfig:
    """Prefix and suffix of part file names."""

    def __init__(self, part_prefix: str, part_suffix: str) -> None:
        for what, text in (("prefix", part_prefix), ("suffix", part_suffix)):
            if not isinstance(text, str) or "/" in text or "\0" in text or len(text.encode()) > 100:
                raise PenstockError(f"OutputFileConfig: the {what} must be a valid part of a file name, not {text!r}.")
        if not part_prefix or is_hidden(part_prefix):
            raise PenstockError(
                f"OutputFileConfig: the prefix {part_prefix!r} must not be empty or begin with '.' or '_': readers "
                f"skip such files."
            )
        self._prefix = part_prefix
        self._suffix = part_suffix

    def get_part_prefix(self) -> str:
        """Return the prefix."""
        return self._prefix

    def get_part_suffix(self) -> str:
        """Return the suffix."""
        return self._suffix

    def name(self, token: str, part: str) -> str:
        """Return the file name of a part."""
        return f"{self._prefix}-{token}-{part}{self._suffix}"

    @staticmethod
    def builder() -> OutputFileConfig.OutputFileConfigBuilder:
        """Return a builder with the prefix ``part`` and no suffix."""
        return OutputFileConfig.OutputFileConfigBuilder()

    class OutputFileConfigBuilder:
        """Builder of an ``OutputFileConfig``."""

        def __init__(self) -> None:
            self.part_prefix = "part"
            self.part_suffix = ""

        def with_part_prefix(self, prefix: str) -> OutputFileConfig.OutputFileConfigBuilder:
            """Set the prefix of part file names."""
            self.part_prefix = prefix
            return self

        def with_part_suffix(self, suffix: str) -> OutputFileConfig.OutputFileConfigBuilder:
            """Set the suffix of part file names, such as ``.csv``."""
            self.part_suffix = suffix
            return self

        def build(self) -> OutputFileConfig:
            """Return the configuration."""
            return OutputFileConfig(self.part_prefix, self.part_suffix)


class _Builder:
    """Options shared by row and bulk formats."""

    def __init__(self, base_path: str | os.PathLike[str], format: Encoder | BulkWriterFactory) -> None:
        self._base_path = local_path(base_path, "FileSink")
        self._format = format
        self._assigner = BucketAssigner.date_time_bucket_assigner()
        self._policy: RollingPolicy = OnCheckpointRollingPolicy()
        self._config = OutputFileConfig("part", "")

    def with_bucket_assigner(self: Self, bucket_assigner: BucketAssigner | Callable[[Any, BucketContext], str]) -> Self:
        """Set the bucket of each record: an assigner, or a function of ``(value, context)``."""
        if isinstance(bucket_assigner, BucketAssigner):
            self._assigner = bucket_assigner
        elif callable(bucket_assigner):
            self._assigner = FunctionAssigner(bucket_assigner)
        else:
            raise PenstockError(
                f"with_bucket_assigner needs a BucketAssigner or a function of (value, context), not "
                f"{type(bucket_assigner).__name__}."
            )
        return self

    def with_output_file_config(self: Self, output_file_config: OutputFileConfig) -> Self:
        """Set the prefix and suffix of part file names."""
        if not isinstance(output_file_config, OutputFileConfig):
            raise PenstockError(f"with_output_file_config needs an OutputFileConfig, not {output_file_config!r}.")
        self._config = output_file_config
        return self

    def with_bucket_check_interval(self: Self, interval: int) -> Self:
        """Accept Flink's setting without effect: rolling policies are checked at the end of every epoch."""
        if type(interval) is not int or interval < 1:
            raise PenstockError(f"with_bucket_check_interval needs a positive int (milliseconds), not {interval!r}.")
        return self

    def with_rolling_policy(self: Self, rolling_policy: Any) -> Self:
        """Set when a part file is closed."""
        raise NotImplementedError

    def enable_compact(self: Self, strategy: FileCompactStrategy, compactor: FileCompactor) -> Self:
        """Accept Flink's setting without effect: a committed file is not rewritten.

        For fewer and larger files, set a rolling policy or make epochs longer.
        """
        if not isinstance(strategy, FileCompactStrategy) or not isinstance(compactor, FileCompactor):
            raise PenstockError("enable_compact needs a FileCompactStrategy and a FileCompactor.")
        accept("FileSink.RowFormatBuilder.enable_compact")
        return self

    def disable_compact(self: Self) -> Self:
        """Accept Flink's setting without effect: files are not compacted."""
        return self

    def build(self) -> FileSink:
        """Return the sink."""
        return FileSink(self._base_path, self._format, self._assigner, self._policy, self._config)


class RowFormatBuilder(_Builder):
    """Builder of a sink that encodes records one by one."""

    def __init__(self, base_path: str | os.PathLike[str], encoder: Encoder) -> None:
        if not isinstance(encoder, Encoder):
            raise PenstockError(f"for_row_format needs an Encoder, not {type(encoder).__name__}.")
        super().__init__(base_path, encoder)
        self._policy = RollingPolicy.default_rolling_policy()

    def with_rolling_policy(self: Self, rolling_policy: RollingPolicy) -> Self:
        """Set when a part file is closed."""
        if not isinstance(rolling_policy, RollingPolicy):
            raise PenstockError(f"with_rolling_policy needs a RollingPolicy, not {type(rolling_policy).__name__}.")
        self._policy = rolling_policy
        return self


class BulkFormatBuilder(_Builder):
    """Builder of a sink for a bulk format, such as Parquet."""

    def __init__(self, base_path: str | os.PathLike[str], factory: BulkWriterFactory) -> None:
        if not isinstance(factory, BulkWriterFactory):
            raise PenstockError(f"for_bulk_format needs a BulkWriterFactory, not {type(factory).__name__}.")
        super().__init__(base_path, factory)

    def with_rolling_policy(self: Self, rolling_policy: OnCheckpointRollingPolicy) -> Self:
        """Accept only ``OnCheckpointRollingPolicy``, the default."""
        if not isinstance(rolling_policy, OnCheckpointRollingPolicy):
            raise PenstockError(
                "A bulk format rolls on every checkpoint, because its files cannot be appended to. Remove "
                "with_rolling_policy; for larger files, make epochs longer."
            )
        return self


# PyFlink has the builders in the class, where their names would hide these.
_RowBuilder: TypeAlias = RowFormatBuilder
_BulkBuilder: TypeAlias = BulkFormatBuilder


class FileSink(Sink, SupportsPreprocessing):
    """Write records to files with exactly-once semantics. See docs/connect/files.md for the guarantees.

    Create one with ``for_row_format`` or ``for_bulk_format``.
    """

    BaseBuilder = _Builder
    RowFormatBuilder = RowFormatBuilder
    BulkFormatBuilder = BulkFormatBuilder

    why = "it renames files into place once their checkpoint is complete, each once"

    stateful = True

    def __init__(
        self,
        base_path: str,
        format: Encoder | BulkWriterFactory,
        assigner: BucketAssigner,
        policy: RollingPolicy,
        config: OutputFileConfig,
    ) -> None:
        self.base_path = base_path
        self.format = format
        self.assigner = assigner
        self.policy = policy
        self.config = config
        self._notes: dict[str, Notes] = {}
        """By uid, in the driver."""

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_notes": {}}

    @staticmethod
    def for_row_format(base_path: str | os.PathLike[str], encoder: Encoder) -> _RowBuilder:
        """Return a builder of a sink that encodes records one by one.

        Args:
            base_path: Local directory, or a mount shared by all hosts.
            encoder: Encodes a record, for example ``Encoder.simple_string_encoder()``.
        """
        return RowFormatBuilder(base_path, encoder)

    @staticmethod
    def for_bulk_format(base_path: str | os.PathLike[str], writer_factory: BulkWriterFactory) -> _BulkBuilder:
        """Return a builder of a sink that writes record batches, for example to Parquet.

        Args:
            base_path: Local directory, or a mount shared by all hosts.
            writer_factory: Creates the writer of each file.
        """
        return BulkFormatBuilder(base_path, writer_factory)

    def for_type(self, value_type: TypeSpec) -> FileSink:
        """Return the sink for a stream with records of this declared type."""
        typed = copy.copy(self)
        typed.format = self.format.for_type(value_type)
        return typed

    def get_transformer(self) -> StreamTransformer | None:
        """Return None: the stream is not transformed."""
        return None

    def create_writer(self, context: RuntimeContext) -> SinkWriter:
        return FileWriter(self, context)

    def commit(self, commits: list[Commit], context: CommitContext) -> None:
        prepared = [decode_prepared(commit.payload) for commit in commits]
        parts = [part for each in prepared for part in each.parts]
        with explained(f"FileSink: committing finished files in {self.base_path}"):
            if parts:
                show(parts, shown=_begin_to_show(commits[0], parts, self._notes_of(context)))
            for each in prepared:
                for chunk in each.merged:
                    remove(os.path.join(each.base, chunk))
            for token in {each.token for each in prepared if each.ended}:
                sweep(self.base_path, token)

    def _notes_of(self, context: CommitContext) -> Notes:
        """Return the notes of an operator, stored with the checkpoints and deleted with them."""
        notes = self._notes.get(context.uid)
        if notes is None or notes.storage is not context.wal.storage:
            notes = self._notes[context.uid] = Notes(context.wal.storage, context.uid)
        return notes

    # abort() does nothing. File names are derived from contents, so the files of a failed attempt can be the ones that
    # another attempt, even of another driver, has just committed. clean_up has the list of files to keep.

    def clean_up(self, lineage: str, epoch: int, states: list[bytes], context: CommitContext) -> None:
        parts = [decode_part(state) for state in states]
        with explained(f"FileSink: removing leftovers of failed attempts in {self.base_path}"):
            needed = {chunk.path for part in parts for chunk in part.chunks}
            sweep(self.base_path, token_of(lineage, context.uid), epoch, needed)
            self._notes_of(context).forget(epoch)

    def finish(self, lineage: str, states: list[bytes], context: CommitContext) -> None:
        parts = [decode_part(state) for state in states]
        token = token_of(lineage, context.uid)
        with explained(f"FileSink: committing unfinished files in {self.base_path}"):
            show_open_parts(parts, token, self.config, self._notes_of(context))
            sweep(self.base_path, token)


class _StreamingRowBuilder(RowFormatBuilder):
    def with_rolling_policy(self: Self, policy: RollingPolicy) -> Self:
        """Set when a part file is closed."""
        return super().with_rolling_policy(policy)


class _StreamingBulkBuilder(BulkFormatBuilder):
    def with_rolling_policy(self: Self, policy: OnCheckpointRollingPolicy) -> Self:
        """Accept only ``OnCheckpointRollingPolicy``, the default."""
        return super().with_rolling_policy(policy)


class _StreamingBuilder(_Builder):
    def with_rolling_policy(self: Self, policy: Any) -> Self:
        """Set when a part file is closed."""
        raise NotImplementedError


class StreamingFileSink(FileSink):
    """The name of ``FileSink`` in PyFlink 1. Its methods return builders of a ``FileSink``."""

    BaseBuilder = _StreamingBuilder
    DefaultRowFormatBuilder = _StreamingRowBuilder
    DefaultBulkFormatBuilder = _StreamingBulkBuilder

    @staticmethod
    def for_row_format(base_path: str | os.PathLike[str], encoder: Encoder) -> _StreamingRowBuilder:
        """Return a builder of a sink that encodes records one by one; see ``FileSink.for_row_format``."""
        return _StreamingRowBuilder(base_path, encoder)

    @staticmethod
    def for_bulk_format(base_path: str | os.PathLike[str], writer_factory: BulkWriterFactory) -> _StreamingBulkBuilder:
        """Return a builder of a sink that writes record batches; see ``FileSink.for_bulk_format``."""
        return _StreamingBulkBuilder(base_path, writer_factory)


def _begin_to_show(commit: Commit, parts: list[FinishedPart], notes: Notes) -> bool:
    """Check that the epoch's parts exist and note that they are being committed; return whether it was noted before."""
    if commit.again and notes.begun(commit.epoch):
        return True
    check_parts(parts)
    notes.begin(commit.epoch)
    return False
