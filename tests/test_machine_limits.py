import math
import resource
from pathlib import Path

from hetsched.machine_limits import (
    PROCESS_BYTES,
    ControlGroups,
    machine_memory,
    raise_descriptor_limit,
)


def group(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def groups(tmp_path: Path, membership: str) -> ControlGroups:
    (tmp_path / "cgroup").write_text(membership)
    return ControlGroups(tmp_path / "cgroup", tmp_path / "sys")


def test_the_smallest_quota_of_all_groups_above_counts(tmp_path: Path) -> None:
    group(tmp_path / "sys/a", cpu__max="250000 100000")
    group(tmp_path / "sys/a/b", cpu__max="max 100000")
    assert groups(tmp_path, "0::/a/b\n").cores() == 2.5

    group(tmp_path / "sys/cpu,cpuacct/a", cpu__cfs_quota_us="50000", cpu__cfs_period_us="100000")
    version_1 = groups(tmp_path, "3:cpuset:/a\n4:cpu,cpuacct:/a\n")
    assert version_1.cores() == 0.5


def test_a_group_may_have_any_name(tmp_path: Path) -> None:
    name = "\x85 \u2028\udcff"
    group(tmp_path / "sys" / name, cpu__max="50000 100000")
    (tmp_path / "cgroup").write_bytes(f"0::/{name}\n".encode("utf-8", "surrogateescape"))
    assert ControlGroups(tmp_path / "cgroup", tmp_path / "sys").cores() == 0.5


def test_no_quota_is_infinite(tmp_path: Path) -> None:
    for text in ("max 100000", "-1", "", "nonsense"):
        group(tmp_path / "sys", cpu__max=text)
        assert groups(tmp_path, "0::/\n").cores() == math.inf


def test_the_smallest_memory_of_all_groups_above_counts(tmp_path: Path) -> None:
    group(
        tmp_path / "sys/a", memory__max="1073741824", memory__stat="anon 4096\nfile 9\nshmem 96\n"
    )
    group(tmp_path / "sys/a/b", memory__max="max")

    own = groups(tmp_path, "0::/a/b\n")
    assert own.memory_limit() == 1 << 30
    assert machine_memory(own) == (1 << 30) - 4192 - PROCESS_BYTES


def test_version_1_groups_limit_memory_too(tmp_path: Path) -> None:
    stat = "rss 1\nshmem 1\ntotal_rss 4000\ntotal_shmem 96\ntotal_cache 99999\n"
    group(tmp_path / "sys/memory", memory__limit_in_bytes="9223372036854771712")
    group(tmp_path / "sys/memory/a", memory__limit_in_bytes="1073741824", memory__stat=stat)

    assert (
        machine_memory(groups(tmp_path, "4:memory:/a\n0::/\n")) == (1 << 30) - 4096 - PROCESS_BYTES
    )


def test_in_a_container_only_its_own_group_is_mounted(tmp_path: Path) -> None:
    group(tmp_path / "sys", memory__max="1073741824")

    assert machine_memory(groups(tmp_path, "0::/docker/abc\n")) == (1 << 30) - PROCESS_BYTES


def test_without_control_groups_it_is_the_machines(tmp_path: Path) -> None:
    assert machine_memory(groups(tmp_path, "")) > 1 << 20


def test_descriptors_are_raised_to_what_is_allowed() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(200, before[1]), before[1]))
    raise_descriptor_limit()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
