"""What the benches share: ``scene`` (servers), ``pgbench`` (load), ``measure`` (rounds and ratios), ``timed`` (where
the time of a question goes), ``report`` (tables, JSON, pictures)."""
