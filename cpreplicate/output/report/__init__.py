"""Results as a page of HTML that opens from disk: `--report FILE.html`; see docs/reports.md."""

from __future__ import annotations

from importlib import import_module

from cpreplicate.operations.inspect.overview import Overview
from cpreplicate.output.report.model import Page

__all__ = ["Page", "page_of"]

_NOTHING = Overview()
PAGES = {
    "HandleColumns": "inspection",
    "FleetReport": "fleet",
    "FleetStatus": "status",
    "Points": "points",
    "RemovalOfAll": "removals",
    "Report": "plan",
    "SwitchOfAll": "switch",
    "Verifications": "verification",
}


def page_of(result: object, overview: Overview = _NOTHING) -> Page:
    """Return the page of a result, which the module for its class makes with `page`.

    Raises `KeyError` for an object that has no page.
    """
    module = import_module(f"{__name__}.pages.{PAGES[type(result).__name__]}")
    page: Page = module.page(result, overview)
    return page
