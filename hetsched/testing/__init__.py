"""Checks that plug-ins keep what they promise, for the tests of their authors.

    from hetsched.testing import check_blocks, check_workload

    def test_standardize():
        check_workload(Standardize(), StandardizeParams(rows=40, cols=17))

A kind of device derives a class of tests from `DeviceSuite`, and one behind a link also from
`RuntimeSuite`; mistakes of an accelerator show on `StrictRuntime`. An `AssertionError` says which
promise is broken, in one line.
"""

from hetsched.testing.devices import DeviceSuite
from hetsched.testing.runtimes import RuntimeSuite
from hetsched.testing.simulated import StrictRuntime
from hetsched.testing.workloads import check_blocks, check_workload

__all__ = ["DeviceSuite", "RuntimeSuite", "StrictRuntime", "check_blocks", "check_workload"]
