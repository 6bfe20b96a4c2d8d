"""The jobs that JobManagers report, also in unusual ways."""

import contextlib
import http.server
import json
import threading

import pytest

from cpreplicate.core.clock import MACHINE
from cpreplicate.core.shard import WHOLE, Shard
from cpreplicate.flink import FlinkRest
from cpreplicate.flink.client import RequestLimits
from cpreplicate.operations.jobs.chosen import Chosen
from cpreplicate.operations.jobs.flink_jobs import FlinkJobs
from cpreplicate.operations.jobs.job import JobKey, by_key
from cpreplicate.operations.sync.request import SyncRequest
from tests.support import hostile
from tests.support.stepping import ManualClock
from tests.support.waiting import PATIENCE, wait_until

HANG = PATIENCE
ONE, TWO = f"{1:032x}", f"{2:032x}"


def overview(*job_ids):
    jobs = [{"jid": job, "name": job[-1], "start-time": 0, "state": "RUNNING"} for job in job_ids]
    return {"jobs": jobs}


def checkpoints(job_id, number, root="file:/dcA"):
    path = f"{root}/{job_id}/chk-{number}"
    completed = {"id": number, "external_path": path, "latest_ack_timestamp": number * 1000}
    return {"latest": {"completed": completed}}


@contextlib.contextmanager
def answering(answers, before=lambda: None):
    """A server that answers as `AbstractCheckpointStatsHandler` does where Flink has nothing."""
    seen = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            before()
            seen.append(self.headers["Authorization"])
            answer = answers.get(self.path)
            body = json.dumps(answer or {"errors": ["Checkpointing was not enabled"]}).encode()
            self.send_response(200 if answer else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}", seen
        server.shutdown()


def connect(url):
    """A client whose requests end only when the test does."""
    return FlinkRest(url, limits=RequestLimits(HANG, 1 << 20))


def following(url, lines, shard=WHOLE):
    template = SyncRequest("", "file:/dcB")
    chosen = Chosen(every=True)
    return FlinkJobs(
        lambda: [url], connect, chosen, template, lines.append, shard=shard, patience=HANG
    )


def newest(found):
    return {job.name: job.newest and job.newest.newest.checkpoint_id for job in found.jobs()}


def test_a_job_without_checkpointing_hides_no_other_job_of_its_jobmanager():
    lines: list[str] = []
    answers = {
        "/jobs/overview": overview(ONE, TWO),
        f"/jobs/{TWO}/checkpoints": checkpoints(TWO, 7),
    }
    with answering(answers) as (place, _):
        assert newest(following(f"http://{place}", lines)) == {"2": 7}
    assert not [line for line in lines if "cannot be read" in line]


def test_a_job_that_reports_no_checkpoint_any_more_is_followed_by_its_directory():
    answers = {"/jobs/overview": overview(ONE), f"/jobs/{ONE}/checkpoints": checkpoints(ONE, 7)}
    with answering(answers) as (place, _):
        found = following(f"http://{place}", [])
        assert newest(found) == {"1": 7}
        answers[f"/jobs/{ONE}/checkpoints"] = {"latest": {"completed": None}}
        assert newest(found) == {"1": None}


def test_a_password_in_the_url_of_a_jobmanager_is_used_and_not_reported():
    lines: list[str] = []
    with answering({"/jobs/overview": overview()}) as (place, seen):
        found = following(f"http://user:secret@{place}", lines)
        found.jobs()
    assert seen == ["Basic dXNlcjpzZWNyZXQ="]
    found.jobs()
    assert "cannot be read" in str(lines)
    assert "secret" not in str(lines)


def test_a_jobmanager_that_refuses_the_request_is_reported_with_its_status_and_the_option():
    lines: list[str] = []
    with hostile.hostile(hostile.answer(b"", "401 Unauthorized")) as server:
        following(server.url, lines).jobs()
    assert "answers with status 401" in str(lines)
    assert "--header" in str(lines)


