import pytest

from hetsched.config import ArenaConfig, Config
from hetsched.daemon.lifecycle import limits
from hetsched.errors import ConfigError
from hetsched.jobs.table import Limits

GIB = 1 << 30


def test_shares_are_of_the_machines_memory() -> None:
    total, others = limits(Config(), 100 * GIB)
    assert total == 70 * GIB
    assert others == Limits(
        results=25 * GIB, results_for=600.0, warm_for=60.0, jobs_per_client=875
    )


def test_results_may_not_have_more_than_there_is() -> None:
    arena = ArenaConfig(limit="1GiB", results="50%")
    assert limits(Config(arena=arena), 100 * GIB)[1].results == GIB


@pytest.mark.parametrize("key", ["limit", "results"])
def test_a_wrong_value_names_its_key(key: str) -> None:
    with pytest.raises(ConfigError, match=rf"arena\.{key}: 'many'"):
        limits(Config(arena=ArenaConfig(**{key: "many"})), GIB)
