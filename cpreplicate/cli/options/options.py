"""The options of the commands: name, kind, default, help and group of each stand here only.

Those of services are in `service_options`. Tuples are options that several commands have.
"""

from __future__ import annotations

from dataclasses import replace

from cpreplicate.cli.options import kinds
from cpreplicate.cli.options.option import basic, limit, output, path, spark, storage

DRY_RUN = basic("dry-run", "Show what would be done, and change nothing.", short="-n")
ACTIONS = output("actions", "List every file instead of totals.")
LISTINGS = (  # of `diff`, besides ACTIONS
    output("all", "List all actions, not only the largest.", fills="every", is_general=False),
    output(
        "combined",
        "List every file as a line: a sign, a space, and its path in the replica. + is copied, = is"
        " kept, * replaces a file there, - is deleted. As `rclone check --combined`.",
    ),
)
METRICS_FILE = output(
    "metrics-file",
    "Write Prometheus metrics of the run to PATH, a file *.prom for the textfile collector of"
    " node_exporter. Counters go on from those in the file; see docs/monitoring.md.",
    kinds.PROM_FILE,
    is_general=False,  # each command replaces what another one wrote
)
REPORT = output(
    "report",
    "Also write the result as a page for a browser, one file that needs no network: the answer,"
    " charts, and tables to sort and search; see docs/reports.md.",
    kinds.HTML_FILE,
    fills="report_file",
    is_general=False,  # one file for the pages of all commands
)
PROGRESS = (
    output(
        "progress",
        "Progress display on stderr. auto: a bar on a terminal, else a line every ten"
        " seconds. ndjson: messages are JSON objects, too.",
        kinds.choice("auto", "bar", "lines", "ndjson", "none"),
        default="auto",
    ),
    output(
        "quiet",
        "Print only warnings and errors to stderr: no progress, no messages. sync, watch, fleet,"
        " sweep, relocate, unseal and verify that succeed print no text to stdout either.",
        short="-q",
    ),
    output(
        "verbose",
        "Report details, too: the steps, the time that they take, and why the runner was chosen.",
        short="-v",
    ),
    output(
        "log-file",
        "Append messages, details and progress to FILE, each line with its time, run, job and"
        " checkpoint. With -q they go only there. logrotate may move FILE.",
        kinds.FILE,
    ),
    output(
        "log-format",
        "Print messages to stderr as the lines of a log, each with its time, run, job and"
        " checkpoint. Also the format of --log-file, where text is the default.",
        kinds.choice("text", "json"),
    ),
)
OUTPUT = (
    output(
        "output",
        "Output format on stdout; see docs/json.md.",
        kinds.choice("text", "json", "ndjson"),
        default="text",
    ),
    *PROGRESS,
)

SOURCE_CONF = storage(
    "source-conf",
    "How to reach the storage of SOURCE: a directory with core-site.xml and hdfs-site.xml, or one"
    " property. deadline=20s limits each call. Repeatable.",
    kinds.STORAGE_CONF,
    is_multiple=True,
)
TARGET_CONF = replace(
    SOURCE_CONF, name="target-conf", help=SOURCE_CONF.help.replace("SOURCE", "the replica")
)
_KEYTABS = tuple(
    (
        storage(
            f"{side}-keytab",
            f"Keytab of the user of {place}'s secure HDFS, on every host at this path, or shipped"
            " to executors with `--conf spark.files`; see docs/kerberos.md.",
            kinds.LOCAL_PATH,
        ),
        storage(
            f"{side}-principal",
            f"Kerberos principal in the keytab, such as flink@EXAMPLE.COM, for {place}.",
            kinds.NAME,
        ),
    )
    for side, place in (("source", "SOURCE"), ("target", "the replica"))
)
OF_SOURCE = (SOURCE_CONF, *_KEYTABS[0])
OF_TARGET = (TARGET_CONF, *_KEYTABS[1])
CONF = (*OF_SOURCE, *OF_TARGET)
_CLIENT_AND_LIMITS = (
    storage(
        "hdfs-client",
        "native: hdfs-native, without a JVM. hadoop: Hadoop's own client, in a JVM beside each"
        " worker.",
        kinds.HDFS_CLIENT,
        default="native",
    ),
    limit(
        "max-rps", "Metadata operations per second on each cluster, over all executors.", kinds.RATE
    ),
    limit(
        "bandwidth",
        "Bytes per second of the whole run, such as 500MB/s, or a timetable by the local time:"
        " '08:00,100MB/s 20:00,off', also with days: 'Sat-00:00,off Mon-08:00,100MB/s'.",
        kinds.BYTE_RATE,
    ),
)
_RETRY_FOR = limit(
    "retry-for",
    "How long to retry a call while a storage cannot be reached, does not answer or is not ready.",
    kinds.TIME,
    default="60s",
)
ACCESS = (*_CLIENT_AND_LIMITS, _RETRY_FOR)
ACCESS_OF_DOCTOR = (*_CLIENT_AND_LIMITS, replace(_RETRY_FOR, default="5s"))
WRITING = (
    storage(
        "replication",
        "HDFS replication factor of each file. Default: that of the target cluster.",
        kinds.COUNT,
    ),
    storage(
        "block-size",
        "HDFS block size of each file. Default: that of the target cluster.",
        kinds.SIZE,
    ),
    storage(
        "preserve", "Copy permission bits and modification times, where both storages have them."
    ),
)

