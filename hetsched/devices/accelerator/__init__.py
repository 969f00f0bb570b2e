"""Devices with their own memory behind a link, on the runtime of any vendor.

Whatever isn't a vendor's is here: chunks in flight, slots, pinned and staged memory, resident
arrays, kernels that are kept, rows of iterative jobs. A kind of device brings a `runtime.Runtime`.
"""