def test_a_job_of_the_same_id_that_writes_elsewhere_is_followed_to_there():
    answers = {"/jobs/overview": overview(ONE), f"/jobs/{ONE}/checkpoints": checkpoints(ONE, 7)}
    with answering(answers) as (place, _):
        found = following(f"http://{place}", [])
        assert newest(found) == {"1": 7}
        answers[f"/jobs/{ONE}/checkpoints"] = checkpoints(ONE, 8, "file:/elsewhere")
        (job,) = found.jobs()
        assert (job.refusal, job.request.source) == (None, f"file:/elsewhere/{ONE}")
        assert job.newest.newest.checkpoint_id == 8


def test_jobmanagers_are_asked_at_the_same_time():
    lines: list[str] = []
    together = threading.Barrier(3, timeout=PATIENCE)
    answers = [
        {"/jobs/overview": overview(job), f"/jobs/{job}/checkpoints": checkpoints(job, number)}
        for number, job in enumerate((ONE, TWO, f"{3:032x}"), 1)
    ]
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(answering(each, together.wait)) for each in answers]
        urls = [f"http://{place}" for place, _ in servers]
        template = SyncRequest("", "file:/dcB")
        chosen = Chosen(every=True)
        # a URL that is named twice is asked once
        found = FlinkJobs(
            lambda: [*urls, urls[0]], connect, chosen, template, lines.append, patience=HANG
        )
        assert newest(found) == {"1": 1, "2": 2, "3": 3}
    assert [line for line in lines if "cannot be read" in line] == []


def test_each_job_of_a_jobmanager_is_followed_and_reported_in_one_shard():
    job_ids = [f"{number:032x}" for number in range(6)]
    answers = {f"/jobs/{job}/checkpoints": checkpoints(job, 1) for job in job_ids}
    answers["/jobs/overview"] = overview(*job_ids)
    followed, reported = [], []
    with answering(answers) as (place, _):
        for number in (1, 2, 3):
            lines: list[str] = []
            jobs = following(f"http://{place}", lines, Shard(number, 3)).jobs()
            followed += [job.key.name for job in jobs]
            reported += [line.partition(":")[0] for line in lines]
    assert sorted(followed) == job_ids
    assert sorted(reported) == [job[-1] for job in job_ids]


def test_a_file_without_a_jobmanager_is_reported():
    lines: list[str] = []
    chosen = Chosen(every=True)
    found = FlinkJobs(
        lambda: (), connect, chosen, SyncRequest("", "file:/dcB"), lines.append, patience=HANG
    )
    assert found.jobs() == found.jobs() == []
    assert lines == ["no URL of a JobManager is given. Waiting for one in --flink-file"]


def test_a_service_that_starts_during_an_outage_misses_its_jobmanager_and_its_job():
    """Nothing else has a series then: no job was ever found."""
    lines: list[str] = []
    answers = {"/jobs/overview": overview(TWO), f"/jobs/{TWO}/checkpoints": checkpoints(TWO, 7)}
    chosen = Chosen(frozenset({"2", "orders"}), include=("pay-*",))
    with answering(answers) as (place, _):
        urls = [f"http://user:secret@{place}", "http://127.0.0.1:1", "secret"]
        template = SyncRequest("", "file:/dcB")
        found = FlinkJobs(lambda: urls, connect, chosen, template, lines.append, patience=HANG)
        names = {"2": True, "orders": True, "--include pay-*": True}
        assert found.coverage.discovered(60.0) == ({}, names)
        found.jobs()
    unseen = {f"http://{place}": False, "http://127.0.0.1:1": True, "URL number 3": True}
    assert found.coverage.was_asked(60.0)
    discovered = found.coverage.discovered(-1.0)  # as if time had passed
    assert discovered.unmatched == {**names, "2": False}
    assert discovered.unseen.keys() == unseen.keys()
    assert {each.name for each in found.coverage.places() if each.problem} == {
        name for name, is_unseen in unseen.items() if is_unseen
    }
    assert "secret" not in str(found.coverage.places())


