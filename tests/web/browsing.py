"""Chromium for the tests of the page, or the reason why they are skipped."""

from __future__ import annotations

import importlib.util
import os
import shutil

import pytest

CHROMIUM = shutil.which(os.environ.get("CHROMIUM", "chromium"))
MISSING = (
    "NiceGUI is not installed: pip install 'penstock[web]'"
    if importlib.util.find_spec("nicegui") is None
    else "No Chromium found: run `make browser`"
    if CHROMIUM is None
    else ""
)
needs_browser = pytest.mark.skipif(bool(MISSING) and not os.environ.get("CI"), reason=MISSING)
"""In CI, a missing browser is a failure."""
# Chromium's own services would look up hosts; root has no sandbox.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
PATIENCE_MS = 60_000
"""How long an expectation of a page can take to come true. On a busy machine, five seconds are too few."""
HOSTILE = "<img src=x onerror=\"document.title='stolen'\">{{ 6 * 7 }}"
"""A name, key or path that a page must show as text."""
