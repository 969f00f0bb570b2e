"""Which kind of file system a folder is on, and what that means for a journal in it."""

from __future__ import annotations

import os
from pathlib import Path

_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "lustre", "afs")
_NETWORK_FUSE = ("fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.rclone")
_IN_MEMORY = ("tmpfs", "ramfs")


def durability_warning(folder: Path) -> str | None:
    """Return why files in `folder` may not survive a power cut; None: they should."""
    kind = file_system(folder, Path("/proc/self/mountinfo").read_text(errors="surrogateescape"))
    remedy = "set HETSCHED_STATE_DIR to a folder on a local disk"
    if kind in _NETWORK or kind in _NETWORK_FUSE:
        return f"{folder}: on a network file system ({kind}); a power cut may lose jobs; {remedy}"
    if kind in _IN_MEMORY:
        return f"{folder}: in memory ({kind}); the queue is lost when the machine stops; {remedy}"
    return None


def file_system(folder: Path, mountinfo: str) -> str | None:
    """Return the type of the file system of `folder`, by the mounts (proc(5)) of this process."""
    path = os.path.realpath(folder)
    kind, longest = None, -1
    for line in mountinfo.splitlines():
        fields, _, rest = line.partition(" - ")
        columns = fields.split(" ")
        if len(columns) < 5 or not rest:
            continue
        point = columns[4].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
        is_parent = path == point or path.startswith(point.rstrip("/") + "/")
        if is_parent and len(point) >= longest:  # of mounts on one another the last is seen
            kind, longest = rest.split(" ")[0], len(point)
    return kind
