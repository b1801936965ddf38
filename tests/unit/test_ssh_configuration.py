"""Tests cluster.yaml: valid contents, and errors with line and key."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from threads_cluster import errors
from threads_cluster.ssh import configuration, probe
from threads_cluster.ssh.configuration import ClusterConfig, HealthCheck, Node

ROOT = Path(__file__).resolve().parents[2]
#: The example in the specification.
GRID = """\
nodes: [gpu1, gpu2]
remote_root: ~/grid_workspace
ssh: {timeout: 10, pool_size: 10, key_file}
health_check: {max_workers: 20, timeout: 3, cpu_weight: 1.0, gpu_weight: 3.0, refresh_interval: 0}
sync: {exclude_patterns: [.git, __pycache__, .env, node_modules]}
"""


def read(folder: Path, text: str | bytes) -> ClusterConfig:
    path = folder / "cluster.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return ClusterConfig.from_yaml(path)


def test_the_specifications_example_is_read_and_is_what_holds_without_it(tmp_path: Path) -> None:
    assert read(tmp_path, GRID) == read(tmp_path, "nodes: [gpu1, gpu2]")
    assert [node.name for node in read(tmp_path, GRID).nodes] == ["gpu1", "gpu2"]


def test_a_node_says_how_it_is_reached(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        "nodes:\n"
        "  - {host: 'fd00::7', name: attic, user: me, port: 2222, labels: [a100, big], gpu: yes, workers: 0,\n"
        "     proxy_command: ssh -W %h:%p door, remote_root: /data/work}\n"
        "  - no\n",
    )
    attic, no = config.nodes
    assert (attic.name, attic.user, attic.port, attic.labels) == ("attic", "me", 2222, ("a100", "big"))
    assert (attic.gpu, attic.workers, attic.proxy_command) == (True, 0, "ssh -W %h:%p door")
    assert (config.root(attic), config.root(no)) == ("/data/work", "~/grid_workspace")
    assert no == Node(host="no", name="no"), "words are words: YAML's no is a host here"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "nodes: [gpu1, gpu2]"),
        ("- gpu1\n", 1, "must be a mapping"),
        ("remote_root: ~/x\n", 1, "nodes: field required"),
        ("nodes: []\n", 1, "nodes: "),
        ("nodes: [a]\nremote_root: ~/x\nssh:\n  timeout: soon\n", 4, "ssh.timeout: input should be a valid number"),
        ("nodes: [a]\nssh:\n  timeout: 0\n", 3, "ssh.timeout: input should be greater than 0; got '0'"),
        ("nodes: [a]\nssh: {timeout: nan}\n", 2, "ssh.timeout"),
        ("nodes: [a]\nhealth_check: {gpu_weight: inf}\n", 2, "health_check.gpu_weight"),
        ("nodes: [a]\nssh:\n  tiemout: 3\n", 3, "ssh.tiemout: unknown key; the keys are timeout, pool_size"),
        ("nodes: [a]\nhosts: [b]\n", 2, "hosts: unknown key; the keys are nodes, remote_root"),
        ("nodes:\n  - a\n  - {host: b, prot: 22}\n", 3, "nodes[1].prot: unknown key; the keys are host, name"),
        ("nodes:\n  - a\n  - host: b\n    port: 70000\n", 4, "nodes[1].port: input should be less than or equal"),
        ("nodes:\n  - -oProxyCommand=id\n", 2, "nodes[0].host: invalid value '-oProxyCommand=id'"),
        ("nodes:\n  - {host: a, name: '-v'}\n", 2, "nodes[0].name: invalid value '-v'"),
        ("nodes:\n  - {host: a, user: '-v'}\n", 2, "nodes[0].user: invalid value '-v'"),
        ('nodes:\n  - "a\\nb"\n', 2, "nodes[0].host"),
        ("nodes: [a]\nremote_root: work\n", 2, "remote_root: invalid value 'work'; a folder must start with / or ~/"),
        ("nodes:\n  - a\n  - b\n  - a\n", 4, "nodes[2]: another node has the name a"),
        ("nodes: [a]\nnodes: [b]\n", 2, "duplicate key 'nodes'"),
        ("nodes: [a]\nssh: &x {timeout: 3}\n", 2, "anchors and aliases (&x, *x) are not allowed"),
        ("nodes: *x\n", 1, "anchors and aliases (&x, *x) are not allowed"),
        ("nodes: !!python/object/apply:os.system [id]\n", 1, "is not allowed"),
        ("nodes: [a]\n--- \nnodes: [b]\n", 2, "a second document starts"),
        ("nodes: [a\n", 2, "expected"),
        ("nodes: [a]\n\tx: 1\n", 2, "cannot start any token"),
        ("? [a]\n: 1\n", 1, "a key must be a string"),
        (f"nodes: {'[' * 9}{']' * 9}\n", 1, "nested more than 8 levels deep"),
        (f"nodes: {'[' * 100_000}\n", 1, "nested more than 8 levels deep"),
        (b"nodes: [a]\nssh: \xff\n", 2, "the text is not UTF-8"),
        (b"nodes: [a]\x00\x01\n", 1, "control characters are not allowed"),
        ("nodes: [a]\n#" + "x" * (10 << 20), 1, "the text has over 262144 bytes"),
        ("nodes:\n" + "- a\n" * 1001, 1, "nodes: tuple should have at most 1000 items"),
    ],
)
def test_what_is_wrong_is_told_by_line_and_key(tmp_path: Path, text: str | bytes, line: int, words: str) -> None:
    with pytest.raises(errors.BadArgument) as refused:
        read(tmp_path, text)
    assert str(refused.value).startswith(f"{tmp_path}/cluster.yaml:{line}: "), refused.value
    assert words in str(refused.value) and len(str(refused.value)) < 700


def test_an_alias_bomb_takes_no_time(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    began = time.process_time()
    with pytest.raises(errors.BadArgument, match="are not allowed"):
        read(tmp_path, "\n".join(lines))
    assert time.process_time() - began < 1


def test_a_file_that_is_not_there_is_said_to_be_so(tmp_path: Path) -> None:
    with pytest.raises(errors.BadArgument, match="cannot be read: No such file"):
        ClusterConfig.from_yaml(tmp_path / "cluster.yaml")
    with pytest.raises(errors.BadArgument, match="cannot be read"):
        ClusterConfig.from_yaml(tmp_path)


def test_an_unknown_node_names_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(errors.BadArgument, match=r"no node of cluster\.yaml has the name c; the nodes are a, b"):
        read(tmp_path, "nodes: [a, b]").node("c")


def test_the_largest_file_is_read_in_little_time(tmp_path: Path) -> None:
    text = "nodes:\n" + "".join(f"  - {{host: h{number}, port: 22}}\n" for number in range(1000))
    text += "#" * (configuration.MAX_BYTES - len(text))
    began = time.process_time()
    assert len(read(tmp_path, text).nodes) == 1000
    assert time.process_time() - began < 5


def test_without_its_packages_hosts_of_the_cluster_are_known_and_others_refused(
    tmp_path: Path,
) -> None:
    program = (
        "import sys; sys.modules['asyncssh'] = sys.modules['yaml'] = None\n"
        "from threads_cluster.ssh import hosts\n"
        "row = {'host': 'attic', 'live': True, 'load1': 1.0, 'cpus': 2}\n"
        "print(hosts.best(lambda: [row], None))\n"
        "open('cluster.yaml', 'w').write('nodes: [a]')\n"
        "try: hosts.configuration(None)\n"
        "except Exception as error: print(error.exit_code, error, error.next)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    first, second = done.stdout.splitlines()
    assert first == "attic", done.stderr
    assert second.startswith("2 SSH needs the package asyncssh, which is not installed ")
    assert second.endswith("-m pip install --require-hashes -r " + str(ROOT / "requirements/ssh.txt"))


@pytest.mark.parametrize(
    ("load1", "cpus", "gpus", "score", "trouble"),
    [
        (2.0, 8, (), 25.0, ""),
        (2.0, 8, (0.0, 50.0), 100.0, ""),
        (16.0, 8, (), 200.0, ""),
        (16.01, 8, (), 200.125, "load 16.01 on 8 cpus"),
        (0.0, 8, (95.0, 100.0), 292.5, "every GPU is at 95 % or more"),
        (0.0, 8, (94.9, 100.0), 292.35, ""),
    ],
)
def test_score_and_verdict(load1: float, cpus: int, gpus: tuple[float, ...], score: float, trouble: str) -> None:
    assert probe.score(load1, cpus, gpus, HealthCheck()) == pytest.approx(score)
    assert probe.find_trouble(load1, cpus, gpus) == trouble
