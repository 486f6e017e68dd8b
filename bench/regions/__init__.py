"""What the benches ``overlap`` and ``relax`` share: the papers' workloads, their algorithms as printed, pictures."""