PATHS = path(
    "paths",
    "How the _metadata of the replica names its files. auto: relative if Flink's default restore"
    " is safe with it, else absolute.",
    kinds.choice("auto", "relative", "absolute"),
    default="auto",
)
REMAP = path(
    "remap",
    "Read files recorded below FROM from TO: a renamed nameservice, `s3a=s3`, a mounted copy."
    " Repeatable.",
    kinds.REMAP,
    is_multiple=True,
    fills="remaps",
)
ALLOW_OLDER = basic(
    "allow-older",
    "Follow a job that was started from scratch and counts its checkpoints from 1 again: take the"
    " checkpoint that was completed last, and withdraw all with higher numbers, points in time"
    " included.",
)
ALLOW_OLDER_OF_EVERY_JOB = replace(ALLOW_OLDER, help="Set --allow-older of sync for every job.")
KEEP = (
    basic(
        "keep",
        "Keep the last N checkpoints, and those that another --keep option keeps; without"
        " any of them, those of the policy that the replica records, else the newest.",
        kinds.COUNT,
        fills="last",
    ),
    basic(
        "keep-within",
        "Keep all checkpoints completed within TIME of the newest one (not of now), such as 24h.",
        kinds.PERIOD,
        fills="within",
    ),
    basic(
        "keep-hourly",
        "For the last N hours that have a checkpoint, keep the last one of each. Hours are of UTC.",
        kinds.COUNT_OR_NONE,
        fills="hourly",
    ),
    basic(
        "keep-daily",
        "For the last N days that have a checkpoint, keep the last one of each. Days are of UTC.",
        kinds.COUNT_OR_NONE,
        fills="daily",
    ),
)
KEEP_LESS = basic(
    "keep-less",
    "Accept that the --keep options keep less than another run stated, whose policy the replica"
    " records: withdraw what it kept, and record the new policy.",
    is_general=False,  # one word for one run
)
KEEP_LESS_OF_EVERY_JOB = replace(KEEP_LESS, help="Set --keep-less of sync for every job.")
_PLAN_OF_JOB = (
    ALLOW_OLDER,
    basic(
        "same-source",
        "Accept SOURCE as another name of the replica's source: a renamed nameservice, a moved"
        " checkpoint directory.",
    ),
    basic(
        "adopt",
        "Accept a directory that holds other files. They are never changed or deleted. A file that"
        " the checkpoint needs is kept if its content equals the source's.",
    ),
    PATHS,
    REMAP,
    path(
        "source-root",
        "Read only below these roots, the job's own directory and the directories of --remap."
        " Default: the filesystem of SOURCE. Repeatable.",
        kinds.LOCATION,
        is_multiple=True,
        fills="source_roots",
    ),
    storage(
        "pack",
        "Write small files into packs, many files in one. auto: if Flink 2 wrote the checkpoint"
        " and at least 1,000 small files are to be copied. docs/packs.md names the versions of"
        " Flink that restore such a replica.",
        kinds.choice("off", "on", "auto"),
        default="off",
        fills="mode",
    ),
    storage(
        "pack-below",
        "Files smaller than SIZE go into packs.",
        kinds.SIZE,
        default="1MiB",
        fills="below",
    ),
)
PLAN = (*KEEP, KEEP_LESS, *_PLAN_OF_JOB)