def test_a_name_that_a_job_has_is_matched():
    answers = {"/jobs/overview": overview(TWO), f"/jobs/{TWO}/checkpoints": checkpoints(TWO, 7)}
    chosen = Chosen(frozenset({"orders"}), include=("2*", "pay-*"))
    with answering(answers) as (place, _):
        template = SyncRequest("", "file:/dcB")
        found = FlinkJobs(
            lambda: [f"http://{place}"], connect, chosen, template, print, patience=HANG
        )
        found.jobs()
    unmatched = {"orders": True, "--include pay-*": True, "--include 2*": False}
    assert found.coverage.discovered(60.0).unmatched == unmatched


def named(chosen, lines, answers):
    """Ask once which jobs are followed of a JobManager that gives these answers."""
    with answering(answers) as (place, _):
        template = SyncRequest("", "file:/dcB")
        found = FlinkJobs(
            lambda: [f"http://{place}"], connect, chosen, template, lines.append, patience=HANG
        )
        found.jobs()
        found.jobs()


def reporting(*names):
    jobs = [
        {"jid": f"{number:032x}", "name": name, "start-time": 0, "state": "RUNNING"}
        for number, name in enumerate(names)
    ]
    return {"/jobs/overview": {"jobs": jobs}}


def test_a_name_that_no_job_has_is_reported_once_with_the_names_of_jobs_nearest_first():
    lines: list[str] = []
    answers = reporting("payments", "orders", "clicks", "fraud", "stock", "returns")
    named(Chosen(frozenset({"ordres"})), lines, answers)
    assert len(lines) == 1
    assert lines[0].startswith("ordres: no job has such a name. Waiting.")
    assert "have the jobs 'orders', " in lines[0]
    assert lines[0].endswith(" and 1 more")


def test_a_name_that_a_job_without_a_checkpoint_has_is_reported_as_waited_for():
    lines: list[str] = []
    named(Chosen(frozenset({"orders"})), lines, reporting("orders"))
    assert lines == ["orders: no job of this name has completed a checkpoint yet. Waiting"]


def test_a_pattern_that_no_job_matches_is_reported_once():
    lines: list[str] = []
    named(Chosen(include=("ordres-*", "pay*")), lines, reporting("orders-eu", "payments"))
    assert len(lines) == 1
    assert lines[0].startswith("--include ordres-*: no job has such a name. Waiting.")
    assert "'orders-eu', 'payments'" in lines[0]


def test_jobmanagers_without_any_job_are_reported_once():
    lines: list[str] = []
    named(Chosen(every=True), lines, reporting())
    assert lines == ["--all-jobs: the JobManagers report no job yet. Waiting"]


@contextlib.contextmanager
def jobmanager(answers):
    """A JobManager that answers each path by a script, and else with 404."""

    def script(connection, head):
        path = head.split()[1].decode()
        found = answers.get(path, hostile.answer(b"{}", "404 Not Found"))
        if not callable(found):
            found = hostile.answer(json.dumps(found).encode())
        found(connection, head)

    with hostile.hostile(script) as server:
        yield server


EVERYWHERE = SyncRequest("", "file:/dcB")


def asking(urls, lines, template=EVERYWHERE, patience=HANG, clock=None, ended=tuple):
    """Discovery of every job; for its limits no time passes unless a test lets it."""
    chosen = Chosen(every=True)
    return FlinkJobs(
        lambda: urls,
        connect,
        chosen,
        template,
        lines.append,
        clock or ManualClock(),
        patience=patience,
        ended=ended,
    )


