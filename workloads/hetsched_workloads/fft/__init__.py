"""Batched 2D complex FFT; see `declaration`."""

from hetsched_workloads.fft.declaration import Fft, FftParams

__all__ = ["Fft", "FftParams"]