LOCK_WAIT = limit(
    "lock-wait",
    "How long to wait for another run that holds the lease of the replica, such as 5m.",
    kinds.TIME,
    default="0s",
)
UNSAFE_LEASE = storage(
    "unsafe-lease",
    "Change the replica also on an object store that ignores conditional puts, where the lease does"
    " not keep two runs apart. For one run at a time only.",
)
READING_RUNNER = (  # of a command that takes no lease
    spark(
        "runner",
        "What copies, reads and deletes: Spark executors, or threads of this process (inline)."
        " auto: the one that is estimated to be faster, with the startup time of Spark.",
        kinds.choice("auto", "spark", "inline"),
        default="auto",
    ),
    spark(
        "master",
        "Spark master. Default: that of spark-submit or of the properties, else local[*] with four"
        " attempts per batch.",
        kinds.MASTER,
    ),
    spark("conf", "A property of Spark. Repeatable.", kinds.SPARK_PROPERTY, is_multiple=True),
    spark(
        "properties-file",
        "File of Spark properties, as for spark-submit. --conf overrides it.",
        kinds.FILE,
    ),
    spark(
        "parallelism",
        "Number of task slots to fill with batches (spark), or of files copied at the same time"
        " (inline). Default: the slots of the cluster, or a number that suits the storages.",
        kinds.COUNT,
    ),
    spark("batch-bytes", "Maximum size of a batch of several files. Default: 8GiB.", kinds.SIZE),
    spark("batch-files", "Maximum number of files in a batch. Default: 2000.", kinds.COUNT),
    spark(
        "streams",
        "Number of files that a task copies at the same time. Default: a number that suits the"
        " storages, 8 for large files.",
        kinds.COUNT,
    ),
    spark(
        "engine-timeout",
        "End with exit 7 once no executor of Spark has answered for TIME. Default: 60s, and 10m"
        " until the first executor has come. See docs/standalone.md.",
        kinds.PAUSE,
    ),
)
SPREAD = spark(
    "spread",
    "What the executors of --runner spark get. files: batches of files, while the driver plans and"
    " commits each job. jobs: whole small jobs, so that each executor plans and commits, too; large"
    " ones are spread by their files still.",
    kinds.choice("files", "jobs"),
    default="files",
)
RUNNER = (*READING_RUNNER, LOCK_WAIT)
CHANGE = (*RUNNER, UNSAFE_LEASE)

MAX_DELETE = limit(
    "max-delete",
    "Do nothing, and exit with 6, if more files would be deleted, or a larger share of the"
    " replica's files. A checkpoint that is withdrawn counts as a file.",
    kinds.CAP,
)
DELETES = (
    MAX_DELETE,
    basic(
        "async-deletes",
        "Return after the commit. Files that only the old checkpoint needed are deleted by `watch`"
        " between two checkpoints, or left to `sweep`.",
    ),
)
OF_JOB = basic(
    "job",
    "SOURCE is a savepoint of the job of this name, or whose id begins so, which has a replica in"
    " TARGET_ROOT: it becomes the newest point of that. Not needed where the directory of the"
    " savepoint has the beginning of an id that Flink drew at random.",
    kinds.TEXT,
    metavar="NAME|ID",
    fills="savepoint_job",
    is_general=False,  # of one savepoint
)
KAFKA_SOURCE = (
    storage(
        "kafka-source",
        "The Kafka that the job reads. The last record before each position is read there, and its"
        " time and digest are kept with the checkpoint: they prove positions at another Kafka; see"
        " docs/kafka.md. Needs the extra `kafka`.",
        kinds.LINE,
        metavar="HOST:PORT[,...]",
    ),
    storage(
        "kafka-source-conf",
        "Properties of librdkafka for --kafka-source, as of --kafka-conf.",
        kinds.FILE,
    ),
)
CHECK_CONTENT = basic(
    "check-content",
    "Read the files that are kept, and copy again those whose content differs from the recorded"
    " one.",
)
REPAIR = basic(
    "repair",
    "Copy again what is damaged or missing of SOURCE, a checkpoint that the replica keeps. Publish"
    " and withdraw no other one.",
)
OF_REPLICA = (*OF_TARGET, *ACCESS, *OUTPUT)  # of a command that has no SOURCE
REPLICATE = (*PLAN, *CONF, *ACCESS, ACTIONS, *OUTPUT)

