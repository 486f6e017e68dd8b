"""Other systems that answer under differential privacy, measured where they are installed (extra ``peers``)."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from proxy.embedded import Cluster

QUESTION = "SELECT city, ordered_on, COUNT(*) AS n, AVG(amount) AS mean FROM PUBLIC.orders GROUP BY city, ordered_on"


@dataclass(frozen=True, slots=True)
class SmartNoise:
    """SmartNoise SQL: a library that rewrites the query and adds noise to what comes back."""

    name: str = "SmartNoise SQL"

    @property
    def installed(self) -> bool:
        return all(importlib.util.find_spec(module) is not None for module in ("snsql", "psycopg2"))

    def times(self, cluster: Cluster, rounds: int) -> Iterator[tuple[str, tuple[tuple[float, ...], tuple[float, ...]]]]:
        """The numbers question against its plain form, for a row unit and for a person unit."""
        if not self.installed:
            return
        for label, row_unit in (("numbers", True), ("person", False)):
            yield label, self._times(cluster, rounds, row_unit)

    def _times(self, cluster: Cluster, rounds: int, row_unit: bool) -> tuple[tuple[float, ...], tuple[float, ...]]:
        import psycopg2  # type: ignore[import-untyped,import-not-found,unused-ignore]
        import snsql  # type: ignore[import-not-found,unused-ignore]

        connection = psycopg2.connect(cluster.dsn())
        reader = snsql.from_connection(
            connection, privacy=snsql.Privacy(epsilon=1.0, delta=1e-9), metadata=_metadata(row_unit), engine="postgres"
        )
        plain: list[float] = []
        ours: list[float] = []
        for _ in range(rounds + 1):
            begun = time.perf_counter()
            with connection.cursor() as cursor:
                cursor.execute(QUESTION)
                cursor.fetchall()
            middle = time.perf_counter()
            reader.execute(QUESTION)
            plain.append(middle - begun)
            ours.append(time.perf_counter() - middle)
        connection.close()
        return tuple(plain[1:]), tuple(ours[1:])


def _metadata(row_unit: bool) -> dict[str, Any]:
    table = {
        "row_privacy": row_unit,
        "max_ids": 8,
        "censor_dims": False,
        "order_id": {"type": "int", "private_id": False},
        "customer_id": {"type": "int", "private_id": not row_unit},
        "city": {"type": "string"},
        "ordered_on": {"type": "datetime"},
        "amount": {"type": "float", "lower": 0.0, "upper": 500.0},
    }
    return {"": {"PUBLIC": {"orders": table}}}


PEERS = (SmartNoise(),)
