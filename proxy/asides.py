"""What pgveil asks of PostgreSQL in the analyst's own session: how a statement is read there, and under which settings.

Everything is qualified: a temporary table of the analyst's named pg_locks must not be read for the real one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from proxy.reading import Circumstances
from proxy.veil_settings import SETTINGS
from sqlrewrite.finish import array_text

CARRIED: Final = ("TimeZone", "DateStyle")

# Whatever can change how PostgreSQL reads a text or a parameter, or how it writes the values of a derived key.
MEANING: Final = (
    *CARRIED,
    *("search_path", "role", "client_encoding", "standard_conforming_strings", "backslash_quote", "IntervalStyle"),
    *("timezone_abbreviations", "transform_null_equals", "array_nulls", "xmloption", "default_text_search_config"),
    *("lc_monetary", "lc_numeric", "lc_time", "extra_float_digits", "bytea_output", "restrict_nonsystem_relation_kind"),
)
LEAST_MESSAGE: Final = "client_min_messages"
WANTED: Final = (*SETTINGS, *MEANING, LEAST_MESSAGE)
WANTED_TEXT: Final = array_text(WANTED)

# Parsing a statement locks every relation that it names until the transaction ends, so pg_locks is PostgreSQL's own
# list of what it has just read: the second reader's opinion.
READ: Final = """
SELECT pg_catalog.json_build_object(
  'resolved', (SELECT pg_catalog.json_agg(pg_catalog.json_build_array(n.nspname, c.relname) ORDER BY u.i)
                 FROM pg_catalog.unnest($1::pg_catalog.text[]) WITH ORDINALITY AS u(name, i)
                 LEFT JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass(u.name)
                 LEFT JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace),
  'seen', (SELECT pg_catalog.json_agg(pg_catalog.json_build_array(n.nspname, c.relname))
             FROM pg_catalog.pg_locks l
             JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) l.relation
             JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
            WHERE l.pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid()
              AND l.locktype OPERATOR(pg_catalog.=) 'relation'
              AND c.relkind OPERATOR(pg_catalog.=) ANY ('{r,p,v,m,f}')
              AND n.nspname OPERATOR(pg_catalog.<>) ALL ('{pg_catalog,pg_toast,information_schema}'))
)::pg_catalog.text
"""

SETTLED: Final = """
SELECT pg_catalog.json_build_array(
  pg_catalog.current_database(), pg_catalog.pg_my_temp_schema() OPERATOR(pg_catalog.=) 0,
  ARRAY(SELECT pg_catalog.current_setting(s, true) FROM pg_catalog.unnest($1::pg_catalog.text[]) AS u(s))
)::pg_catalog.text
"""

# What an expression is worth in this transaction, and its type; JSON knows no DateStyle.
WORTH: Final = "pg_catalog.pg_typeof({0})::pg_catalog.text, pg_catalog.to_json({0}) OPERATOR(pg_catalog.#>>) '{{}}'"

PREPARED: Final = """
SELECT statement, pg_catalog.array_to_string(parameter_types::pg_catalog.oid[], ' ')
  FROM pg_catalog.pg_prepared_statements WHERE name OPERATOR(pg_catalog.=) $1
"""


@lru_cache(maxsize=64)
def settings_of(said: str, wanted: tuple[str, ...]) -> Mapping[str, str | None]:
    """What ``SETTLED`` told, by name; under an empty name the database, if the session has no temporary objects."""
    database, permanent, values = json.loads(said)
    return {"": database if permanent else None, **dict(zip(wanted, values, strict=True))}


def circumstances_of(settings: Mapping[str, str | None]) -> Circumstances | None:
    database = settings[""]
    return None if database is None else (database, *(settings[name] for name in MEANING))
