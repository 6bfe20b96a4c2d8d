"""The options of `switch`."""

from __future__ import annotations

from dataclasses import replace

from cpreplicate.cli.options import kinds
from cpreplicate.cli.options.option import basic, service
from cpreplicate.cli.options.options import (
    ACCESS,
    CHANGE,
    CONF,
    CONTENT,
    DRY_RUN,
    OUTPUT,
    PLAN,
    REPORT,
)
from cpreplicate.cli.options.upkeep_options import SAME_KAFKA, YES, kafka_to

SWITCH = (
    DRY_RUN,
    basic(
        "flink",
        "The JobManager at which the job runs.",
        kinds.TEXT,
        metavar="URL",
        is_multiple=True,  # as of `watch`
    ),
    basic("job", "The job, by its name or its id. Repeatable.", kinds.LINE, is_multiple=True),
    basic(
        "job-file",
        "Instead of --job: a file with the jobs, by name or id, one a line, the most important one"
        " first. Or FILE.toml, with a table [[job]] for each, which may have its own jar, arguments"
        " and parallelism.",
        kinds.FILE,
    ),
    basic(
        "all",
        "Instead of --job: every job that runs at --flink, and those that a switch has begun.",
        fills="every",
        is_general=False,
    ),
    replace(YES, help="With --all, do not ask before the jobs are stopped."),
    basic(
        "start-at",
        "The JobManager that starts the job from its replica: that of a session cluster. Without"
        " it, the command prints how the job is started, and you start it.",
        kinds.LINE,
        metavar="URL",
    ),
    basic(
        "jar",
        "The program: the path of a jar on this machine, such as ./job.jar, or the name or id of"
        " one that --start-at has. Default: the only one that it has.",
        kinds.LINE,
        metavar="FILE|NAME",
    ),
    basic(
        "entry-class",
        "The class of the program. Default: that of the manifest of the jar.",
        kinds.LINE,
        metavar="CLASS",
    ),
    basic(
        "arguments",
        "File with the arguments of the program, one a line; {job} in it stands for the name of the"
        " job.",
        kinds.FILE,
    ),
    basic(
        "job-parallelism", "The parallelism of the job. Default: that of the program.", kinds.COUNT
    ),
    basic(
        "origin-jar",
        "The program by which the job is started again at --flink if the switch fails. Default:"
        " that of --jar.",
        kinds.LINE,
        metavar="FILE|NAME",
    ),
    basic(
        "origin-arguments",
        "File with the arguments with which the job is started again at --flink. Default: those of"
        " --arguments.",
        kinds.FILE,
    ),
    basic(
        "stop",
        "How the job is stopped. checkpoint: take one, then cancel; the records since then are"
        " processed again. savepoint: stop with a savepoint, which is larger.",
        kinds.choice("checkpoint", "savepoint"),
        default="checkpoint",
    ),
    basic(
        "savepoints",
        "With --stop savepoint: the directory of the savepoint, as --flink finds it. Default: that"
        " of its configuration.",
        kinds.LINE,
        metavar="URI",
    ),
    basic(
        "savepoint-format",
        "With --stop savepoint: its format, from Flink 1.15 on. Default: native.",
        kinds.choice("native", "canonical"),
    ),
    basic("small", "Stop the job once a round of copies was smaller.", kinds.SIZE, default="64MiB"),
    basic(
        "most-rounds",
        "Stop the job after so many rounds, whatever the last one copied.",
        kinds.COUNT,
        default=10,
    ),
    basic(
        "patience",
        "How long to wait for each of these: a checkpoint, the end of the job, its start.",
        kinds.TIME,
        default="10m",
    ),
    basic(
        "take-back",
        "Have the job of a switch that did not reach its end run again where it ran.",
        is_general=False,  # one word for one run
    ),
    basic(
        "on-error",
        "Of several jobs. stop: once one was not switched, stop none of those that still run."
        " continue: switch the others.",
        kinds.choice("stop", "continue"),
        default="stop",
    ),
    basic(
        "at-once",
        "How many jobs are switched at the same time, in the order given. 1: one after another.",
        kinds.COUNT,
        default=16,
    ),
    *(
        replace(each, help=f"Before the job is stopped: {each.help[0].lower()}{each.help[1:]}")
        for each in CONTENT
    ),
    *kafka_to(
        "Check that the job can go on at this Kafka: before it is stopped, and again with its last"
        " point. Needs the extra `kafka`."
    ),
    SAME_KAFKA,
    service(
        "header",
        "HTTP header for --flink, such as 'Authorization: Bearer …'. Repeatable. Set"
        " CPREPLICATE_SWITCH_HEADER to keep it out of the list of processes.",
        kinds.LINE,
        metavar="NAME:VALUE",
        is_multiple=True,
    ),
    service(
        "start-header",
        "With --start-at: HTTP header for it. Repeatable.",
        kinds.LINE,
        metavar="NAME:VALUE",
        is_multiple=True,
    ),
    service(
        "client-certificate",
        "PEM file with the certificate and the key for both REST APIs.",
        kinds.FILE,
    ),
    service(
        "certificate-authority",
        "PEM file with the certificates that those of the REST APIs are checked with.",
        kinds.FILE,
    ),
    *PLAN,
    *CONF,
    *ACCESS,
    *CHANGE,
    REPORT,
    *OUTPUT,
)
