"""Where work runs: local processes, or a Ray cluster."""

from confide.scale.jobs import Job as Job
from confide.scale.jobs import run_jobs as run_jobs
from confide.scale.ray import train_workers as train_workers
