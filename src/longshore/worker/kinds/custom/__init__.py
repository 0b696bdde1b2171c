"""Jobs of your own: a function from input artifacts and parameters to result artifacts, with everything a download has."""

from longshore.worker.kinds.custom.job_types import (
    AsyncContext,
    Context,
    Input,
    JobFailed,
    JobType,
    Result,
    job_type,
    known_types,
)

__all__ = ["AsyncContext", "Context", "Input", "JobFailed", "JobType", "Result", "job_type", "known_types"]
