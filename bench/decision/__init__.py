"""What the bench ``decisions`` is made of: real data, questions about it, runs of every mechanism, and what they show.

::

    groups ──► workloads ──► cells ──► runs ──► compare, figures ──► tables, JSON, pictures
    parquet    aggregates    Problem   pool     ratios  the papers'   told
"""
