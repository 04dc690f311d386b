"""What the page says about an operation: that it is in progress, complete, or failed."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from penstock.cluster.gateway import Conflict
from penstock.driver.job_snapshot import Operation
from penstock.errors import PenstockError
from penstock.rest.masking import Masking


def in_progress(name: str) -> Any:
    """Show that an operation is in progress, until the result is dismissed."""
    return ui.notification(f"{name} is in progress.", spinner=True, timeout=None)


def ended(masking: Masking, name: str, found: Operation) -> None:
    """Show how an operation ended."""
    if found.failure_kind:
        text = masking.text(f"{found.failure_kind}: {found.failure}" + (f" Next: {found.fix}" if found.fix else ""))
        ui.notify(f"{name} failed. {text}", type="negative", timeout=0, close_button="Close", multi_line=True)
        return
    where = f" It is in {found.savepoint}" if found.savepoint else ""
    ui.notify(f"{name} is complete.{where}", type="positive", timeout=0, close_button="Close", multi_line=True)


def failed(name: str, error: PenstockError) -> None:
    """Show why an operation did not begin."""
    reason = "not possible now" if isinstance(error, Conflict) else "failed"
    text = f"{name} {reason}. {error.statement()} {error.fix or ''}"
    ui.notify(text, type="negative", timeout=0, close_button="Close", multi_line=True)