def test_a_silent_jobmanager_holds_up_no_other_and_is_not_asked_twice():
    silent = {"/jobs/overview": lambda connection, _: connection.recv(1)}
    answers = {"/jobs/overview": overview(ONE), f"/jobs/{ONE}/checkpoints": checkpoints(ONE, 7)}
    with jobmanager(silent) as dead, jobmanager(answers) as healthy:
        found = asking([dead.url, healthy.url], [], patience=0.1, clock=MACHINE)
        wait_until(lambda: newest(found) == {"1": 7})
        wait_until(lambda: dead.requests)
        answers[f"/jobs/{ONE}/checkpoints"] = checkpoints(ONE, 8)
        wait_until(lambda: newest(found) == {"1": 8})
        assert len(dead.requests) == 1


@pytest.mark.parametrize(
    "bad",
    [
        hostile.answer(b"", "500 Internal Server Error"),
        hostile.answer(b'{"latest": {"completed": {"id": 1e999}}}'),
        hostile.answer(b"[" * 50_000),
        lambda connection, _: connection.close(),
        {"latest": {"completed": {**checkpoints(ONE, 1)["latest"]["completed"], "id": 10**400}}},
        {"latest": {"completed": {**checkpoints(ONE, 1)["latest"]["completed"], "id": 2}}},
    ],
    ids=range(6),
)
@pytest.mark.usefixtures("no_collection")
def test_a_job_behind_one_whose_answer_is_a_failure_is_followed(bad):
    lines: list[str] = []
    answers = {
        "/jobs/overview": overview(ONE, TWO),
        f"/jobs/{ONE}/checkpoints": bad,
        f"/jobs/{TWO}/checkpoints": checkpoints(TWO, 7),
    }
    with jobmanager(answers) as server:
        found = asking([server.url], lines)
        assert newest(found).get("2") == 7
        assert [line for line in lines if line.startswith("1: ")]
        if "1" not in newest(found):  # it is followed by nobody, and has no lag that shows it
            assert unread(found) == [f"{server.url} (the job 1, {ONE})"]
        answers[f"/jobs/{ONE}/checkpoints"] = checkpoints(ONE, 3)
        assert newest(found) == {"1": 3, "2": 7}
        assert newest(found) == {"1": 3, "2": 7}
        assert unread(found) == []
        answers[f"/jobs/{ONE}/checkpoints"] = hostile.answer(b"", "503 Unavailable")
        assert newest(found) == {"1": None, "2": 7}  # its directory has the newest one
        assert unread(found) == []


def unread(found):
    """Return the places of a discovery that have a problem: they count as unseen in time."""
    places = [place for place in found.coverage.places() if place.problem]
    assert all(found.coverage.discovered(-1.0).unseen[place.name] for place in places)
    return [place.name for place in places]


def test_many_jobs_that_cannot_be_read_are_named_up_to_a_number():
    ids = [f"{number:032x}" for number in range(1, 151)]
    answers = {
        "/jobs/overview": overview(*ids),
        **{f"/jobs/{each}/checkpoints": hostile.answer(b"", "500 No") for each in ids},
    }
    with jobmanager(answers) as server:
        found = asking([server.url], [])
        assert newest(found) == {}
        assert len(unread(found)) == 100


def test_an_entry_that_is_no_job_and_an_id_of_400_digits_hide_no_other_job():
    lines: list[str] = []
    jobs = overview(ONE, TWO, "1" * 400)
    jobs["jobs"][0]["name"] = 7
    answers = {"/jobs/overview": jobs, f"/jobs/{TWO}/checkpoints": checkpoints(TWO, 7)}
    with jobmanager(answers) as server:
        found = asking([server.url], lines)
        assert newest(found) == {"2": 7}
        assert unread(found) == [f"{server.url} (jobs without a valid id)"]
    assert len([line for line in lines if "does not answer as Flink's REST API does" in line]) == 2


