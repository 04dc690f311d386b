"""Settings for all tests."""

from pathlib import Path

import pytest
from hypothesis import settings

from scripts.pyflink_wheel import IndexUnreachable, wheel_path

# A shared machine may stop for longer than any deadline; what a test finds must not depend on that.
settings.register_profile("penstock", deadline=None)
settings.load_profile("penstock")


@pytest.fixture(scope="session")
def pyflink_wheel() -> Path:
    """PyFlink's wheel, fetched where it is not in the cache; `scripts.pyflink_wheel.read` reads its files."""
    try:
        return wheel_path()
    except IndexUnreachable as error:
        pytest.skip(str(error))
