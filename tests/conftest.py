"""Settings for all tests."""

from hypothesis import settings

# A shared machine may stop for longer than any deadline; what a test finds must not depend on that.
settings.register_profile("penstock", deadline=None)
settings.load_profile("penstock")
