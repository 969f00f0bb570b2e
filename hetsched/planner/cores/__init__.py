"""The chunks of cores: how long they are."""