def test_jobs_that_failed_are_asked_last_and_a_slow_failure_ends_the_round():
    clock = ManualClock()

    def fail(connection, _head):
        clock.pass_(30.0)  # as a request that meets its deadline
        hostile.answer(b"", "500 Late")(connection, b"")

    three = f"{3:032x}"
    answers = {
        "/jobs/overview": overview(ONE, TWO, three),
        **{f"/jobs/{job}/checkpoints": checkpoints(job, 7) for job in (ONE, TWO, three)},
    }
    with jobmanager(answers) as server:
        found = asking([server.url], [], clock=clock)
        assert newest(found) == {"1": 7, "2": 7, "3": 7}
        answers[f"/jobs/{ONE}/checkpoints"] = fail
        # what is not asked for is followed by its directory
        assert newest(found) == {"1": None, "2": None, "3": None}
        assert newest(found) == {"1": None, "2": 7, "3": 7}


def test_who_reports_the_directory_of_another_job_is_refused_and_the_other_is_followed():
    lines: list[str] = []
    honest = {"/jobs/overview": overview(ONE), f"/jobs/{ONE}/checkpoints": checkpoints(ONE, 7)}
    forged = {"/jobs/overview": overview(TWO), f"/jobs/{TWO}/checkpoints": checkpoints(ONE, 99)}
    with jobmanager(forged) as impostor, jobmanager(honest) as victim:
        jobs = by_key(asking([impostor.url, victim.url], lines).jobs())
    followed, refused = (
        jobs[JobKey("file:/dcB", f"file:/dcA/{ONE}")],
        jobs[JobKey("file:/dcB", f"file:/dcA/{TWO}")],
    )
    assert (followed.refusal, followed.newest.path) == (None, f"file:/dcA/{ONE}/chk-7")
    assert "in the directory of another job" in refused.refusal
    assert refused.newest is None
    assert any("in the directory of another job" in line for line in lines)


def test_who_is_refused_hides_no_job_whose_id_it_names():
    """It reports the id of a job, and for it the directory of yet another one."""
    honest = {"/jobs/overview": overview(ONE), f"/jobs/{ONE}/checkpoints": checkpoints(ONE, 7)}
    forged = {"/jobs/overview": overview(ONE), f"/jobs/{ONE}/checkpoints": checkpoints(TWO, 99)}
    with jobmanager(forged) as impostor, jobmanager(honest) as victim:
        jobs = by_key(asking([impostor.url, victim.url], []).jobs())
    assert jobs[JobKey("file:/dcB", f"file:/dcA/{ONE}")].refusal is None


@pytest.mark.parametrize("root", ["file:/elsewhere", f"file:/dcA/{ONE}x"])
def test_a_path_that_is_reported_is_held_to_the_source_roots(root):
    answers = {"/jobs/overview": overview(ONE), f"/jobs/{ONE}/checkpoints": checkpoints(ONE, 7)}
    template = SyncRequest("", "file:/dcB", source_roots=(root,))
    with jobmanager(answers) as server:
        (job,) = asking([server.url], [], template).jobs()
        assert "outside the source's roots" in job.refusal
        for allowed in ("file:/dcA", f"file:/dcA/{ONE}"):
            inside = SyncRequest("", "file:/dcB", source_roots=(root, allowed))
            (job,) = asking([server.url], [], inside).jobs()
            assert job.refusal is None


def test_a_line_that_is_no_url_is_reported_without_its_text_and_hides_no_jobmanager():
    lines: list[str] = []
    answers = {"/jobs/overview": overview(ONE), f"/jobs/{ONE}/checkpoints": checkpoints(ONE, 7)}
    with jobmanager(answers) as server:
        urls = ["http://u:5f1c@[::1", "\ufffd5f1c", "http://h:5f1c", server.url]
        found = asking(urls, lines)
        assert newest(found) == newest(found) == {"1": 7}
    (line,) = [line for line in lines if "left out" in line]
    assert line.startswith("3 of 4 URLs of JobManagers are left out, the first is number 1")
    assert "5f1c" not in str(lines)


