"""`unseal --all`: seals are removed where no job has started, and nowhere else."""

import shutil

import pytest

from cpreplicate.errors import NotThere
from cpreplicate.operations.handover.promote_all import PromoteAllRequest, candidates, promote_all
from cpreplicate.operations.handover.unseal_all import UnsealAllRequest, unseal_all
from cpreplicate.operations.replicas.replicas import replicas_below
from cpreplicate.output.results import forms_of
from cpreplicate.storage import Sides
from tests.support.doctor import tree
from tests.support.replicas import aged
from tests.support.roots import FIRST, SECOND, THIRD, Roots


@pytest.fixture
def roots(tmp_path):
    roots = Roots(tmp_path)
    roots.add(FIRST, "orders")
    roots.add(SECOND, "clicks")
    request = PromoteAllRequest(refs(roots))
    promote_all(candidates(request), request, lambda _line: None)
    roots.add(THIRD, "never promoted")
    return roots


def refs(roots):
    return tuple(replicas_below(f"file:{roots.targets}", [], Sides()))


def unsealed(roots, since=0.0, **options):
    return unseal_all(UnsealAllRequest(refs(roots), since, **options))


def is_sealed(roots, job):
    return (roots.targets / job / ".cpreplicate" / "sealed").exists()


def test_every_sealed_replica_is_unsealed(roots):
    report = unsealed(roots)
    assert [(job.name, job.exit_code) for job in report.jobs] == [("clicks", 0), ("orders", 0)]
    assert (report.exit_code, report.earlier) == (0, ())
    assert not any(is_sealed(roots, job) for job in (FIRST, SECOND))


def test_a_dry_run_changes_nothing(roots):
    before = {path: facts[:2] for path, facts in tree(roots.targets).items()}
    report = unsealed(roots, dry_run=True)
    assert [job.name for job in report.jobs] == ["clicks", "orders"]
    assert {path: facts[:2] for path, facts in tree(roots.targets).items()} == before
    assert is_sealed(roots, FIRST)


def test_a_replica_in_which_a_job_has_completed_a_checkpoint_stays_sealed(roots):
    replica = roots.targets / FIRST
    shutil.copytree(replica / "chk-1", replica / "chk-2")
    report = unsealed(roots)
    assert [(job.name, job.exit_code) for job in report.jobs] == [("orders", 6), ("clicks", 0)]
    assert report.exit_code == 3
    assert (is_sealed(roots, FIRST), is_sealed(roots, SECOND)) == (True, False)


def test_what_an_earlier_switch_sealed_is_left(roots):
    sealed = roots.targets / FIRST / ".cpreplicate" / "sealed"
    aged(sealed, days=2)
    since = (roots.targets / SECOND / ".cpreplicate" / "sealed").stat().st_mtime
    report = unsealed(roots, since)
    (left,) = report.earlier
    assert ([job.name for job in report.jobs], left.name) == (["clicks"], "orders")
    text = forms_of(report).text(report)
    assert f"orders: file:{roots.targets}/{FIRST} was sealed before, by " in text
    assert sealed.exists()


def test_only_jobs_whose_names_match_are_unsealed(roots):
    assert [job.name for job in unsealed(roots, include=("ord*",)).jobs] == ["orders"]
    assert is_sealed(roots, SECOND)


def test_it_is_an_error_if_nothing_of_the_name_is_sealed(roots):
    with pytest.raises(NotThere):
        unsealed(roots, include=("never*",))
