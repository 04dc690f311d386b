"""Settings of the tests in a browser."""

from browsing import PATIENCE_MS
from playwright.sync_api import expect

expect.set_options(timeout=PATIENCE_MS)
