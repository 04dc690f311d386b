"""FileSink: records become files that readers see whole, once, when the checkpoint that holds them is complete."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from typing import Any, TypeVar

from penstock.common.serialization import BulkWriterFactory, Encoder
from penstock.common.typeinfo import TypeSpec
from penstock.connectors.files.buckets import BucketAssigner, BucketContext, FunctionAssigner
from penstock.connectors.files.filesystem import explained, is_hidden, local_path, remove
from penstock.connectors.files.part_files import FinishedPart, decode_part, decode_prepared, token_of
from penstock.connectors.files.rolling import OnCheckpointRollingPolicy, RollingPolicy
from penstock.connectors.files.showing import Notes, check_parts, show, show_open_parts, sweep
from penstock.connectors.files.writer import FileWriter
from penstock.connectors.sink import Sink, SinkWriter
from penstock.driver.committing import Commit, CommitContext
from penstock.errors import PenstockError
from penstock.runtime.context import RuntimeContext

Self = TypeVar("Self", bound="_Builder")


class OutputFileConfig:
    """What is before and after the middle of a part file's name."""

    def __init__(self, part_prefix: str, part_suffix: str) -> None:
        for what, text in (("prefix", part_prefix), ("suffix", part_suffix)):
            if not isinstance(text, str) or "/" in text or "\0" in text or len(text.encode()) > 100:
                raise PenstockError(f"OutputFileConfig: the {what} must be part of a file's name, not {text!r}.")
        if not part_prefix or is_hidden(part_prefix):
            raise PenstockError(
                f"OutputFileConfig: the prefix {part_prefix!r} must not be empty or begin with '.' or '_': readers "
                f"skip such files."
            )
        self._prefix = part_prefix
        self._suffix = part_suffix

    def get_part_prefix(self) -> str:
        return self._prefix

    def get_part_suffix(self) -> str:
        return self._suffix

    def name(self, token: str, part: str) -> str:
        return f"{self._prefix}-{token}-{part}{self._suffix}"

    @staticmethod
    def builder() -> OutputFileConfig.OutputFileConfigBuilder:
        return OutputFileConfig.OutputFileConfigBuilder()

    class OutputFileConfigBuilder:
        def __init__(self) -> None:
            self.part_prefix = "part"
            self.part_suffix = ""

        def with_part_prefix(self, prefix: str) -> OutputFileConfig.OutputFileConfigBuilder:
            self.part_prefix = prefix
            return self

        def with_part_suffix(self, suffix: str) -> OutputFileConfig.OutputFileConfigBuilder:
            self.part_suffix = suffix
            return self

        def build(self) -> OutputFileConfig:
            return OutputFileConfig(self.part_prefix, self.part_suffix)


class _Builder:
    """What the sinks of row formats and bulk formats have in common."""

    def __init__(self, base_path: str | os.PathLike[str], format: Encoder | BulkWriterFactory) -> None:
        self._base_path = local_path(base_path, "FileSink")
        self._format = format
        self._assigner = BucketAssigner.date_time_bucket_assigner()
        self._policy: RollingPolicy = OnCheckpointRollingPolicy()
        self._config = OutputFileConfig("part", "")

    def with_bucket_assigner(self: Self, bucket_assigner: BucketAssigner | Callable[[Any, BucketContext], str]) -> Self:
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
        if not isinstance(output_file_config, OutputFileConfig):
            raise PenstockError(f"with_output_file_config needs an OutputFileConfig, not {output_file_config!r}.")
        self._config = output_file_config
        return self

    def with_bucket_check_interval(self: Self, interval: int) -> Self:
        """Taken for the sake of programs that call it: policies are asked at the end of every epoch."""
        if type(interval) is not int or interval < 1:
            raise PenstockError(f"with_bucket_check_interval needs milliseconds above 0, not {interval!r}.")
        return self

    def build(self) -> FileSink:
        return FileSink(self._base_path, self._format, self._assigner, self._policy, self._config)


