"""What provokes the probe host.collectives."""

from __future__ import annotations

from corpus.containers import machine
from provocations import AlteredFacts, OnMachine

PROBE = "host.collectives"
CLUSTER = '{"cluster": {"worker": ["a.example:2222", "b.example:2222"]}, "task": {"type": "worker", "index": 1}}'

PROVOCATIONS: tuple[OnMachine | AlteredFacts, ...] = (
    AlteredFacts(PROBE, "small_shm", {"container.runtime": "docker", "container.shm_bytes": 64 << 20}),
    AlteredFacts(
        PROBE, "low_memlock", {"container.infiniband": ["/dev/infiniband/uverbs0"], "container.memlock_bytes": 65536}
    ),
    OnMachine(PROBE, "iommu_translates", machine('"/sys/class/iommu/dmar0/uevent" = ""', gpus=2)),
    OnMachine(
        PROBE,
        "no_interface",
        machine('"/sys/class/net/eth0/uevent" = ""', gpus=2),
        variables={"NCCL_SOCKET_IFNAME": "ib0"},
    ),
    OnMachine(PROBE, "other_workers", variables={"TF_CONFIG": CLUSTER}),
)
