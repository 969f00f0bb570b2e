"""Any function on any array: `map`, `reduce`, `divisible`, on all devices of this process."""
