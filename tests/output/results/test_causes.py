"""What failed for one cause stands once, with the names of its jobs, wherever many are handled."""

from __future__ import annotations

import json

import pytest

from cpreplicate.operations.handover.promote_all import JobPromotion, PromotionOfAll
from cpreplicate.operations.handover.switch.request import JobSwitch
from cpreplicate.operations.handover.switch.switch_all import SwitchOfAll
from cpreplicate.operations.handover.unseal_all import JobUnsealing, UnsealingOfAll
from cpreplicate.operations.jobs.fleet import FleetReport, JobReplication
from cpreplicate.operations.replicas.forget import JobRemoval, RemovalOfAll
from cpreplicate.output.results import forms_of

NAMES = ("orders", "clicks", "carts")
ERRORS = (
    "a run of flink@gw1 holds the lease of file:/b/orders since 3 s",
    "a run of flink@gw1 holds the lease of file:/b/clicks since 47 s",
    "file:/b/carts is not there",
)


def many(of, made):
    """A result in which three jobs failed, two of them for one cause."""
    return of(
        tuple(
            made(name, f"file:/b/{name}", exit_code=11 if "lease" in error else 10, error=error)
            for name, error in zip(NAMES, ERRORS, strict=True)
        )
    )


RESULTS = {
    "fleet": lambda: many(
        lambda jobs: FleetReport(jobs, "inline", 1.0),
        lambda name, replica, **ended: JobReplication(
            name, "failed", f"file:/a/{name}", "file:/b", 0, replica=replica, **ended
        ),
    ),
    "promote --all": lambda: many(
        lambda jobs: PromotionOfAll(jobs, 1.0),
        lambda name, replica, **ended: JobPromotion(name, "failed", replica, **ended),
    ),
    "unseal --all": lambda: many(
        UnsealingOfAll,
        lambda name, replica, **ended: JobUnsealing(name, "stays sealed", replica, "", **ended),
    ),
    "forget --all": lambda: many(
        lambda jobs: RemovalOfAll(jobs, is_dry_run=False),
        lambda name, replica, **ended: JobRemoval(name, "failed", replica, "", **ended),
    ),
    "switch": lambda: many(
        lambda jobs: SwitchOfAll(jobs, 1.0),
        lambda name, replica, **ended: JobSwitch(name, "failed", replica=replica, **ended),
    ),
}


@pytest.mark.parametrize("command", RESULTS)
def test_the_text_has_each_cause_once_the_most_frequent_first(command):
    result = RESULTS[command]()
    text = forms_of(result).text(result)
    (section,) = (part for part in text.split("\n\n") if "one cause" in part)
    assert section.splitlines() == [
        "2 jobs, one cause: orders; clicks",
        f"orders: exit 11: {ERRORS[0]}",
        f"carts: exit 10: {ERRORS[2]}",
    ]
    assert ERRORS[1] not in text


@pytest.mark.parametrize("command", RESULTS)
def test_the_json_has_each_cause_with_the_names_of_its_jobs(command):
    result = RESULTS[command]()
    assert json.loads(forms_of(result).json(result))["causes"] == [
        {"exit_code": 11, "error": ERRORS[0], "jobs": ["orders", "clicks"]},
        {"exit_code": 10, "error": ERRORS[2], "jobs": ["carts"]},
    ]
