"""Resolution of users' device names and groups to the devices of this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hetsched.device import DeviceInfo
from hetsched.device_kinds import group_names, kind_of_group
from hetsched.errors import Unavailable, UsageError
from hetsched.units import closest_name, quoted

TEAM_GROUP = "team"
"""The group of all teams; the group "cpu" has both teams and single cores."""


def select_devices(
    requested: Sequence[str], infos: Sequence[DeviceInfo], absent: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the devices selected by the `requested` names and groups.

    Parameters
    ----------
    requested : sequence of str
        Empty: all devices.
    infos : sequence of DeviceInfo
        The devices of this machine.
    absent : mapping
        Unusable device or kind -> reason.

    Raises
    ------
    UsageError
        An unknown name; the message gives the closest match.
    Unavailable
        A device or kind that this machine lacks.
    """
    if not requested:
        return tuple(info.name for info in infos)
    selected: set[str] = set()
    for word in requested:
        members = {info.name for info in infos if _matches(word, info)}
        if not members:
            raise _unknown_device(word, infos, absent)
        selected |= members
    return tuple(info.name for info in infos if info.name in selected)


def _matches(word: str, info: DeviceInfo) -> bool:
    kind = kind_of_group(word)
    if word in (info.name, info.kind) or (kind is not None and info.kind == kind.name):
        return True
    return word == TEAM_GROUP and bool(info.members)


def _unknown_device(
    word: str, infos: Sequence[DeviceInfo], absent: Mapping[str, str]
) -> UsageError | Unavailable:
    names = [info.name for info in infos]
    available = ", ".join(names)
    group = word.rstrip("0123456789")
    kind = kind_of_group(group)
    reason = absent.get(word) or absent.get(group)
    if reason or (kind is not None and kind.can_be_missing):
        return Unavailable(
            f"device {word} is not available: {reason or 'none found'}; devices here: {available}"
        )
    groups = [*group_names(), *([TEAM_GROUP] if any(info.members for info in infos) else [])]
    match = closest_name(word, [*names, *(group for group in groups if group != word)])
    hint = f"did you mean {match}? " if match else ""
    return UsageError(f"no device {quoted(word)}; {hint}devices here: {available}")
