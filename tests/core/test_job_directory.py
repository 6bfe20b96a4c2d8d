"""The directory of a job, taken from the path of any of its files."""

import pytest

from cpreplicate.core.closure import job_directory


@pytest.mark.parametrize("below", ["shared/a", "taskowned/a", "chk-7/a"])
def test_the_directory_of_a_job_is_found_from_each_kind_of_file(below):
    assert job_directory(f"hdfs://dcA/ckpt/job1/{below}") == "hdfs://dcA/ckpt/job1"
