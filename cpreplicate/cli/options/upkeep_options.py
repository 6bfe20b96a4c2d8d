"""The options of the commands that maintain replicas and hand them over."""

from __future__ import annotations

from dataclasses import replace

from cpreplicate.cli.options import kinds
from cpreplicate.cli.options.option import Option, basic, limit, path, service, storage
from cpreplicate.cli.options.options import MAX_DELETE, PATHS, PROMOTED

SELECTED_JOB = basic(
    "job",
    "The replica of the job of this name below REPLICA, which is then the TARGET_ROOT: of several,"
    " the one with the newest checkpoint. Or the one whose id begins so.",
    kinds.TEXT,
    metavar="NAME|ID",
)
LISTED_JOB = replace(
    SELECTED_JOB,
    help="The replicas of the job of this name, the one with the newest checkpoint first, or the"
    " one whose id begins so.",
)
MAX_SWEPT = replace(
    MAX_DELETE,
    default="50%",
    help="Do nothing, and exit with 6, if there are more orphans, or if they are a larger share of"
    " the files.",
)
MAX_FORGOTTEN = replace(
    MAX_DELETE,
    help="Do nothing, and exit with 6, if more files would be removed, of all replicas together, or"
    " a larger share of those that they and the replicas which stay have. Of one replica, any share"
    " is all.",
)
AS_OF = basic(
    "as-of",
    "Promote the newest checkpoint completed by TIME: 2026-11-24T03:00Z, UTC without a zone.",
    kinds.INSTANT,
)
INCLUDE = basic(
    "include",
    "With --all, only jobs whose names match, such as 'orders-*', or of this id. Repeatable.",
    kinds.LINE,
    metavar="PATTERN",
    is_multiple=True,
)
YES = basic("yes", "With --all, do not ask before replicas are changed.")
GOING_BACK = basic(
    "go-back",
    "Promote a replica though its source answers and holds no checkpoint any more: its job ended,"
    " or was stopped with a savepoint, and may have gone further.",
    fills="allow_older",
    is_general=False,  # one word for one promotion
)
PROMOTE_ALL = (
    basic(
        "all",
        "Promote the replica of every job below TARGET_ROOT, or of a file of `fleet`.",
        fills="every",
        is_general=False,
    ),
    INCLUDE,
    limit(
        "max-lag",
        "Refuse a replica whose source is ahead by more (exit 21). If the source does not answer,"
        " also one replica whose checkpoint is older; with --all, list first what is older than the"
        " newest of all replicas by more.",
        kinds.TIME,
    ),
    basic(
        "skip-lagging",
        "With --all, also leave the replicas as they are whose source does not answer, and that are"
        " older than the newest checkpoint of all replicas by more than --max-lag.",
    ),
    YES,
)


def jobmanagers(command: str, text: str) -> tuple[Option, ...]:
    """Return the options of the JobManagers that a command asks, with what it asks them."""
    return (
        service("flink", f"{text} Repeatable.", kinds.TEXT, metavar="URL", is_multiple=True),
        service(
            "header",
            "HTTP header for --flink, such as 'Authorization: Bearer …'. Repeatable. Set"
            f" CPREPLICATE_{command.upper()}_HEADER to keep it out of the list of processes.",
            kinds.LINE,
            metavar="NAME:VALUE",
            is_multiple=True,
        ),
        service(
            "client-certificate",
            "PEM file with the certificate and the key for the REST APIs.",
            kinds.FILE,
        ),
        service(
            "certificate-authority",
            "PEM file with the certificates that those of the REST APIs are checked with.",
            kinds.FILE,
        ),
    )


ASKED_FLINK = jobmanagers(
    "promote",
    "If a source holds no checkpoint any more, ask this JobManager for the savepoint with which its"
    " job was stopped.",
)
UNSEAL_ALL = (
    basic(
        "all",
        "Unseal every replica below TARGET_ROOT, or of a file of `fleet`, in which no job has"
        " completed a checkpoint. Needs --sealed-after and --no-job-uses-it.",
        fills="every",
        is_general=False,
    ),
    INCLUDE,
    basic(
        "sealed-after",
        "With --all, only the replicas that were sealed since TIME: 2026-11-24T03:00Z, UTC without"
        " a zone. From those sealed before, jobs may run.",
        kinds.INSTANT,
    ),
    YES,
)

SWEEP = (
    basic("trash", "Move orphans to .cpreplicate/trash/ instead."),
    basic("empty-trash", "Delete what has been in the trash for longer than --min-age."),
    limit(
        "min-age",
        "Leave files that were modified within this time: another run may have written them.",
        kinds.PERIOD,
        default="24h",
    ),
    MAX_SWEPT,
)
RELOCATE = (
    basic(
        "unpack",
        "Write the members of all packs as files of their own, then delete the packs. Needed for"
        " Flink 1.19 and older; see docs/packs.md.",
    ),
    PATHS,
    path("root", "Where Flink will find the replica. Default: REPLICA.", kinds.LOCATION),
    path(
        "moved-from",
        "Where the replica was before. Default: derived from its paths.",
        kinds.LOCATION,
    ),
)
UNSEAL = (
    replace(SELECTED_JOB, name="replica-of"),
    basic(
        "job",
        "The checkpoint directory of the job that was started from the replica. The seal stays"
        " (exit 6) while a checkpoint there references the replica, or none has completed since the"
        " promotion. Where a job has a fixed id, a checkpoint of an earlier run counts, too: give"
        " --job only after the job has completed a checkpoint since it was started from the"
        " replica.",
        kinds.JOB_DIRECTORY,
    ),
    basic("no-job-uses-it", "Instead of --job: you know that no job needs the replica's files."),
)
FORGET = (
    replace(
        LISTED_JOB,
        help="The replicas of the job of this name below REPLICA, which is then the TARGET_ROOT:"
        " those of its earlier lives are removed. Or the one whose id begins so.",
    ),
    basic(
        "all",
        "Every replica below REPLICA, which is then the TARGET_ROOT. Needs --ended or"
        " --older-than.",
        fills="every",
        is_general=False,
    ),
    basic(
        "ended",
        "Only replicas whose job has ended: its source answers, and has completed no checkpoint"
        " since a later life of the job began.",
    ),
    basic(
        "older-than",
        "Only replicas whose newest checkpoint was completed before that, such as 30d.",
        kinds.PERIOD,
    ),
    basic(
        "last-point",
        "Also if no later life of the job has a point to go back to. For one replica only.",
    ),
    basic(
        "leave-others",
        "Remove what is cpreplicate's also where there are other files, and leave these. Without"
        " it, nothing of such a replica is removed.",
        fills="leaves_others",
    ),
    MAX_FORGOTTEN,
    basic("yes", "Do not ask before replicas are removed."),
    *jobmanagers("forget", "Refuse a replica from which a job of this JobManager was restored."),
)


