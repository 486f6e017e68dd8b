"""The bench ``synopses``, in rooms: ``workload`` (what is asked), ``analytic`` (what Gaussian noise costs), ``rivals``
(DProvDB and its baselines as printed), ``ours`` (the planner of pgveil under the ledger's limits), ``runs`` (one run),
``figures`` (which runs make which figure), ``told`` and ``plots`` (tables and pictures), ``workers`` (all cores).
"""