def test_a_url_that_comes_back_is_asked_again():
    answers = {"/jobs/overview": overview(ONE), f"/jobs/{ONE}/checkpoints": checkpoints(ONE, 7)}
    with jobmanager(answers) as server:
        urls = [server.url]
        found = asking(urls, [])
        assert newest(found) == {"1": 7}
        urls.clear()
        assert newest(found) == {"1": None}
        urls.append(server.url)
        assert newest(found) == {"1": 7}


def test_a_sync_is_asked_to_record_the_name_that_the_jobmanager_reports():
    name = "x" * 1000
    jobs = [{"jid": ONE, "name": name, "start-time": 0, "state": "RUNNING"}]
    answers = {
        "/jobs/overview": {"jobs": jobs},
        f"/jobs/{ONE}/checkpoints": checkpoints(ONE, 1),
    }
    with answering(answers) as (place, _seen):
        (job,) = following(f"http://{place}", []).jobs()
    assert job.request.name == name


def restored(path):
    return {"latest": {"completed": None, "restored": {"id": 7, "external_path": path}}}


def test_a_job_that_was_restored_and_completed_no_checkpoint_since_is_followed():
    lines: list[str] = []
    path = f"file:/dcA/{ONE}/chk-7"
    answers = {
        "/jobs/overview": overview(ONE, TWO),
        f"/jobs/{ONE}/checkpoints": restored(path),
        f"/jobs/{TWO}/checkpoints": restored(path),  # a restart under another id
    }
    with jobmanager(answers) as server:
        found = asking([server.url], lines)
        (job,) = found.jobs()
        assert (job.name, job.request.source, job.newest) == ("1", f"file:/dcA/{ONE}", None)
        assert [line for line in lines if line.startswith(f"2: the job {TWO} was restored from")]
        answers[f"/jobs/{ONE}/checkpoints"] = checkpoints(ONE, 8)
        assert newest(found) == {"1": 8}


def test_a_report_without_a_state_or_a_name_or_with_an_id_in_capitals_is_followed_or_counted():
    jobs = overview(ONE, TWO, f"{10:032x}")
    del jobs["jobs"][0]["state"]
    jobs["jobs"][1]["name"] = None
    jobs["jobs"][2]["jid"] = f"{10:032X}"
    ids = [ONE, TWO, f"{10:032x}"]
    answers = {
        "/jobs/overview": jobs,
        **{f"/jobs/{each}/checkpoints": checkpoints(each, 3) for each in ids},
    }
    lines: list[str] = []
    with jobmanager(answers) as server:
        assert newest(asking([server.url], lines)) == {"1": 3, TWO: 3, "a": 3}
        assert len([line for line in lines if "does not answer as Flink's REST API" in line]) == 2
        chosen = FlinkJobs(
            lambda: [server.url],
            connect,
            Chosen(frozenset(("1",))),
            SyncRequest("", "file:/dcB"),
            lines.append,
            patience=HANG,
        )
        assert newest(chosen) == {"1": 3}
        assert unread(chosen) == [f"{server.url} (the job {TWO} without a name)"]


def test_a_job_that_is_not_reported_any_more_is_lost_unless_its_end_or_its_next_life_is_reported():
    clock, lines = ManualClock(), list[str]()
    ids = [ONE, TWO, f"{3:032x}"]
    jobs = overview(*ids)
    answers = {
        "/jobs/overview": jobs,
        **{f"/jobs/{each}/checkpoints": checkpoints(each, 3) for each in (*ids, f"{4:032x}")},
    }
    with jobmanager(answers) as server:
        found = asking([server.url], lines, clock=clock)
        assert set(newest(found)) == {"1", "2", "3"}
        jobs["jobs"][1]["state"] = "CANCELED"
        found.jobs()
        answers["/jobs/overview"] = overview(f"{4:032x}")
        answers["/jobs/overview"]["jobs"][0]["name"] = "3"
        for _ in range(3):
            clock.pass_(100.0)
            kept = found.jobs()
        assert {job.name: job.is_lost for job in kept} == {"1": True, "3": False}
        assert len([line for line in lines if "has not reported its end" in line]) == 1
        answers["/jobs/overview"] = overview(ONE)
        assert {job.name: job.is_lost for job in found.jobs()}["1"] is False