REFS = basic("refs", "List every state handle instead of the summary.")
TO = output(
    "to",
    "With --refs: write the state handles to FILE, a table for pandas, DuckDB and Spark. Its name"
    " ends with .parquet or .arrow; docs/json.md has the columns.",
    kinds.TABLE_FILE,
)
STAT = basic(
    "stat",
    "Show the age of the oldest file, and how many are missing. Lists each directory with files.",
    fills="with_stat",
)
POSITIONS = basic(
    "positions",
    "List each position in Kafka, and each pending transaction and part file of a sink, also those"
    " in small files that the _metadata names.",
    fills="with_positions",
)
WITH_FILES = basic(
    "with-files",
    "List the part files that sinks need outside of the checkpoint instead, one a line with its"
    " bytes and whether it is there.",
)
EXIT_CODE = basic("exit-code", "Exit with 20 if there is anything to do.")
INTERVAL = basic("interval", "How often to look for a new checkpoint.", kinds.PAUSE, default="10s")
WAIT_FOR_SOURCE = basic(
    "wait-for-source",
    "Wait for the directory of the job if it does not exist yet, instead of exiting with 10.",
)
EVERY = basic(
    "every",
    "Run for ever, and try each job so often, such as 30s. SIGHUP: read CONFIG again.",
    kinds.PAUSE,
)

PROMOTED = basic(
    "checkpoint",
    "The checkpoint to promote. Default: the newest committed one.",
    kinds.TEXT,
    metavar="chk-N",
)
VERIFIED = replace(
    PROMOTED,
    help="The checkpoint to verify. Default: the newest committed one. Repeatable.",
    is_multiple=True,
)
ALL = basic("all", "Verify every committed checkpoint.", fills="every", is_general=False)
CONTENT = (
    basic("content", "Read every file and compare it with the CRC32C recorded when it was copied."),
    basic("sample", "Read and compare only a share of the files, such as 5%.", kinds.SHARE),
    basic(
        "seed", "Which files --sample reads: another seed selects others.", kinds.INTEGER, default=0
    ),
)
RECORD = basic(
    "record",
    "Write the result to .cpreplicate/verified.json of the replica, where `status` reads it. Needs"
    " the right to write there. Without this option nothing is written.",
)

# keys of a fleet's file that are no options of a command line
_JOB_NAME = basic("name", "The name of the job. Default: its id.", kinds.NAME)
SOURCE_OF_JOB = basic(
    "source",
    "The directory of the job; of a root, the directory above those of its jobs.",
    kinds.PLACE,
)
TARGET_OF_JOB = basic(
    "target",
    "A directory that only cpreplicate writes, in which the replica is.",
    kinds.PLACE,
    fills="target_root",
)
_PRIORITY = basic(
    "priority", "Jobs of a higher priority are replicated first.", kinds.INTEGER, default=0
)
_EXCLUDE = basic(
    "exclude",
    "Ids, or names of directories, of jobs below the root that are left out.",
    kinds.JOB_IDS,
)
_OF_EVERY_TABLE = (
    *(TARGET_OF_JOB, _PRIORITY, *KEEP, *_PLAN_OF_JOB, LOCK_WAIT, *DELETES, *KAFKA_SOURCE),
)
FLEET_TABLES = {
    "job": (_JOB_NAME, SOURCE_OF_JOB, *_OF_EVERY_TABLE),
    "root": (SOURCE_OF_JOB, _EXCLUDE, *_OF_EVERY_TABLE),
    "defaults": (_EXCLUDE, *_OF_EVERY_TABLE),
}
