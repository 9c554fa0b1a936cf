"""The one processing guarantee that a transport accepts: at least once."""

from __future__ import annotations

from typing import Any

from faust.exceptions import ImproperlyConfigured


def refuse_exactly_once(app: Any) -> None:
    """Refuse Faust's exactly_once, which loses and repeats table updates.

    Raises:
        ImproperlyConfigured: the application asks for another guarantee than at_least_once.
    """
    if str(app.conf.processing_guarantee.value) != "at_least_once":
        raise ImproperlyConfigured(
            "processing_guarantee exactly_once loses and repeats table updates; use at_least_once, rows are idempotent"
        )
