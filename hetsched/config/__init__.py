"""The configuration: TOML files as validated records (`schema`), and costs in them (`cost`)."""

from hetsched.config.schema import (
    ArenaConfig,
    Config,
    DeadlinesConfig,
    DeviceConfig,
    JournalConfig,
    LimitsConfig,
    LoadConfig,
    QueueConfig,
    load,
    load_profile,
    parse,
    profiles,
    shipped,
    shipped_folder,
)

__all__ = [
    "ArenaConfig",
    "Config",
    "DeadlinesConfig",
    "DeviceConfig",
    "JournalConfig",
    "LimitsConfig",
    "LoadConfig",
    "QueueConfig",
    "load",
    "load_profile",
    "parse",
    "profiles",
    "shipped",
    "shipped_folder",
]
