"""How devices and engine keep step: control memory, messages."""