@pytest.mark.parametrize("last", [restored(f"file:/dcA/{ONE}/chk-3"), None])
def test_a_job_that_ends_before_its_first_checkpoint_since_a_failover_has_ended(last):
    """Its JobManager reports no completed checkpoint then, or nothing."""
    clock, lines = ManualClock(), list[str]()
    jobs = overview(ONE)
    answers = {"/jobs/overview": jobs, f"/jobs/{ONE}/checkpoints": checkpoints(ONE, 3)}
    with jobmanager(answers) as server:
        found = asking([server.url], lines, clock=clock)
        assert newest(found) == {"1": 3}
        answers[f"/jobs/{ONE}/checkpoints"] = last
        clock.pass_(100.0)
        assert newest(found) == {"1": None}
        jobs["jobs"][0]["state"] = "CANCELED"
        clock.pass_(100.0)
        assert [job.has_ended for job in found.jobs()] == [True]
        answers["/jobs/overview"] = overview()
        for _ in range(3):
            clock.pass_(100.0)
            found.jobs()
        assert found.jobs() == []
        assert not [line for line in lines if "has not reported its end" in line]


def test_a_lost_job_that_an_operator_states_to_have_ended_is_followed_no_more():
    clock, lines, ended = ManualClock(), list[str](), list[str]()
    answers = {
        "/jobs/overview": overview(ONE, TWO),
        **{f"/jobs/{each}/checkpoints": checkpoints(each, 3) for each in (ONE, TWO)},
    }

    def read():
        if "none" in ended:
            raise OSError("the file is gone")
        return ended

    with jobmanager(answers) as server:
        found = asking([server.url], lines, clock=clock, ended=read)
        ended.append(TWO.upper())  # too early: it is reported as running
        assert set(newest(found)) == {"1", "2"}
        answers["/jobs/overview"] = overview()
        found.jobs()
        clock.pass_(200.0)
        assert {job.name: job.is_lost for job in found.jobs()} == {"1": True}
        ended.append("orders")
        found.jobs()
        assert [
            line for line in lines if line.startswith("orders is listed as ended, and is no id")
        ]
        ended[:] = ["none"]
        found.jobs()
        assert [line for line in lines if "The ids read before count as ended" in line]
        ended[:] = [ONE]
        assert found.jobs() == []
        assert f"1: the job {ONE} is gone" in lines


def test_a_job_whose_next_checkpoint_is_not_due_costs_no_call_and_counts_as_seen():
    clock, asked = ManualClock(), []
    answers = {"/jobs/overview": overview(ONE)}

    class Asked(FlinkRest):
        def checkpoints(self, job_id):
            asked.append(clock.passed)
            return super().checkpoints(job_id)

    with answering(answers) as (place, _):
        found = FlinkJobs(
            lambda: [f"http://{place}"],
            lambda url: Asked(url, limits=RequestLimits(HANG, 1 << 20)),
            Chosen(every=True),
            SyncRequest("", "file:/dcB"),
            lambda _line: None,
            clock,
            patience=HANG,
        )
        for _ in range(30):
            number = 1 + int(clock.passed) // 60  # one a minute
            answer = checkpoints(ONE, number)
            answer["latest"]["completed"]["latest_ack_timestamp"] = number * 60_000
            answers[f"/jobs/{ONE}/checkpoints"] = answer
            (job,) = found.jobs()
            assert job.looked == clock.now()
            if clock.passed > 120.0:  # how often it completes one is known
                assert job.newest.newest.checkpoint_id == number
            clock.pass_(10.0)
        assert len(asked) < 20
        asked.clear()
        answers["/jobs/overview"]["jobs"][0]["state"] = "FAILING"
        found.jobs()
        assert len(asked) == 1
