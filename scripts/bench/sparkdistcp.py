"""CoxAutomotive's spark-distcp as a command: its jar from Maven Central, run by pyspark's own
Spark.
"""

from __future__ import annotations

from pathlib import Path

from scripts.bench import distcp
from tests.support.standalone import _spark

_JARS = distcp._PROJECT / "build" / "sparkdistcp"
_LOG4J = """rootLogger.level = warn
rootLogger.appenderRef.err.ref = err
appender.err.type = Console
appender.err.name = err
appender.err.target = SYSTEM_ERR
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = %p %c: %m%n%ex
"""


def build() -> None:
    """Have the jar, offline where Maven has it cached, else with the network."""
    goal = ("-f", "sparkdistcp-maven/pom.xml", "process-resources")
    try:
        distcp._run("mvn", "-q", "-B", "--offline", *goal)
    except RuntimeError:
        distcp._run("mvn", "-q", "-B", "-U", *goal)


def command(
    source: str, target: str, scratch: Path, conf: tuple[str, ...], words: tuple[str, ...] = ()
) -> list[str]:
    """`SparkDistCP --update SOURCE TARGET` with these properties of Spark.

    The target must be there.
    """
    logging = scratch / "log4j2.properties"
    logging.write_text(_LOG4J)
    (jar,), (parser,) = _JARS.glob("spark-distcp*.jar"), _JARS.glob("scopt*.jar")
    java = f"spark.driver.extraJavaOptions=-Dlog4j2.configurationFile={logging.as_uri()}"
    given = [
        word
        for setting in (java, "spark.hadoop.dfs.replication=1", *conf)
        for word in ("--conf", setting)
    ]
    submit = [str(_spark() / "bin" / "spark-submit"), "--class", "com.coxautodata.SparkDistCP"]
    return [*submit, *given, "--jars", str(parser), str(jar), "--update", *words, source, target]
