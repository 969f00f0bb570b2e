"""Plans for whole jobs: variants, shares and chunks of all devices. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hetsched.lazy import lazy_names

if TYPE_CHECKING:
    from hetsched.planner.explanation import ExplainedJob, explain_job
    from hetsched.planner.job_planner import plan_job

__all__ = ["ExplainedJob", "explain_job", "plan_job"]

__getattr__ = lazy_names(
    __name__,
    {"ExplainedJob": "explanation", "explain_job": "explanation", "plan_job": "job_planner"},
)
