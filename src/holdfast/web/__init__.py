"""The HTTP API. One router per resource: `router = guarded_router("keys")`, listed in server.py, paths below /api.

Every route has a summary, a response model (models.py, or beside its routes), and in `responses=answers(404, 409)` the
statuses that are its own; those of any route come by themselves. Errors are raised as `holdfast.errors`, and problems.py alone
knows their statuses. The caller is a `CallerDep`; what he may do and see is decided in access.py alone; the tenant that goes
into the query is `scope(caller, asked)`.
"""
