"""The groups of pages, in the order of the navigation. A new group is one file here, and one line."""

from __future__ import annotations

from holdfast.pages import Pages
from holdfast.web.dashboard.views import (
    budgets,
    events,
    job,
    jobs,
    machines,
    organization,
    overview,
    people,
    projects,
    queues,
    schedules,
    tenants,
    webhooks,
    workers,
)

GROUPS: tuple[Pages, ...] = (
    overview.pages,
    jobs.pages,
    job.pages,
    queues.pages,
    schedules.pages,
    workers.pages,
    machines.pages,
    tenants.pages,
    events.pages,
    organization.pages,
    budgets.pages,
    people.pages,
    webhooks.pages,
    projects.pages,
)
