"""The daemon as a service of systemd. Without systemd, all of this does nothing."""
