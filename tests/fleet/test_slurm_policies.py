"""The engine ``slurm`` on a cluster with partitions: one takes nodes from another, one is closed, one is down."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_cluster import Cluster, SlurmFleet, texts, verdicts

pytestmark = pytest.mark.starts

EXTRA = "PreemptType=preempt/partition_prio\nPreemptMode=CANCEL"
PARTITIONS = """\
PartitionName=urgent Nodes=n[1-4] PriorityTier=9 State=UP
PartitionName=short Nodes=n[1-3] Default=YES MaxTime=5 State=UP
PartitionName=closed Nodes=n5 AllowGroups=no-such-group DisableRootJobs=YES State=UP
PartitionName=off Nodes=n6 State=DOWN
"""


@pytest.fixture(scope="module")
def started() -> Iterator[Cluster]:
    cluster = Cluster(6, EXTRA, partitions=PARTITIONS, with_one_gpu=("n3", "n4"))
    yield cluster
    cluster.close()


@pytest.fixture
def cluster(started: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    started.enter(monkeypatch)
    yield started
    started.mend()


@pytest.fixture
def fleet(tmp_path: Path) -> SlurmFleet:
    return SlurmFleet(tmp_path)


@pytest.mark.usefixtures("cluster")
def test_each_node_is_asked_for_in_a_partition_that_has_it_and_with_the_gpus_that_it_has(fleet: SlurmFleet) -> None:
    fleet.write(f'echo "$SLURMD_NODENAME $SLURM_JOB_PARTITION $CUDA_VISIBLE_DEVICES" >> {fleet.folder}/seen')
    report = fleet()
    assert verdicts(report) == {
        **dict.fromkeys(("n1", "n2", "n3", "n4"), "PASS"),
        "n5": "refused",
        "n6": "not usable",
    }
    assert re.search("Invalid user id|not permitted to use this partition", texts(report)["n5"])
    assert texts(report)["n6"] == "partition off is down"
    seen = sorted((fleet.folder / "seen").read_text().splitlines())
    assert seen == ["n1 short 0,1", "n2 short 0,1", "n3 short 0", "n4 urgent 0"]


@pytest.mark.usefixtures("cluster")
def test_a_node_outside_the_partition_of_the_user_says_where_it_is(fleet: SlurmFleet) -> None:
    report = fleet("n3 n4", "--partition", "short")
    assert verdicts(report) == {"n3": "PASS", "n4": "not usable"}
    assert texts(report)["n4"] == "is not in partition short, but in urgent"


def test_a_node_that_a_more_urgent_job_takes_is_lost_and_the_others_are_asked_again(
    cluster: Cluster, fleet: SlurmFleet
) -> None:
    fleet.write(f"touch {fleet.folder}/$SLURMD_NODENAME; until [ -e {fleet.folder}/go ]; do sleep 0.1; done")
    begun = [fleet.folder / "n1", fleet.folder / "n2"]
    over = threading.Event()

    def preempt() -> None:
        cluster.wait(lambda: all(file.exists() for file in begun), "the check does not begin")
        with cluster.job("-p", "urgent", "-w", "n1", "--exclusive"):
            (fleet.folder / "go").touch()
            over.wait(60)

    thread = threading.Thread(target=preempt)
    thread.start()
    report = fleet("n[1-2]")
    over.set()
    thread.join()
    assert verdicts(report) == {"n1": "lost", "n2": "PASS"}
    assert "DUE TO PREEMPTION" in texts(report)["n1"]


@pytest.mark.usefixtures("cluster")
def test_what_slurm_refuses_is_said_in_its_words(fleet: SlurmFleet) -> None:
    report = fleet("n[1-2]", "--constraint=no-such-feature")
    assert verdicts(report) == {"n1": "not usable", "n2": "not usable"}
    assert "Invalid feature specification" in texts(report)["n1"]
