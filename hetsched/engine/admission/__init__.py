"""Admission of job requests: parameters, inputs, outputs, devices, limits."""
