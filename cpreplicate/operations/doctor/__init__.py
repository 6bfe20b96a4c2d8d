"""`doctor`: find out whether a sync could run, and what to change if not.

Each check stands for itself: one that fails does not stop the others. The source is never changed.
At the target, only a directory of the check's own is written, and removed again.
"""

from __future__ import annotations

from collections.abc import Callable

from cpreplicate.operations.doctor import access, cluster, kafka, source, target
from cpreplicate.operations.doctor.case import Case, CaseSide, Configured, source_of, target_of
from cpreplicate.operations.doctor.findings import Check, Diagnosis, Finding, Result, run_checks
from cpreplicate.operations.kafka.check import KafkaAsked
from cpreplicate.operations.sync.request import SyncRequest

__all__ = ["Configured", "Diagnosis", "Finding", "diagnose"]

_NETWORK = "Check the address, the network and the service, then run again"
_OTHER_PLACE = "Give another TARGET_ROOT"


def _of(
    side_of: Callable[[Case], CaseSide], check: Callable[[CaseSide], Result]
) -> Callable[[Case], Result]:
    return lambda subject: check(side_of(subject))


# in the order in which a sync meets their faults
_CHECKS: tuple[Check[Case], ...] = (
    Check("source client", _of(source_of, access.check_client)),
    Check("source conf", _of(source_of, access.check_configuration), ("source client",)),
    Check("source reach", _of(source_of, access.check_reach), ("source conf",), _NETWORK),
    Check("source checkpoint", source.check_checkpoint, ("source reach",)),
    Check("source clock", source.check_clock, ("source reach",), _NETWORK),
    Check("target client", _of(target_of, access.check_client)),
    Check("target conf", _of(target_of, access.check_configuration), ("target client",)),
    Check("target reach", _of(target_of, access.check_reach), ("target conf",), _NETWORK),
    Check("places", target.check_places, ("target reach",), _OTHER_PLACE),
    Check("plan", target.check_plan, ("source checkpoint", "places"), _OTHER_PLACE),
    Check("lease", target.check_lease, ("places",)),
    Check("source files", source.check_files, ("source checkpoint",)),
    Check("part files", source.check_part_files, ("source checkpoint",)),
    Check("target write", target.check_write, ("places",)),
    Check("target clock", target.check_clock, ("target write",)),
    Check("target space", target.check_space, ("target reach",)),
    Check("target deletes", target.check_retention, ("target reach",)),
    Check("runner", cluster.check_runner, ("plan",)),
    Check("java", cluster.check_java),
    Check("spark", cluster.check_spark, ("java",)),
    Check("executors", cluster.check_executors, ("spark",)),
)


# only if a Kafka is named
_OF_KAFKA: Check[Case] = Check("kafka", kafka.check_kafka, ("source checkpoint",))


def diagnose(
    request: SyncRequest, configured: Configured, asked: KafkaAsked | None = None
) -> Diagnosis:
    """Return the findings of all checks for the sync that a request describes.

    `asked` is the Kafka at which the job would start from a replica.
    """
    checks = _CHECKS if asked is None else (*_CHECKS, _OF_KAFKA)
    findings = run_checks(checks, Case(request, configured, asked))
    return Diagnosis(request.source, request.target_root, findings)
