import resource
from pathlib import Path

import pytest

from hetsched.errors import ConfigError
from hetsched.transport.machine_limits import machine_memory, raise_descriptor_limit, resolve_size


def test_a_share_of_the_whole() -> None:
    assert resolve_size("70%", 1000, "arena.limit") == 700
    assert resolve_size("2GiB", 1000, "arena.limit") == 2 << 30


@pytest.mark.parametrize("text", ["0%", "101%", "many", "%", "-3%"])
def test_a_wrong_size_names_the_key(text: str) -> None:
    with pytest.raises(ConfigError, match=r"arena\.limit"):
        resolve_size(text, 1000, "arena.limit")


def test_the_smallest_limit_of_all_cgroups_above_counts(tmp_path: Path) -> None:
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    (inner / "memory.max").write_text("max\n")
    (tmp_path / "outer" / "memory.max").write_text("1048576\n")
    own = tmp_path / "cgroup"
    own.write_text("0::/outer/inner\n")
    assert machine_memory(tmp_path, own) == 1 << 20


def test_without_cgroups_it_is_the_machines(tmp_path: Path) -> None:
    assert machine_memory(tmp_path, tmp_path / "nothing") > 1 << 20


def test_descriptors_are_raised_to_what_is_allowed() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(200, before[1]), before[1]))
    raise_descriptor_limit()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
