"""The functions of the shadow that plan or run a statement and undo all of it (``proxy.trial``).

An error in PL/pgSQL's inner block is caught there, so the analyst's transaction goes on as if nothing had happened,
whether it is an explicit one or that of one batch. Both functions run as whoever calls them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_DIAGNOSE: Final = """
      GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL,
        hint = PG_EXCEPTION_HINT, in_schema = SCHEMA_NAME, in_table = TABLE_NAME, in_column = COLUMN_NAME,
        of_type = PG_DATATYPE_NAME, in_constraint = CONSTRAINT_NAME;
      IF state OPERATOR(pg_catalog.~) '^(PVEIL|40|53|55P03|57)' THEN RETURN; END IF;
      failed := pg_catalog.jsonb_build_object('state', state, 'message', message, 'detail', detail, 'hint', hint,
        'schema', in_schema, 'table', in_table, 'column', in_column, 'type', of_type, 'constraint', in_constraint);
"""
_DECLARE: Final = """
  state text; message text; detail text; hint text; failed jsonb; line record;
  in_schema text; in_table text; in_column text; of_type text; in_constraint text;
"""
# Notices of a trial are nobody's. Both run as the caller: they can do what the analyst's own text can do.
_FUNCTION: Final = "LANGUAGE plpgsql SET client_min_messages = error"


def ddl() -> Iterator[str]:
    """The functions of the shadow that try a statement and undo it, with a NULL failure if it may run."""
    yield f"""CREATE FUNCTION veil.planned(statement text, names text[], harmless text[],
    OUT failure text, OUT unsafe boolean) {_FUNCTION} AS $$
DECLARE
  shown text := ''; {_DECLARE}
BEGIN
  unsafe := true;
  FOR line IN EXECUTE 'EXPLAIN (VERBOSE, COSTS OFF) ' OPERATOR(pg_catalog.||) statement LOOP
    shown := pg_catalog.concat(shown, line."QUERY PLAN", E'\\n');
  END LOOP;
  names := names OPERATOR(pg_catalog.||)
    ARRAY(SELECT f.m[1] FROM pg_catalog.regexp_matches(shown, '\\m(\\w+)"?\\(', 'g') AS f(m));
  unsafe := EXISTS (SELECT FROM pg_catalog.pg_proc p
       WHERE p.proname OPERATOR(pg_catalog.=) ANY (names) AND p.provolatile OPERATOR(pg_catalog.=) 'v'
         AND NOT (p.pronamespace OPERATOR(pg_catalog.=) 'pg_catalog'::pg_catalog.regnamespace
                  AND p.proname OPERATOR(pg_catalog.=) ANY (harmless)))
    OR shown OPERATOR(pg_catalog.~) '(Insert|Update|Delete|Merge) on '
       AND EXISTS (SELECT FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_class c
         ON c.oid OPERATOR(pg_catalog.=) t.tgrelid
         WHERE c.relnamespace OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema() AND NOT t.tgisinternal);
EXCEPTION WHEN OTHERS THEN {_DIAGNOSE}
  failure := failed::text;
END $$"""
    yield f"""CREATE FUNCTION veil.trial(statements text[], shows boolean, next text,
    OUT failure text) {_FUNCTION} AS $$
DECLARE
  statement text; first jsonb; {_DECLARE}
BEGIN
  FOREACH statement IN ARRAY statements LOOP
    BEGIN
      IF shows THEN
        FOR line IN EXECUTE statement LOOP
          EXIT WHEN pg_catalog.pg_client_encoding() OPERATOR(pg_catalog.=) ANY ('{{UTF8,SQL_ASCII}}');
          PERFORM pg_catalog.convert_to(line::text, pg_catalog.pg_client_encoding()); -- as it would be sent
        END LOOP;
      ELSE
        EXECUTE statement;
      END IF;
      IF next IS NOT NULL THEN EXECUTE next; END IF;
      RAISE EXCEPTION USING ERRCODE = 'PVEIL';
    EXCEPTION WHEN OTHERS OR query_canceled THEN {_DIAGNOSE}
    END;
    IF first IS NULL THEN
      first := failed;
    ELSIF first OPERATOR(pg_catalog.->>) 'state' OPERATOR(pg_catalog.<>) state THEN
      RETURN;
    ELSIF first OPERATOR(pg_catalog.->>) 'detail' OPERATOR(pg_catalog.<>) detail THEN
      first := first OPERATOR(pg_catalog.||) '{{"detail": null}}'; -- it quotes a number that was made up
    END IF;
  END LOOP;
  failure := first::text;
EXCEPTION WHEN query_canceled THEN RETURN;
END $$"""
    yield "COMMENT ON FUNCTION veil.planned IS 'pgveil: plans a statement and runs nothing'"
    yield "COMMENT ON FUNCTION veil.trial IS 'pgveil: runs statements and undoes them'"
