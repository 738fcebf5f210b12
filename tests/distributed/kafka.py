"""Real Kafka brokers on loopback: started from pinned jars, killed and started again by the tests."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.certificates import Certified
from tests.ports import free_port
from tests.waiting import SOON, wait_until

HERE = Path(__file__).parent
CHECKOUT = HERE.parent.parent
JARS = CHECKOUT / "build" / "kafka-jars"
HASHES = HERE / "kafka.sha256"
START_SECONDS = 240.0
PROPERTIES = """\
process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
log.dirs={folder}/data
auto.create.topics.enable=false
unclean.leader.election.enable=false
default.replication.factor={replicas}
min.insync.replicas={in_sync}
offsets.topic.replication.factor={replicas}
offsets.topic.num.partitions=3
transaction.state.log.replication.factor={replicas}
transaction.state.log.min.isr={in_sync}
transaction.state.log.num.partitions=3
share.coordinator.state.topic.replication.factor={replicas}
share.coordinator.state.topic.min.isr={in_sync}
group.initial.rebalance.delay.ms=0
group.consumer.min.session.timeout.ms=1000
group.min.session.timeout.ms=1000
broker.session.timeout.ms=6000
broker.heartbeat.interval.ms=1000
log.cleaner.dedupe.buffer.size=2097152
num.network.threads=2
num.io.threads=2
"""


class Missing(Exception):
    """The reason why brokers cannot run here."""


GUARDED = """\
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller},GUARDED://127.0.0.1:{guarded}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},GUARDED://127.0.0.1:{guarded}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,GUARDED:SASL_SSL
ssl.keystore.type=PEM
ssl.keystore.location={folder}/keystore.pem
sasl.enabled.mechanisms=PLAIN
listener.name.guarded.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
    user_hall="{password}";
"""
"""A further listener, with TLS and passwords. Of two lines for one setting the later one counts."""


@contextmanager
def running_brokers(nodes: int = 1, tls: tuple[Certified, str] | None = None) -> Iterator[Brokers]:
    """Yield brokers that run in a folder of their own; where none can run, the tests that ask for them are skipped."""
    with tempfile.TemporaryDirectory(prefix="kd-kafka-", dir="/tmp") as folder:
        try:
            brokers = Brokers(Path(folder), nodes, tls)
        except Missing as missing:
            pytest.skip(f"no Kafka: {missing}")
        try:
            brokers.start()
            yield brokers
        finally:
            brokers.stop()


def jars() -> Path:
    """Return the folder of the broker's jars, after checking their digests."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise Missing(f"no {program} here")
    JARS.parent.mkdir(exist_ok=True)
    with open(JARS.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _differs(JARS):
            shutil.rmtree(JARS, ignore_errors=True)
            _fetch(JARS)
            if why := _differs(JARS):
                raise AssertionError(f"the jars are not those of {HASHES.name}: {why}")
    return JARS


def _fetch(folder: Path) -> None:
    copy = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
    command = ["mvn", "-B", "-q", "-C", "-f", str(HERE / "pom.xml"), copy]
    command += ["-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
    for _ in range(3):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=400)
        if done.returncode == 0:
            return
    raise Missing(f"Maven could not fetch the broker: {done.stdout[-300:]}")


def _differs(folder: Path) -> str:
    wanted = dict(reversed(line.split()) for line in HASHES.read_text().splitlines())
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.jar")}
    return ", ".join(sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name)))


class Brokers:
    """A cluster of nodes, each both broker and controller."""

    def __init__(self, folder: Path, nodes: int = 1, tls: tuple[Certified, str] | None = None) -> None:
        """With `tls`, brokers listen for the user hall, too, with this certificate and password."""
        self._jars = jars()
        self._tls = tls
        self._folder = folder
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        ports = [free_port() for _ in range(3 * nodes)]
        self._ports, self._controllers, self._guarded = ports[:nodes], ports[nodes : 2 * nodes], ports[2 * nodes :]
        self._format()

    @property
    def servers(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._ports)

    @property
    def guarded_servers(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._guarded)

    def start(self, *nodes: int) -> None:
        """Start these nodes, or all, and wait until they answer."""
        for node in nodes or range(len(self._ports)):
            with open(self._of(node) / "out.log", "ab") as log:
                self._processes[node] = subprocess.Popen(
                    [*self._java("192m"), "kafka.Kafka", str(self._of(node) / "server.properties")],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=self._environment(),
                    start_new_session=True,
                )
        wait_until(self._answer, START_SECONDS, "the brokers answer")

    @contextmanager
    def stopped(self, node: int = 0) -> Iterator[None]:
        """Hold a node still. The signal reaches one of its threads, and the others answer on until that one has run."""
        process = self._processes[node]
        process.send_signal(signal.SIGSTOP)
        try:
            threads = Path(f"/proc/{process.pid}/task")
            wait_until(lambda: all(map(_is_stopped, threads.iterdir())), SOON, "every thread stopped")
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    def kill(self, node: int = 0) -> None:
        process = self._processes.pop(node)
        process.kill()
        process.wait()

    def stop(self) -> None:
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()
        self._processes.clear()

    def _format(self) -> None:
        voters = ",".join(f"{node + 1}@127.0.0.1:{port}" for node, port in enumerate(self._controllers))
        cluster = _cluster_id()
        replicas = len(self._ports)
        for node, (port, controller) in enumerate(zip(self._ports, self._controllers, strict=True)):
            folder = self._of(node)
            folder.mkdir(parents=True)
            properties = folder / "server.properties"
            properties.write_text(
                PROPERTIES.format(
                    node=node + 1,
                    voters=voters,
                    port=port,
                    controller=controller,
                    folder=folder,
                    replicas=replicas,
                    in_sync=max(1, replicas - 1),
                )
            )
            if self._tls is not None:
                made, password = self._tls
                key = subprocess.run(
                    ["openssl", "pkcs8", "-topk8", "-nocrypt", "-in", made.key], check=True, capture_output=True
                )
                (folder / "keystore.pem").write_bytes(key.stdout + made.certificate.read_bytes())
                more = {"port": port, "controller": controller, "guarded": self._guarded[node], "folder": folder}
                with properties.open("a") as file:
                    file.write(GUARDED.format(password=password, **more))
            command = [*self._java("128m"), "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties)]
            subprocess.run(command, env=self._environment(), check=True, capture_output=True)

    def _answer(self) -> bool:
        for node, process in self._processes.items():
            if process.poll() is not None:
                raise AssertionError(f"broker {node} ended: {(self._of(node) / 'out.log').read_text()[-1500:]}")
        try:
            client = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
            return len(client.list_topics(timeout=1).brokers) >= len(self._processes)
        except KafkaException:
            return False

    def _of(self, node: int) -> Path:
        return self._folder / f"node-{node + 1}"

    def _java(self, heap: str) -> list[str]:
        quick = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true"]
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        return ["java", f"-Xms{heap}", f"-Xmx{heap}", *quick, quiet, "-cp", f"{self._jars}/*"]

    def _environment(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": str(self._folder), "LANG": "C.UTF-8"}


def _is_stopped(thread: Path) -> bool:
    try:
        return (thread / "stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:  # it has ended meanwhile
        return True


def _cluster_id() -> str:
    """Return a random ID that does not begin with a dash, which would be read as an option."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text
