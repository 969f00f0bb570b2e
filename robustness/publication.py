"""Results are published exactly once, whenever the process that publishes them ends.

A child process ends before its Nth system call, for every N; then children that recover end
before their Mth; the last one finishes. With and without `--force`, and on file systems without
hard links.
"""

from __future__ import annotations

import functools
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.results import Bar, Result
from robustness.publishing_child import RESULT, publish, recover, run_in_child
from robustness.scale import Scale

LACKS: tuple[tuple[str, ...], ...] = ((), ("link",))
"""What a file system may lack."""

RECOVERY_CALLS = 16
"""System calls of a recovery that only completes a publication, and more."""


@dataclass
class PublicationTally:
    kills: int = 0
    incomplete: int = 0
    """Targets that were neither as before nor complete, at any time."""
    repeated: int = 0
    """Results that were named again."""
    lost: int = 0
    """Results that weren't there in the end."""
    left_over: int = 0
    """Hidden files in the end."""


def published_inode(folder: Path) -> int:
    """Return the inode of the published result; 0 if the target isn't that."""
    try:
        is_result = np.array_equal(np.load(folder / "y.npy"), RESULT)
    except (OSError, ValueError):
        return 0
    return (folder / "y.npy").stat().st_ino if is_result else 0


def publish_and_recover(
    folder: Path,
    force: bool,
    lacks: tuple[str, ...],
    calls: int,
    recovery_calls: tuple[int, ...],
    tally: PublicationTally,
) -> bool:
    """Run one story; return whether its first process was killed."""
    folder.mkdir(parents=True)
    if force:
        (folder / "y.npy").write_text("old")
    was_killed = run_in_child(functools.partial(publish, folder, force), calls, lacks)
    inode = published_inode(folder)
    tally.incomplete += not inode and (folder / "y.npy").exists() != force
    tally.kills += was_killed
    for limit in (*recovery_calls, None):
        tally.kills += run_in_child(functools.partial(recover, folder, force), limit, lacks)
        earlier, inode = inode, published_inode(folder)
        tally.repeated += earlier not in (0, inode)
    tally.lost += not inode
    tally.left_over += sum(path.name != "y.npy" for path in folder.iterdir())
    return was_killed


def publish_everywhere(folder: Path, step: int) -> PublicationTally:
    """Kill at every call; recoveries at every `step`th of theirs, each time at others."""
    tally = PublicationTally()
    for force in (False, True):
        for lacks in LACKS:
            calls, was_killed = 0, True
            while was_killed:
                limits = tuple(range(calls % step, RECOVERY_CALLS, step))
                where = folder / f"{force}-{'-'.join(lacks)}-{calls}" / "data"
                was_killed = publish_and_recover(where, force, lacks, calls, limits, tally)
                calls += 1
    return tally


def measure(scale: Scale) -> Result:
    result = Result(
        "publication",
        "Processes killed while they publish a result",
        ("kills", "incomplete", "published again", "lost", "left over"),
    )
    memory = Path("/dev/shm")  # a killed process loses nothing that it wrote: no need of a disk
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        tally = publish_everywhere(Path(folder), scale.of(16, 2, 1))
    figures = (tally.kills, tally.incomplete, tally.repeated, tally.lost, tally.left_over)
    result.rows.append(tuple(f"{figure:,}" for figure in figures))
    result.data.append(vars(tally))
    result.bars += [
        Bar("processes killed", tally.kills, 100),
        Bar("targets that were incomplete at any time", tally.incomplete, 0, at_least=False),
        Bar("results published again", tally.repeated, 0, at_least=False),
        Bar("results lost, and hidden files", tally.lost + tally.left_over, 0, at_least=False),
    ]
    return result
