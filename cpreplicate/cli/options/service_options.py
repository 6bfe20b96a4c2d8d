"""The options of the commands that run for months: `watch` and `fleet --every`."""

from __future__ import annotations

from cpreplicate.cli.options import kinds
from cpreplicate.cli.options.option import basic, service

JOB_NAME = basic(
    "name",
    "The name of the job, which is recorded in the replica. Jobs that Flink's REST API reports have"
    " theirs recorded without this option.",
    kinds.JOB_NAME,
)
FOLLOW = (
    service(
        "flink",
        "Follow jobs of this JobManager, by its REST API, instead of SOURCE. Repeatable.",
        kinds.TEXT,
        metavar="URL",
        is_multiple=True,
    ),
    service(
        "flink-file",
        "File with a URL of a JobManager per line. It is read again when it changes.",
        kinds.FILE,
    ),
    service(
        "ended-file",
        "File with an id of a job per line that has ended, although no JobManager reported that. It"
        " is read again when it changes.",
        kinds.FILE,
    ),
    service(
        "job-name",
        "Follow the job of this name, also when it restarts under another id. Repeatable.",
        kinds.LINE,
        metavar="NAME",
        is_multiple=True,
    ),
    service("all-jobs", "Follow every job of the JobManagers."),
    service(
        "include",
        "Follow the jobs whose names match, such as 'orders-*'. Repeatable.",
        kinds.LINE,
        metavar="PATTERN",
        is_multiple=True,
    ),
    service(
        "exclude",
        "Follow no job whose name matches. Repeatable.",
        kinds.LINE,
        metavar="PATTERN",
        is_multiple=True,
    ),
    service(
        "header",
        "HTTP header for the REST API, such as 'Authorization: Bearer …'. Repeatable. Set"
        " CPREPLICATE_WATCH_HEADER to keep it out of the list of processes.",
        kinds.LINE,
        metavar="NAME:VALUE",
        is_multiple=True,
    ),
    service(
        "client-certificate",
        "PEM file with the certificate and the key for the REST API.",
        kinds.FILE,
    ),
    service(
        "certificate-authority",
        "PEM file with the certificates that the REST API's is checked with.",
        kinds.FILE,
    ),
    service(
        "jobs-under",
        "Follow each job's directory below ROOT, also new ones, instead of SOURCE.",
        kinds.TEXT,
        metavar="ROOT",
    ),
    service(
        "retire-after",
        "With --jobs-under: no longer show a job whose newest checkpoint is older.",
        kinds.TIME,
    ),
)

SERVICE = (
    service(
        "slots",
        "How many jobs of a priority are replicated at the same time.",
        kinds.COUNT,
        default=20,
    ),
    service(
        "processes",
        "Worker processes that share the jobs of this service. 1: it replicates them by itself."
        " Default: one for each 50 jobs, at most one for each core.",
        kinds.COUNT,
    ),
    service(
        "shard",
        "Follow one part of the jobs, and leave the others to services of the other shards.",
        kinds.SHARD,
        default="1/1",
    ),
    service(
        "max-backoff",
        "The longest pause before a job is tried again that keeps failing; by default 10m, and of"
        " one SOURCE the interval.",
        kinds.PAUSE,
    ),
    service(
        "grace",
        "How long SIGTERM may take. What still runs after half of it is cancelled.",
        kinds.TIME,
        default="30s",
    ),
    service(
        "session-idle",
        "End the Spark session when no job has used it for so long.",
        kinds.TIME,
        default="10m",
    ),
    service(
        "metrics",
        "Serve /metrics, /healthz, /readyz and /jobs there. Without HOST, on this machine only."
        " off: do not serve them.",
        kinds.ADDRESS,
    ),
    service(
        "metrics-detail",
        "Serve also metrics of each job that no shipped alert or dashboard needs by job.",
    ),
    service(
        "heartbeat",
        "Call URL every 30 s, while each job lags by at most --max-lag.",
        kinds.TEXT,
        metavar="URL",
    ),
    service(
        "kubernetes-snapshots",
        "Keep a FlinkStateSnapshot of each job current in this namespace of Kubernetes. Needs the"
        " extra `kubernetes`.",
        kinds.TEXT,
        metavar="NAMESPACE",
    ),
    service(
        "sweep-every",
        "How often to look for orphans in the replicas of the jobs, and for replicas of"
        " --forget-ended. 0s: never sweep.",
        kinds.TIME,
        default="24h",
    ),
    service(
        "forget-ended",
        "Remove replicas in TARGET_ROOT of jobs that have ended, and whose newest checkpoint is"
        " older, such as 30d: those that `forget --all --ended` would remove.",
        kinds.AGE,
    ),
    service(
        "forget-flink",
        "JobManager of a cluster that restores from the replicas: --forget-ended asks it before"
        " each removal whether one of its jobs runs from the replica. Repeatable.",
        kinds.TEXT,
        metavar="URL",
        is_multiple=True,
    ),
    service(
        "max-lag", "The largest lag with which --heartbeat is called.", kinds.TIME, default="15m"
    ),
)
