"""Savepoint settings under Flink's old and new names, and which lineage a job with them resumes."""

import pytest
from savepoint_jobs import sums

from penstock.checkpoint.lineages import Lineages
from penstock.common.configuration import Configuration
from penstock.common.options import BadSetting
from penstock.datastream import StreamExecutionEnvironment
from penstock.savepoint.format import NotASavepoint, dispose_savepoint
from penstock.savepoint.restoring import RecoveryClaimMode, RestoreSettings, lineage_from_savepoint
from penstock.savepoint.settings import restore_settings, savepoint_directory
from penstock.state.local_storage import LocalStorage
from penstock.testing import JobHarness


def configuration(**settings):
    """Build a configuration; `__` stands for a dash and `_` for a dot."""
    given = {key.replace("__", "-").replace("_", "."): value for key, value in settings.items()}
    return StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(given)).get_configuration()


class TestRestoreSettings:
    def test_no_savepoint_is_restored_by_default(self):
        assert restore_settings(configuration()) is None

    def test_restore_settings_have_the_names_of_flink_2(self):
        settings = restore_settings(
            configuration(
                execution_state__recovery_path="/savepoints/x",
                execution_state__recovery_claim__mode="CLAIM",
                execution_state__recovery_ignore__unclaimed__state="true",
            )
        )
        assert settings == RestoreSettings("/savepoints/x", True, RecoveryClaimMode.CLAIM, {})

    def test_restore_settings_accept_the_names_of_flink_1(self):
        settings = restore_settings(
            configuration(
                execution_savepoint_path="/savepoints/x",
                execution_savepoint__restore__mode="no_claim",
                execution_savepoint_ignore__unclaimed__state="true",
            )
        )
        assert settings == RestoreSettings("/savepoints/x", True, RecoveryClaimMode.NO_CLAIM, {})

    def test_restore_settings_include_store_options(self):
        settings = restore_settings(
            configuration(execution_state__recovery_path="s3://bucket/x", state_checkpoints_fs_key="secret")
        )
        assert settings is not None
        assert settings.store_options == {"key": "secret"}
        assert "secret" not in settings.storage.where

    def test_an_unknown_claim_mode_is_refused(self):
        with pytest.raises(BadSetting, match=r"claim-mode is 'SHARED'.*CLAIM or NO_CLAIM"):
            restore_settings(configuration(execution_state__recovery_claim__mode="SHARED"))


class TestTheDirectory:
    def test_a_given_directory_overrides_the_configured_one(self, tmp_path):
        config = configuration(state_savepoints_dir=f"file://{tmp_path}/all")
        assert savepoint_directory(config).where == f"{tmp_path}/all"
        assert savepoint_directory(config, f"{tmp_path}/this").where == f"{tmp_path}/this"

    def test_a_savepoint_without_a_directory_is_refused(self):
        with pytest.raises(
            BadSetting, match=r"No directory for the .* was given, and state\.savepoints\.dir is not set"
        ):
            savepoint_directory(configuration())

    def test_the_savepoint_directory_can_be_set_on_the_environment(self):
        env = StreamExecutionEnvironment.get_execution_environment()
        assert env.get_default_savepoint_directory() is None
        assert env.set_default_savepoint_directory("/savepoints") is env
        assert env.get_default_savepoint_directory() == "/savepoints"
        assert savepoint_directory(env.get_configuration()).where == "/savepoints"


class TestTheLineage:
    @pytest.fixture
    def root(self, tmp_path):
        return LocalStorage(tmp_path)

    def test_a_killed_job_started_with_the_same_savepoint_resumes_its_lineage(self, root):
        origin = RestoreSettings("/savepoints/x").origin
        lineage = Lineages(root).current(origin)
        assert Lineages(root).current(origin) == lineage
        assert Lineages(root).current(RestoreSettings("file:///savepoints/x/").origin) == lineage

    def test_a_job_started_without_the_savepoint_resumes_its_lineage(self, root):
        lineage = Lineages(root).current(RestoreSettings("/savepoints/x").origin)
        assert Lineages(root).current() == lineage

    @pytest.mark.parametrize("before", ["", RestoreSettings("/savepoints/other").origin])
    def test_a_job_started_with_another_savepoint_begins_a_new_lineage(self, root, before):
        first = Lineages(root).current(before)
        second = Lineages(root).current(RestoreSettings("/savepoints/x").origin)
        assert second != first
        # The most recent lineage is current.
        assert Lineages(root).current() == second

    def test_a_new_lineage_begins_if_the_previous_one_has_ended(self, root):
        origin = RestoreSettings("/savepoints/x").origin
        lineages = Lineages(root)
        first = lineages.current(origin)
        lineages.end(first, last=0, retain=False)
        assert Lineages(root).current(origin) != first

    def test_an_invalid_savepoint_does_not_replace_the_lineage(self, root, tmp_path):
        before = Lineages(root).current()
        with JobHarness(sums()) as job, pytest.raises(NotASavepoint):
            lineage_from_savepoint(Lineages(root), job._graph, ["numbers"], RestoreSettings(f"{tmp_path}/none"))
        assert Lineages(root).current() == before

    def test_the_lineage_is_found_after_the_job_removed_its_savepoint(self, root, tmp_path):
        job = JobHarness(sums())
        settings = RestoreSettings(job.savepoint(tmp_path / "savepoints"))
        lineage = lineage_from_savepoint(Lineages(root), job._graph, ["numbers"], settings)
        assert lineage.endswith(f"-from-{settings.origin}")
        dispose_savepoint(settings.storage)
        assert lineage_from_savepoint(Lineages(root), job._graph, ["numbers"], settings) == lineage
        job.close()
