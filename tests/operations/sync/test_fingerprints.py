"""The Kafka of one job does not hold up the others."""

from cpreplicate.operations.sync.fingerprints import PAUSE, Fingerprinting, Silence
from cpreplicate.operations.sync.request import SyncRequest
from cpreplicate.operations.sync.source.state import read_source
from tests.support.jobs import write_checkpoint
from tests.support.ports import free_port


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def test_a_kafka_that_did_not_answer_is_not_asked_for_a_while_and_others_are():
    clock = Clock()
    silence = Silence(clock)
    silence.begin("a:9092")
    assert silence.has("a:9092")
    assert not silence.has("b:9092")
    clock.now += PAUSE
    assert not silence.has("a:9092")


def test_a_sync_does_not_wait_for_a_kafka_that_did_not_answer_before(tmp_path):
    """Nothing is asked: the result is a warning, and `keep` needs no replica."""
    servers = f"127.0.0.1:{free_port()}"
    checkpoint = write_checkpoint(tmp_path / "dcA", 1, {"shared/a": 100})
    request = SyncRequest(f"file:{checkpoint}", f"file:{tmp_path}/dcB", kafka_source=servers)
    silence = Silence()
    silence.begin(servers)
    found = Fingerprinting(read_source(request), silence).keep(None)
    assert found.warnings == (
        "no fingerprint was kept with the checkpoint: the Kafka did not answer before, and is asked"
        " again after 60 s",
    )
    assert found.lacking is None
