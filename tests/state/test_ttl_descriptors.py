"""Descriptor settings other than name and type: times to live and defaults."""

from datetime import timedelta

import pytest
from ttl_job import steps, ttl

from penstock.common import Duration, Time
from penstock.datastream.state import StateTtlConfig, ValueStateDescriptor
from penstock.state.descriptors import BadStateType
from penstock.state.entries import StateError
from penstock.state.namespaced import Namespaced
from penstock.state.ttl_config import BadTtl


class TestDescriptors:
    def test_the_default_is_returned_if_a_value_is_missing_or_expired(self, start, between):
        for config in (None, ttl().build()):
            job = start(config)
            descriptor = ValueStateDescriptor("defaulted", list[int], default_value=[7])
            if config is not None:
                descriptor.enable_time_to_live(config)

            def state(job, descriptor=descriptor):
                return job.overlay.register(descriptor)

            steps(
                job,
                between,
                (0, lambda job: state(job).value(), [7]),
                (0, lambda job: state(job).value().append(8), None),
                (0, lambda job: state(job).value(), [7]),
                (0, lambda job: state(job).update([1]), None),
                (10, lambda job: state(job).value(), [1]),
                (20, lambda job: state(job).clear(), None),
                (30, lambda job: state(job).value(), [7]),
                (40, lambda job: state(job).update([2]), None),
                (140, lambda job: state(job).value(), [2] if config is None else [7]),
            )

    def test_a_default_of_the_wrong_type_is_rejected(self):
        with pytest.raises(BadStateType, match=r"'v'.*default"):
            ValueStateDescriptor("v", int, default_value="one")

    def test_a_list_state_accepts_an_empty_list_but_not_none(self, start, between):
        for config in (None, ttl().build()):
            job = start(config)
            job.list.add_all([1, 2])
            between(job)
            job.list.update([])
            between(job)
            assert list(job.list) == []
            for method, given in ("add", None), ("update", [1, None]), ("add_all", [None]):
                with pytest.raises(StateError, match="None cannot be added"):
                    getattr(job.list, method)(given)
            between(job)
            assert list(job.list) == []

    def test_two_states_with_the_same_name_and_different_ttls_are_rejected(self, start):
        job = start(ttl().build())
        descriptor = ValueStateDescriptor("value", int)
        descriptor.enable_time_to_live(ttl(5).build())
        with pytest.raises(StateError, match="'value' is registered twice with different times to live"):
            job.overlay.register(descriptor)

    def test_window_state_cannot_have_a_ttl(self, start):
        job = start(None)
        descriptor = ValueStateDescriptor("v", int)
        descriptor.enable_time_to_live(ttl().build())
        with pytest.raises(StateError, match="'v' of a window has a time to live"):
            Namespaced(job.overlay, "window", 16).register(descriptor)

    @pytest.mark.parametrize("wrong", [Time.milliseconds(0), timedelta(seconds=-1), Time.milliseconds(2**63)])
    def test_an_invalid_ttl_is_rejected(self, wrong):
        with pytest.raises(BadTtl, match=r"between 1 and 2\*\*63 - 1 milliseconds"):
            StateTtlConfig.new_builder(wrong)
        with pytest.raises(BadTtl, match=r"between 1 and 2\*\*63 - 1 milliseconds"):
            StateTtlConfig.new_builder(Time.seconds(1)).set_ttl(wrong)

    def test_a_config_returns_its_settings(self):
        strategies = StateTtlConfig.CleanupStrategies
        config = StateTtlConfig.new_builder(timedelta(seconds=2)).build()
        assert config.get_ttl() == Time.seconds(2)
        assert config.get_update_type() is StateTtlConfig.UpdateType.OnCreateAndWrite
        assert config.get_state_visibility() is StateTtlConfig.StateVisibility.NeverReturnExpired
        assert config.get_ttl_time_characteristic() is StateTtlConfig.TtlTimeCharacteristic.ProcessingTime
        assert config.get_cleanup_strategies().is_cleanup_in_background()
        assert config.get_cleanup_strategies().get_incremental_cleanup_strategy().get_cleanup_size() == 5
        assert not config.get_cleanup_strategies().in_full_snapshot()
        asked = (
            StateTtlConfig.new_builder(Duration.of_seconds(1))
            .set_ttl(Time.seconds(3))
            .update_ttl_on_read_and_write()
            .return_expired_if_not_cleaned_up()
            .use_event_time()
            .cleanup_full_snapshot()
            .cleanup_incrementally(7, True)
            .cleanup_in_rocksdb_compact_filter(100, Duration.of_days(1))
            .disable_cleanup_in_background()
            .build()
        )
        assert asked.is_enabled()
        assert asked.get_ttl() == Time.seconds(3)
        assert asked.get_cleanup_strategies().in_full_snapshot()
        assert (
            asked.get_cleanup_strategies().get_incremental_cleanup_strategy()
            == strategies.IncrementalCleanupStrategy(7, True)
        )
        compaction = asked.get_cleanup_strategies().get_rocksdb_compact_filter_cleanup_strategy()
        assert compaction.get_query_time_after_num_entries() == 100
        assert compaction.get_periodic_compaction_time() == Duration.of_days(1)
        assert asked != config