def kafka_to(text: str) -> tuple[Option, ...]:
    """Return the options of a Kafka, with what a command asks it."""
    return (
        storage("kafka", text, kinds.LINE, metavar="HOST:PORT[,...]"),
        storage(
            "kafka-conf",
            "Properties of librdkafka for --kafka, such as security.protocol, one `key=value` a"
            " line.",
            kinds.FILE,
        ),
    )


SAME_KAFKA = storage(
    "same-kafka",
    "--kafka is the Kafka that the job read from and wrote to: it knows pending transactions.",
)
NOT_READ = storage(
    "not-read",
    "Take the state of an operator, by id or name, as it is: it cannot be read, or its part files"
    " are elsewhere. Repeatable.",
    kinds.LINE,
    metavar="OPERATOR",
    is_multiple=True,
)
CHECKED_KAFKA = (
    *kafka_to(
        "Promote the newest checkpoint from which a job can go on at this Kafka: its positions"
        " exist there, and no transaction is pending. Else exit with 6. Needs the extra `kafka`."
    ),
    SAME_KAFKA,
    NOT_READ,
)
LOOKED_FOR_FILES = basic(
    "with-files",
    "Look for the part files that sinks need outside of the checkpoint, where its state names them."
    " Exit with 6 if one is missing.",
)
DIAGNOSED_KAFKA = (
    *kafka_to(
        "Also check whether a job could go on from the newest checkpoint of SOURCE at this Kafka."
        " Needs the extra `kafka`."
    ),
    SAME_KAFKA,
)
TRAILING_KAFKA = kafka_to(
    "Show by how many records the topics of this Kafka trail each replica. Reads the newest"
    " _metadata of each. Needs the extra `kafka`."
)
REBASE = (
    SELECTED_JOB,
    replace(PROMOTED, help="The checkpoint to derive from. Default: the newest committed one."),
    basic(
        "name",
        "The derived checkpoint is rebased/NAME in the replica. Default: that of the checkpoint,"
        " with a number.",
        kinds.TEXT,
        metavar="NAME",
    ),
    basic(
        "positions",
        "New offsets: from a CSV file with topic,partition,offset; those of the same records at"
        " --kafka, fingerprint, if `sync --kafka-source` kept what proves them; from what"
        " MirrorMaker 2 recorded there of the source with this alias, mm2:ALIAS; from what a"
        " consumer group committed there, group:NAME; or the nearest offset that exists there,"
        " clamp. Topics are named as there.",
        kinds.LINE,
        metavar="FILE|fingerprint|mm2:ALIAS|group:NAME|clamp",
    ),
    basic(
        "rename-topic",
        "Rename a topic, such as orders=A.orders on a mirror. Repeatable.",
        kinds.RENAMES,
        is_multiple=True,
        fills="topics",
    ),
    basic(
        "servers",
        "New bootstrap servers of a cluster of a DynamicKafkaSource, by its id. Repeatable.",
        kinds.RENAMES,
        metavar="CLUSTER=HOST:PORT[,...]",
        is_multiple=True,
    ),
    basic(
        "drop-pending",
        "Leave out the pending transactions of sinks, which another Kafka does not know, and the"
        " part files of sinks. Their output may then never have been committed, and what is in part"
        " files in progress is missing.",
        fills="drops_pending",
    ),
    NOT_READ,
    basic(
        "forget",
        "Remove the derived checkpoint rebased/NAME instead, and the files that only it needs.",
        kinds.TEXT,
        metavar="NAME",
    ),
    *kafka_to("The Kafka at which the job will start. Needs the extra `kafka`."),
)

STATUS = (
    basic(
        "source",
        "Where the jobs are: the directory of a job, or a root of such. Jobs there without a"
        " replica are shown, too. Default: the source that each replica recorded. Repeatable.",
        kinds.TEXT,
        metavar="ROOT_OR_JOB",
        is_multiple=True,
    ),
    basic(
        "max-lag",
        "Exit with 21 if a replica lags more, such as 15m, or if a job with a completed checkpoint"
        " has no replica.",
        kinds.TIME,
    ),
    basic(
        "shard",
        "Only the replicas of jobs in this part, as services with --shard divide them.",
        kinds.SHARD,
        default="1/1",
    ),
    basic(
        "orphans",
        "Count the orphans and their bytes, and those of all files. Lists every directory of each"
        " replica, and reads its _metadata and its manifests.",
    ),
)