class RowFormatBuilder(_Builder):
    def __init__(self, base_path: str | os.PathLike[str], encoder: Encoder) -> None:
        if not isinstance(encoder, Encoder):
            raise PenstockError(f"for_row_format needs an Encoder, not {type(encoder).__name__}.")
        super().__init__(base_path, encoder)
        self._policy = RollingPolicy.default_rolling_policy()

    def with_rolling_policy(self, rolling_policy: RollingPolicy) -> RowFormatBuilder:
        if not isinstance(rolling_policy, RollingPolicy):
            raise PenstockError(f"with_rolling_policy needs a RollingPolicy, not {type(rolling_policy).__name__}.")
        self._policy = rolling_policy
        return self


class BulkFormatBuilder(_Builder):
    def __init__(self, base_path: str | os.PathLike[str], factory: BulkWriterFactory) -> None:
        if not isinstance(factory, BulkWriterFactory):
            raise PenstockError(f"for_bulk_format needs a BulkWriterFactory, not {type(factory).__name__}.")
        super().__init__(base_path, factory)

    def with_rolling_policy(self, rolling_policy: OnCheckpointRollingPolicy) -> BulkFormatBuilder:
        if not isinstance(rolling_policy, OnCheckpointRollingPolicy):
            raise PenstockError(
                "A bulk format rolls on every checkpoint and no other way, for its files cannot be appended to: leave "
                "with_rolling_policy out, and for larger files make epochs longer."
            )
        return self


class FileSink(Sink):
    """Made by `for_row_format` or `for_bulk_format`. docs/connect/files.md has what holds."""

    why = "files are shown by a rename when their checkpoint is complete, and each once"

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
        """In the driver, by uid."""

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_notes": {}}

    @staticmethod
    def for_row_format(base_path: str | os.PathLike[str], encoder: Encoder) -> RowFormatBuilder:
        return RowFormatBuilder(base_path, encoder)

    @staticmethod
    def for_bulk_format(base_path: str | os.PathLike[str], writer_factory: BulkWriterFactory) -> BulkFormatBuilder:
        return BulkFormatBuilder(base_path, writer_factory)

    def for_type(self, value_type: TypeSpec) -> FileSink:
        """The sink for a stream whose records are declared to be of this type."""
        typed = copy.copy(self)
        typed.format = self.format.for_type(value_type)
        return typed

    def create_writer(self, context: RuntimeContext) -> SinkWriter:
        return FileWriter(self, context)

    def commit(self, commits: list[Commit], context: CommitContext) -> None:
        prepared = [decode_prepared(commit.payload) for commit in commits]
        parts = [part for each in prepared for part in each.parts]
        with explained(f"FileSink: showing finished files in {self.base_path}"):
            if parts:
                show(parts, shown=_begin_to_show(commits[0], parts, self._notes_of(context)))
            for each in prepared:
                for chunk in each.merged:
                    remove(os.path.join(each.base, chunk))
            for token in {each.token for each in prepared if each.ended}:
                sweep(self.base_path, token)

    def _notes_of(self, context: CommitContext) -> Notes:
        """Where the checkpoints are, so that they go with them."""
        notes = self._notes.get(context.uid)
        if notes is None or notes.storage is not context.wal.storage:
            notes = self._notes[context.uid] = Notes(context.wal.storage, context.uid)
        return notes

    # abort() does nothing. A name stands for a content, so what a failed attempt prepared may be what another one,
    # even of another driver, has just published. clean_up knows what is needed.

    def clean_up(self, lineage: str, epoch: int, states: list[bytes], context: CommitContext) -> None:
        parts = [decode_part(state) for state in states]
        with explained(f"FileSink: removing what failed attempts left in {self.base_path}"):
            needed = {chunk.path for part in parts for chunk in part.chunks}
            sweep(self.base_path, token_of(lineage, context.uid), epoch, needed)
            self._notes_of(context).forget(epoch)

    def finish(self, lineage: str, states: list[bytes], context: CommitContext) -> None:
        parts = [decode_part(state) for state in states]
        token = token_of(lineage, context.uid)
        with explained(f"FileSink: showing unfinished files in {self.base_path}"):
            show_open_parts(parts, token, self.config, self._notes_of(context))
            sweep(self.base_path, token)


def _begin_to_show(commit: Commit, parts: list[FinishedPart], notes: Notes) -> bool:
    """Note that this epoch's parts are there and will be shown now; gives whether that was noted before."""
    if commit.again and notes.begun(commit.epoch):
        return True
    check_parts(parts)
    notes.begin(commit.epoch)
    return False
