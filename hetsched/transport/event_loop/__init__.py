"""Parts of the event loop (`transport/loop.py`): signals, measured latency."""
