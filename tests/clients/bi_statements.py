"""What BI tools that cannot be run here are known to send, by tool: lookups, probes of a shape, and questions."""

# ruff: noqa: E501 - lines as the tools write them

from __future__ import annotations

# Answered by the shadow as if pgveil were not there.
LOOKUPS = {
    "metabase-alive": "SELECT 1",
    "metabase-zone": "SELECT to_char(timestamp '2025-01-01 00:00:00', 'YYYY-MM-DD HH24:MI:SS.MS TZ')",
    "metabase-tables": """
        SELECT n.nspname AS schema, c.relname AS name, CASE c.relkind WHEN 'r' THEN 'TABLE' WHEN 'v' THEN 'VIEW' END AS type,
               d.description
        FROM pg_catalog.pg_class AS c INNER JOIN pg_catalog.pg_namespace AS n ON c.relnamespace = n.oid
        LEFT JOIN pg_catalog.pg_description AS d
          ON c.oid = d.objoid AND d.objsubid = 0 AND d.classoid = CAST('pg_class' AS REGCLASS)
        WHERE (c.relkind IN ('r', 'p', 'v', 'f', 'm')) AND (n.nspname !~ '^pg_') AND (n.nspname <> 'information_schema')
        ORDER BY type ASC, schema ASC, name ASC""",
    "metabase-privileges": """
        WITH table_privileges AS (
          SELECT NULL AS role, t.schemaname AS schema, t.objectname AS table,
                 pg_catalog.has_any_column_privilege(current_user, '"' || t.schemaname || '"' || '.' || '"' || t.objectname || '"', 'select') AS select
          FROM (SELECT schemaname, tablename AS objectname FROM pg_catalog.pg_tables UNION
                SELECT schemaname, viewname AS objectname FROM pg_views) t
          WHERE t.schemaname !~ '^pg_' AND t.schemaname <> 'information_schema'
            AND pg_catalog.has_schema_privilege(current_user, t.schemaname, 'usage'))
        SELECT t.* FROM table_privileges t ORDER BY 2, 3""",
    "metabase-keys": """
        SELECT fk_ns.nspname AS "fk-table-schema", fk_table.relname AS "fk-table-name", fk_column.attname AS "fk-column-name",
               pk_ns.nspname AS "pk-table-schema", pk_table.relname AS "pk-table-name", pk_column.attname AS "pk-column-name"
        FROM pg_constraint AS c INNER JOIN pg_class AS fk_table ON c.conrelid = fk_table.oid
        INNER JOIN pg_namespace AS fk_ns ON c.connamespace = fk_ns.oid
        INNER JOIN pg_attribute AS fk_column ON c.conrelid = fk_column.attrelid
        INNER JOIN pg_class AS pk_table ON c.confrelid = pk_table.oid
        INNER JOIN pg_namespace AS pk_ns ON pk_table.relnamespace = pk_ns.oid
        INNER JOIN pg_attribute AS pk_column ON c.confrelid = pk_column.attrelid
        WHERE (fk_ns.nspname !~ '^information_schema|catalog_history|pg_') AND (c.contype = 'f')
          AND (fk_column.attnum = ANY(c.conkey)) AND (pk_column.attnum = ANY(c.confkey)) ORDER BY 1, 2""",
    "tableau-probe": """SELECT "COL" FROM (SELECT 1 AS "COL") AS "SUBQUERY" """,
    "tableau-grouped": """SELECT "SUBCOL" AS "COL" FROM ( SELECT 1 AS "SUBCOL" ) "SUBQUERY" GROUP BY 1""",
    "tableau-dates": """SELECT DATE_TRUNC('MONTH', CAST('2025-03-04' AS TIMESTAMP)), (CAST(EXTRACT(DOW FROM DATE '2025-03-04') AS INTEGER))""",
    "tableau-keys": """
        SELECT ta.attname, ia.attnum, ic.relname, n.nspname, tc.relname
        FROM pg_catalog.pg_attribute ta, pg_catalog.pg_attribute ia, pg_catalog.pg_class tc, pg_catalog.pg_index i,
             pg_catalog.pg_namespace n, pg_catalog.pg_class ic
        WHERE tc.relname = 'orders' AND n.nspname = 'public' AND tc.oid = i.indrelid AND n.oid = tc.relnamespace
          AND i.indisprimary = 't' AND ia.attrelid = i.indexrelid AND ta.attrelid = i.indrelid
          AND ta.attnum = i.indkey[ia.attnum - 1] AND (NOT ta.attisdropped) AND (NOT ia.attisdropped)
          AND ic.oid = i.indexrelid ORDER BY ia.attnum""",
    "powerbi-types": """
        SELECT ns.nspname, t.oid, t.typname, t.typtype, t.typnotnull, t.elemtypoid
        FROM (
          SELECT typ.oid, typ.typnamespace, typ.typname, typ.typtype, typ.typrelid, typ.typnotnull, typ.relkind,
                 elemtyp.oid AS elemtypoid, elemtyp.typname AS elemtypname, elemcls.relkind AS elemrelkind,
                 CASE WHEN elemproc.proname = 'array_recv' THEN 'a' ELSE elemtyp.typtype END AS elemtyptype
          FROM (
            SELECT typ.oid, typnamespace, typname, typrelid, typnotnull, relkind, typelem AS elemoid,
                   CASE WHEN proc.proname = 'array_recv' THEN 'a' ELSE typ.typtype END AS typtype,
                   CASE WHEN proc.proname = 'array_recv' THEN typ.typelem WHEN typ.typtype = 'r' THEN rngsubtype
                        WHEN typ.typtype = 'm' THEN (SELECT rngtypid FROM pg_range WHERE rngmultitypid = typ.oid)
                        WHEN typ.typtype = 'd' THEN typ.typbasetype END AS elemtypoid
            FROM pg_type AS typ LEFT JOIN pg_class AS cls ON (cls.oid = typ.typrelid)
            LEFT JOIN pg_proc AS proc ON proc.oid = typ.typreceive LEFT JOIN pg_range ON (pg_range.rngtypid = typ.oid)
          ) AS typ
          LEFT JOIN pg_type AS elemtyp ON elemtyp.oid = elemtypoid
          LEFT JOIN pg_class AS elemcls ON (elemcls.oid = elemtyp.typrelid)
          LEFT JOIN pg_proc AS elemproc ON elemproc.oid = elemtyp.typreceive
        ) AS t
        JOIN pg_namespace AS ns ON (ns.oid = typnamespace)
        WHERE typtype IN ('b', 'r', 'm', 'e', 'd') OR (typtype = 'c' AND relkind = 'c')
           OR (typtype = 'p' AND typname IN ('record', 'void', 'unknown'))
        ORDER BY t.oid""",
    "powerbi-tables": """
        select TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE from INFORMATION_SCHEMA.tables
        where TABLE_SCHEMA not in ('information_schema', 'pg_catalog') order by TABLE_SCHEMA, TABLE_NAME""",
    "powerbi-columns": """
        select COLUMN_NAME, ORDINAL_POSITION, IS_NULLABLE, case when (data_type like '%unsigned%') then DATA_TYPE || ' unsigned'
        else DATA_TYPE end as DATA_TYPE from INFORMATION_SCHEMA.columns
        where TABLE_SCHEMA = 'public' and TABLE_NAME = 'orders' order by TABLE_SCHEMA, TABLE_NAME, ORDINAL_POSITION""",
    "powerbi-keys": """
        select i.CONSTRAINT_SCHEMA || '_' || i.CONSTRAINT_NAME as INDEX_NAME, ii.COLUMN_NAME, ii.ORDINAL_POSITION,
               case when i.CONSTRAINT_TYPE = 'PRIMARY KEY' then 'Y' else 'N' end as PRIMARY_KEY
        from INFORMATION_SCHEMA.table_constraints i inner join INFORMATION_SCHEMA.key_column_usage ii
          on i.CONSTRAINT_SCHEMA = ii.CONSTRAINT_SCHEMA and i.CONSTRAINT_NAME = ii.CONSTRAINT_NAME
        where i.TABLE_SCHEMA = 'public' and i.TABLE_NAME = 'orders' and i.CONSTRAINT_TYPE in ('PRIMARY KEY', 'UNIQUE')""",
    "dbeaver-databases": "SELECT db.oid, db.datname, db.encoding FROM pg_catalog.pg_database db WHERE datallowconn ORDER BY db.datname",
    "dbeaver-schemas": """
        SELECT n.oid, n.*, d.description FROM pg_catalog.pg_namespace n LEFT OUTER JOIN pg_catalog.pg_description d
        ON d.objoid = n.oid AND d.objsubid = 0 AND d.classoid = 'pg_namespace'::regclass ORDER BY nspname""",
    "dbeaver-classes": """
        SELECT c.oid, c.*, d.description, pg_catalog.pg_get_expr(c.relpartbound, c.oid) AS partition_expr,
               pg_catalog.pg_get_partkeydef(c.oid) AS partition_key
        FROM pg_catalog.pg_class c LEFT OUTER JOIN pg_catalog.pg_description d
        ON d.objoid = c.oid AND d.objsubid = 0 AND d.classoid = 'pg_class'::regclass
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind NOT IN ('i', 'I', 'c') ORDER BY c.relname""",
    "dbeaver-columns": """
        SELECT c.relname, a.*, pg_catalog.pg_get_expr(ad.adbin, ad.adrelid, true) AS def_value, dsc.description,
               dep.objid FROM pg_catalog.pg_attribute a
        INNER JOIN pg_catalog.pg_class c ON (a.attrelid = c.oid)
        LEFT OUTER JOIN pg_catalog.pg_attrdef ad ON (a.attrelid = ad.adrelid AND a.attnum = ad.adnum)
        LEFT OUTER JOIN pg_catalog.pg_description dsc ON (c.oid = dsc.objoid AND a.attnum = dsc.objsubid)
        LEFT OUTER JOIN pg_depend dep ON dep.refobjid = a.attrelid AND dep.deptype = 'i' AND dep.refobjsubid = a.attnum
          AND dep.classid = dep.refclassid
        WHERE NOT a.attisdropped AND c.relkind NOT IN ('i', 'I', 'c') AND c.oid = 'public.orders'::regclass
        ORDER BY a.attnum""",
    "dbeaver-sizes": """
        SELECT c.relname, pg_catalog.pg_total_relation_size(c.oid) AS total, pg_catalog.pg_relation_size(c.oid) AS size,
               c.reltuples FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace ORDER BY 1""",
    "dbeaver-settings": "SELECT setting FROM pg_catalog.pg_settings WHERE name = 'standard_conforming_strings'",
    "dbeaver-roles": "SELECT a.oid, a.rolname, a.rolsuper FROM pg_catalog.pg_roles a ORDER BY a.rolname",
    "metabase-fields": """
        SELECT "c"."column_name" AS "name", CASE WHEN "c"."udt_schema" IN ('public', 'pg_catalog') THEN FORMAT('%s', "c"."udt_name")
               ELSE FORMAT('"%s"."%s"', "c"."udt_schema", "c"."udt_name") END AS "database-type",
               "c"."ordinal_position" - 1 AS "database-position", "c"."table_schema" AS "table-schema", "c"."table_name" AS "table-name",
               "pk"."column_name" IS NOT NULL AS "pk?", COL_DESCRIPTION(CAST(CAST(FORMAT('%I.%I', CAST("c"."table_schema" AS TEXT),
               CAST("c"."table_name" AS TEXT)) AS REGCLASS) AS OID), "c"."ordinal_position") AS "field-comment",
               (("column_default" IS NULL) OR (LOWER("column_default") = 'null')) AND ("is_nullable" = 'NO') AND NOT
               ((("column_default" IS NOT NULL) AND ("column_default" LIKE '%nextval(%')) OR ("is_identity" <> 'NO')) AS "database-required"
        FROM "information_schema"."columns" AS "c" LEFT JOIN (SELECT "tc"."table_schema", "tc"."table_name", "kc"."column_name"
          FROM "information_schema"."table_constraints" AS "tc" INNER JOIN "information_schema"."key_column_usage" AS "kc"
          ON ("tc"."constraint_name" = "kc"."constraint_name") AND ("tc"."table_schema" = "kc"."table_schema")
          AND ("tc"."table_name" = "kc"."table_name") WHERE "tc"."constraint_type" = 'PRIMARY KEY') AS "pk"
        ON ("c"."table_schema" = "pk"."table_schema") AND ("c"."table_name" = "pk"."table_name") AND ("c"."column_name" = "pk"."column_name")
        WHERE c.table_schema !~ '^information_schema|catalog_history|pg_' AND "c"."table_schema" IN ('public')
        ORDER BY "table-schema" ASC, "table-name" ASC, "database-position" ASC""",
    "metabase-indexes": """
        SELECT tmp.relname AS "table-name", trim(both '"' from pg_catalog.pg_get_indexdef(tmp.i, tmp.pos, false)) AS "field-name"
        FROM (SELECT ci.oid AS i, (information_schema._pg_expandarray(i.indkey)).n AS pos, ct.relname FROM pg_catalog.pg_class ct
              JOIN pg_catalog.pg_namespace n ON (ct.relnamespace = n.oid) JOIN pg_catalog.pg_index i ON (ct.oid = i.indrelid)
              JOIN pg_catalog.pg_class ci ON (ci.oid = i.indexrelid) WHERE n.nspname = 'public' AND i.indpred IS NULL) AS tmp
        ORDER BY 1, 2""",
    "metabase-enums": """
        SELECT nspname, typname FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace
        WHERE t.oid IN (SELECT DISTINCT enumtypid FROM pg_enum e)""",
    "metabase-isolation": "SHOW TRANSACTION ISOLATION LEVEL",
    "tableau-version": "SELECT CAST(current_setting('server_version_num') AS int) AS v",
    "tableau-foreign-keys": """
        SELECT pn.nspname, pc.relname, pa.attname, fn.nspname, fc.relname, fa.attname, fk.conname
        FROM pg_catalog.pg_constraint fk JOIN pg_catalog.pg_class fc ON fc.oid = fk.conrelid
        JOIN pg_catalog.pg_namespace fn ON fn.oid = fc.relnamespace JOIN pg_catalog.pg_class pc ON pc.oid = fk.confrelid
        JOIN pg_catalog.pg_namespace pn ON pn.oid = pc.relnamespace
        JOIN pg_catalog.pg_attribute fa ON fa.attrelid = fc.oid AND fa.attnum = fk.conkey[1]
        JOIN pg_catalog.pg_attribute pa ON pa.attrelid = pc.oid AND pa.attnum = fk.confkey[1]
        WHERE fk.contype = 'f' AND fc.relname = 'orders' AND fn.nspname = 'public' ORDER BY fk.conname""",
    "tableau-wrapped-probe": """SELECT COUNT(1) AS "c" FROM (SELECT 1 AS "x") "t0" HAVING (COUNT(1) > 0)""",
    "powerbi-version": "SELECT version()",
    "powerbi-enum-labels": """
        SELECT pg_type.oid, enumlabel FROM pg_enum JOIN pg_type ON pg_type.oid = enumtypid ORDER BY oid, enumsortorder""",
    "powerbi-composites": """
        SELECT typ.oid, att.attname, att.atttypid FROM pg_type AS typ JOIN pg_namespace AS ns ON (ns.oid = typ.typnamespace)
        JOIN pg_class AS cls ON (cls.oid = typ.typrelid) JOIN pg_attribute AS att ON (att.attrelid = typ.typrelid)
        WHERE (typ.typtype = 'c' AND cls.relkind = 'c') AND attnum > 0 AND NOT attisdropped ORDER BY typ.oid, att.attnum""",
    "powerbi-foreign-keys": """
        select pkcol.COLUMN_NAME as PK_COLUMN_NAME, fkcol.TABLE_SCHEMA AS FK_TABLE_SCHEMA, fkcol.TABLE_NAME AS FK_TABLE_NAME,
               fkcol.COLUMN_NAME as FK_COLUMN_NAME, fkcol.ORDINAL_POSITION as ORDINAL,
               fkcon.CONSTRAINT_SCHEMA || '_' || fkcol.TABLE_NAME || '_' || 'city' || '_' || fkcon.CONSTRAINT_NAME as FK_NAME
        from (select distinct constraint_catalog, constraint_schema, unique_constraint_schema, constraint_name, unique_constraint_name
              from INFORMATION_SCHEMA.referential_constraints) fkcon
        inner join INFORMATION_SCHEMA.key_column_usage fkcol on fkcon.CONSTRAINT_SCHEMA = fkcol.CONSTRAINT_SCHEMA
          and fkcon.CONSTRAINT_NAME = fkcol.CONSTRAINT_NAME
        inner join INFORMATION_SCHEMA.key_column_usage pkcol on fkcon.UNIQUE_CONSTRAINT_SCHEMA = pkcol.CONSTRAINT_SCHEMA
          and fkcon.UNIQUE_CONSTRAINT_NAME = pkcol.CONSTRAINT_NAME
        where pkcol.TABLE_SCHEMA = 'public' and pkcol.TABLE_NAME = 'city' and pkcol.ORDINAL_POSITION = fkcol.ORDINAL_POSITION
        order by FK_NAME, fkcol.ORDINAL_POSITION""",
    "powerbi-characters": "select character_set_name from INFORMATION_SCHEMA.character_sets",
    "dbeaver-session": "SELECT current_schema(), session_user",
    "dbeaver-search-path": "SHOW search_path",
    "dbeaver-enum-probe": "SELECT * FROM pg_catalog.pg_enum WHERE 1<>1 LIMIT 1",
    "dbeaver-reltype-probe": "SELECT reltype FROM pg_catalog.pg_class WHERE 1<>1 LIMIT 1",
    "dbeaver-types": """
        SELECT t.oid, t.*, c.relkind, format_type(nullif(t.typbasetype, 0), t.typtypmod) AS base_type_name, d.description
        FROM pg_catalog.pg_type t LEFT OUTER JOIN pg_catalog.pg_type et ON et.oid = t.typelem
        LEFT OUTER JOIN pg_catalog.pg_class c ON c.oid = t.typrelid LEFT OUTER JOIN pg_catalog.pg_description d ON t.oid = d.objoid
        WHERE t.typname IS NOT NULL AND (c.relkind IS NULL OR c.relkind = 'c') AND (et.typcategory IS NULL OR et.typcategory <> 'C')
        ORDER BY t.oid""",
    "dbeaver-constraints": """
        SELECT c.oid, c.*, t.relname AS tabrelname, rt.relnamespace AS refnamespace, d.description,
               CASE WHEN c.contype = 'c' THEN substring(pg_get_constraintdef(c.oid), 7) ELSE NULL END consrc_copy
        FROM pg_catalog.pg_constraint c INNER JOIN pg_catalog.pg_class t ON t.oid = c.conrelid
        LEFT OUTER JOIN pg_catalog.pg_class rt ON rt.oid = c.confrelid
        LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = c.oid AND d.objsubid = 0 AND d.classoid = 'pg_constraint'::regclass
        WHERE c.conrelid = 'public.orders'::regclass ORDER BY c.oid""",
    "dbeaver-indexes": """
        SELECT i.*, i.indkey AS keys, c.relname, c.relnamespace, c.relam, c.reltablespace, tc.relname AS tabrelname, dsc.description,
               pg_catalog.pg_get_expr(i.indpred, i.indrelid) AS pred_expr, pg_catalog.pg_get_expr(i.indexprs, i.indrelid, true) AS expr,
               pg_catalog.pg_relation_size(i.indexrelid) AS index_rel_size, pg_catalog.pg_stat_get_numscans(i.indexrelid) AS index_num_scans
        FROM pg_catalog.pg_index i INNER JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
        INNER JOIN pg_catalog.pg_class tc ON tc.oid = i.indrelid
        LEFT OUTER JOIN pg_catalog.pg_description dsc ON i.indexrelid = dsc.objoid
        WHERE i.indrelid = 'public.orders'::regclass ORDER BY tabrelname, c.relname""",
    "dbeaver-triggers": "SELECT x.oid, x.* FROM pg_catalog.pg_trigger x WHERE x.tgrelid = 'public.orders'::regclass AND NOT x.tgisinternal",
    "dbeaver-extensions": "SELECT e.oid, e.extname, e.extversion FROM pg_catalog.pg_extension e ORDER BY e.extname",
    "grafana-columns": """
        SELECT quote_ident(column_name) AS "column", data_type AS "type" FROM information_schema.columns
        WHERE CASE WHEN array_length(parse_ident('orders'), 1) = 2 THEN quote_ident(table_schema) = (parse_ident('orders'))[1]
              AND quote_ident(table_name) = (parse_ident('orders'))[2]
              ELSE quote_ident(table_name) = 'orders' AND quote_ident(table_schema) IN (SELECT CASE WHEN trim(s[i]) = '"$user"' THEN user
              ELSE trim(s[i]) END FROM generate_series(array_lower(string_to_array(current_setting('search_path'), ','), 1),
              array_upper(string_to_array(current_setting('search_path'), ','), 1)) AS i,
              string_to_array(current_setting('search_path'), ',') s) END""",
    "grafana-variable": "SELECT region AS __text, region AS __value FROM city GROUP BY region ORDER BY 1",
    "grafana-version": "SELECT current_setting('server_version_num')::int / 100 AS version",
    "grafana-tables": """
        SELECT CASE WHEN quote_ident(table_schema) = 'public' THEN quote_ident(table_name)
               ELSE quote_ident(table_schema) || '.' || quote_ident(table_name) END AS "table"
        FROM information_schema.tables
        WHERE quote_ident(table_schema) NOT IN ('information_schema', 'pg_catalog', '_timescaledb_cache')
        ORDER BY CASE WHEN quote_ident(table_schema) = 'public' THEN 0 ELSE 1 END, 1""",
    "grafana-timescale": "SELECT 1 FROM pg_extension WHERE extname = 'timescaledb'",
    "superset-views": """
        SELECT pg_catalog.pg_class.relname FROM pg_catalog.pg_class
        JOIN pg_catalog.pg_namespace ON pg_catalog.pg_namespace.oid = pg_catalog.pg_class.relnamespace
        WHERE pg_catalog.pg_class.relkind = ANY (ARRAY['m'::"char"]) AND pg_catalog.pg_namespace.nspname = 'public'""",
    "public-preview": "SELECT * FROM (SELECT city, region FROM public.city) AS virtual_table ORDER BY city LIMIT 101",
}

# Settings and transactions around what is asked; each is a script whose last statement is compared.
SCRIPTS = {
    "jdbc-floats": (
        "SET extra_float_digits = 3",
        "SET application_name = 'PostgreSQL JDBC Driver'",
        "SELECT 0.1::float8 + 0.2",
    ),
    "metabase-session": ("SET SESSION TIMEZONE TO 'US/Pacific'", "SELECT timestamptz '2025-01-01 00:00:00+00'"),
    "read-only": ("BEGIN READ ONLY", "SELECT count(*) FROM city", "COMMIT"),
    "isolation": (
        "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED",
        "SHOW transaction_isolation",
    ),
    "timeout": ("SET statement_timeout TO 60000", "SHOW statement_timeout"),
    "search-path": ("SET search_path TO public, pg_catalog", "SELECT current_schemas(false)"),
    "bytea": ("SET bytea_output TO 'escape'", "SELECT '\\x41ff'::bytea"),
    "dates": ("SET DateStyle TO 'SQL, DMY'", "SELECT date '2025-03-04'"),
    "tableau-temporary": (
        'CREATE LOCAL TEMPORARY TABLE "#Tableau_1_Connect" ("COL" INTEGER) ON COMMIT PRESERVE ROWS',
        'INSERT INTO "#Tableau_1_Connect" VALUES (1)',
        'SELECT "COL" FROM "#Tableau_1_Connect"',
        'DROP TABLE "#Tableau_1_Connect"',
    ),
    "tableau-select-into": (
        'SELECT * INTO TEMPORARY "#Tableau_2" FROM (SELECT 1 AS "COL") AS "C" LIMIT 1',
        'TABLE "#Tableau_2"',
    ),
    "metabase-read-only": (
        "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
        "SHOW default_transaction_read_only",
        "SELECT count(*) FROM city",
    ),
    "dbeaver-name": ("SET application_name = 'DBeaver 24.2.0 - Main <demo>'", "SHOW application_name"),
    "powerbi-discard": ("DISCARD ALL", "SELECT count(*) FROM city"),
    "npgsql-reset": (
        "CLOSE ALL",
        "UNLISTEN *",
        "SELECT pg_advisory_unlock_all()",
        "DISCARD SEQUENCES",
        "DISCARD TEMP",
        "SELECT 1",
    ),
    "grafana-deadline": ("SET statement_timeout = '30s'", "SET TIME ZONE 'UTC'", "SHOW statement_timeout"),
    "cursor-with-hold": (
        "BEGIN",
        'DECLARE "SQL_CUR1" CURSOR WITH HOLD FOR SELECT city FROM city ORDER BY city',
        "COMMIT",
        'FETCH 3 IN "SQL_CUR1"',
        'CLOSE "SQL_CUR1"',
    ),
}

_BY_REGION = "SELECT region, count(*) AS n FROM orders GROUP BY region"
_SUMS = 'SELECT "orders"."region" AS "region", SUM("orders"."amount") AS "sum:amount:ok" FROM "public"."orders" "orders" GROUP BY 1'

# Probes of a shape: no rows, and nothing is paid.
PROBES = {
    "limit-0": f"{_BY_REGION} LIMIT 0",
    "wrapped-limit-0": f'SELECT * FROM ({_BY_REGION}) AS "t" LIMIT 0',
    "wrapped-1=0": f'SELECT * FROM ({_BY_REGION}) AS "t" WHERE 1=0',
    "wrapped-false": f"SELECT * FROM ({_BY_REGION}) t WHERE FALSE",
    "wrapped-twice": f'SELECT * FROM (SELECT * FROM ({_BY_REGION}) AS "Custom SQL Query") AS "t" LIMIT 0',
    "table-limit-0": 'SELECT * FROM "public"."orders" LIMIT 0',
    "table-1=0": 'SELECT * FROM "public"."orders" WHERE 1=0',
    "metabase-may-select": 'SELECT TRUE AS "_" FROM "public"."orders" WHERE 1 <> 1 LIMIT 0',
    "superset-columns": 'SELECT * FROM (SELECT * FROM "public"."orders") AS "t" LIMIT 0',
    "with-limit-0": 'WITH "x" AS (SELECT * FROM "public"."orders") SELECT * FROM "x" LIMIT 0',
    "table-command": 'TABLE "public"."orders" LIMIT 0',
    "dbt-empty": f"SELECT * FROM ({_BY_REGION}) AS __dbt_sbq WHERE false LIMIT 0",
}

# Questions, and how many rows they have (None: as many as are decided).
QUESTIONS: dict[str, tuple[str, int | None]] = {
    "metabase-count": (
        "-- Metabase:: userID: 1 queryType: MBQL queryHash: 0f\n"
        'SELECT "public"."orders"."region" AS "region", COUNT(*) AS "count" FROM "public"."orders" '
        'GROUP BY "public"."orders"."region" ORDER BY "public"."orders"."region" ASC',
        7,
    ),
    "metabase-source": (
        'SELECT "source"."region" AS "region", "source"."count" AS "count" FROM (SELECT "public"."orders"."region" AS "region", '
        'COUNT(*) AS "count" FROM "public"."orders" GROUP BY "public"."orders"."region") AS "source" '
        'WHERE "source"."count" > 1 LIMIT 1048575',
        7,
    ),
    "metabase-months": (
        'SELECT DATE_TRUNC(\'month\', "public"."orders"."ordered_on") AS "ordered_on", COUNT(*) AS "count" '
        'FROM "public"."orders" GROUP BY DATE_TRUNC(\'month\', "public"."orders"."ordered_on") ORDER BY 1 ASC',
        12,
    ),
    "metabase-months-cast": (
        'SELECT CAST(DATE_TRUNC(\'month\', "public"."orders"."ordered_on") AS date) AS "ordered_on", '
        'SUM("public"."orders"."amount") AS "sum" FROM "public"."orders" '
        'GROUP BY CAST(DATE_TRUNC(\'month\', "public"."orders"."ordered_on") AS date) ORDER BY 1 ASC',
        12,
    ),
    "tableau-sum": (_SUMS, 7),
    "tableau-members": (
        'SELECT "orders"."category" AS "category" FROM "public"."orders" "orders" GROUP BY 1 ORDER BY 1 ASC NULLS FIRST',
        5,
    ),
    "tableau-total": (
        'SELECT SUM(1) AS "sum:Number of Records:ok" FROM "public"."orders" "orders" HAVING (COUNT(1) > 0)',
        1,
    ),
    "tableau-custom-sql": (
        f'SELECT "Custom SQL Query"."region" AS "region", SUM("Custom SQL Query"."n") AS "sum:n:ok" '
        f'FROM (\n{_BY_REGION}\n) "Custom SQL Query" GROUP BY 1',
        7,
    ),
    "tableau-year": (
        'SELECT CAST(TRUNC(EXTRACT(QUARTER FROM "orders"."ordered_on")) AS INTEGER) AS "qr:ordered_on:ok", '
        'COUNT(1) AS "cnt" FROM "public"."orders" "orders" GROUP BY 1',
        4,
    ),
    "tableau-filter": (
        'SELECT "orders"."category" AS "category", AVG("orders"."amount") AS "avg:amount:ok" FROM "public"."orders" "orders" '
        "WHERE (\"orders\".\"region\" IN ('northeast', 'southwest')) GROUP BY 1",
        5,
    ),
    "powerbi-fold": (
        'select "_"."region", "_"."a0" from (select "rows"."region" as "region", sum("rows"."amount") as "a0" from '
        '(select "region", "amount" from "public"."orders" "$Table") "rows" group by "region") "_" '
        'where not "_"."a0" is null limit 1000001',
        7,
    ),
    "powerbi-count": ('select count(1) as "a0" from "public"."orders" "$Table"', 1),
    "powerbi-members": (
        'select "region" from (select "region" from "public"."orders" "$Table") "rows" group by "region" limit 1001',
        7,
    ),
    "dbeaver-count": ("SELECT count(*) FROM public.orders", 1),
    "dbeaver-result-count": (f"SELECT COUNT(*) FROM ({_BY_REGION}) dbvrcnt", 1),
    "dbeaver-ordered": (f"SELECT * FROM ({_BY_REGION}) z_q ORDER BY n DESC LIMIT 200 OFFSET 0", 7),
    "grafana-days": (
        'SELECT floor(extract(epoch from ordered_on)/2592000)*2592000 AS "time", count(*) AS n FROM orders '
        "WHERE ordered_on BETWEEN '2025-01-01T00:00:00Z' AND '2025-06-30T23:59:59Z' GROUP BY 1 ORDER BY 1",
        7,
    ),
    "grafana-macro": (
        "SELECT date_trunc('month', ordered_on) AS \"time\", category AS metric, count(*) AS value FROM orders "
        "WHERE ordered_on >= '2025-03-01' AND ordered_on < '2025-05-01' GROUP BY 1, 2 ORDER BY 1, 2",
        10,
    ),
    "superset-chart": (
        "SELECT region AS region, COUNT(*) AS count FROM public.orders GROUP BY region HAVING COUNT(*) > 20000 "
        "ORDER BY count DESC LIMIT 1000",
        None,
    ),
    "superset-virtual": (
        f'SELECT region AS region, sum(n) AS "SUM(n)" FROM ({_BY_REGION}) AS virtual_table GROUP BY region '
        'ORDER BY "SUM(n)" DESC LIMIT 10000',
        7,
    ),
    "superset-months": (
        "SELECT DATE_TRUNC('month', ordered_on) AS ordered_on, sum(amount) AS \"SUM(amount)\" FROM public.orders "
        "WHERE ordered_on >= TO_DATE('2025-01-01', 'YYYY-MM-DD') AND ordered_on < TO_DATE('2025-07-01', 'YYYY-MM-DD') "
        "GROUP BY DATE_TRUNC('month', ordered_on) LIMIT 10000",
        None,
    ),
    "superset-series": (
        "SELECT category AS category, region AS region, count(*) AS count FROM public.orders JOIN "
        "(SELECT region AS region__, count(*) AS mme_inner__ FROM public.orders GROUP BY region ORDER BY mme_inner__ DESC "
        "LIMIT 3) AS series_limit ON region = region__ GROUP BY category, region ORDER BY count DESC LIMIT 1000",
        None,
    ),
    "metabase-join": (
        'SELECT "City"."region" AS "City__region", COUNT(*) AS "count" FROM "public"."orders" LEFT JOIN "public"."city" AS "City" '
        'ON "public"."orders"."city" = "City"."city" GROUP BY "City"."region" ORDER BY "City"."region" ASC',
        8,  # and those without a city
    ),
    "metabase-bins": (
        'SELECT FLOOR((("public"."orders"."amount" - 0.0) / 50.0)) * 50.0 + 0.0 AS "amount", COUNT(*) AS "count" FROM "public"."orders" '
        'GROUP BY FLOOR((("public"."orders"."amount" - 0.0) / 50.0)) * 50.0 + 0.0 '
        'ORDER BY FLOOR((("public"."orders"."amount" - 0.0) / 50.0)) * 50.0 + 0.0 ASC',
        11,
    ),
    "metabase-weekdays": (
        'SELECT CAST(extract(dow from "public"."orders"."ordered_on") AS integer) + 1 AS "ordered_on", COUNT(*) AS "count" '
        'FROM "public"."orders" GROUP BY CAST(extract(dow from "public"."orders"."ordered_on") AS integer) + 1 ORDER BY 1 ASC',
        7,
    ),
    "metabase-weeks": (
        'SELECT CAST((CAST(DATE_TRUNC(\'week\', ("public"."orders"."ordered_on" + INTERVAL \'1 day\')) AS timestamp) '
        '+ INTERVAL \'-1 day\') AS date) AS "ordered_on", COUNT(*) AS "count" FROM "public"."orders" '
        'GROUP BY CAST((CAST(DATE_TRUNC(\'week\', ("public"."orders"."ordered_on" + INTERVAL \'1 day\')) AS timestamp) '
        "+ INTERVAL '-1 day') AS date) ORDER BY 1",
        53,
    ),
    "metabase-count-where": (
        'SELECT "public"."orders"."region" AS "region", SUM(CASE WHEN "public"."orders"."category" = \'food\' THEN 1 ELSE 0.0 END) '
        'AS "count-where" FROM "public"."orders" GROUP BY "public"."orders"."region"',
        7,
    ),
    "metabase-share": (
        'SELECT "public"."orders"."region" AS "region", CAST(SUM(CASE WHEN "public"."orders"."category" = \'food\' THEN 1 ELSE 0.0 END) '
        'AS DOUBLE PRECISION) / NULLIF(CAST(COUNT(*) AS DOUBLE PRECISION), 0.0) AS "share" FROM "public"."orders" '
        'GROUP BY "public"."orders"."region"',
        7,
    ),
    "metabase-cumulative": (
        'SELECT DATE_TRUNC(\'month\', "public"."orders"."ordered_on") AS "ordered_on", SUM(COUNT(*)) OVER (ORDER BY '
        'DATE_TRUNC(\'month\', "public"."orders"."ordered_on") ASC ROWS UNBOUNDED PRECEDING) AS "count" FROM "public"."orders" '
        'GROUP BY DATE_TRUNC(\'month\', "public"."orders"."ordered_on") ORDER BY 1 ASC',
        12,
    ),
    "metabase-relative-days": (
        'SELECT "public"."orders"."region" AS "region", COUNT(*) AS "count" FROM "public"."orders" WHERE "public"."orders"."ordered_on" '
        '< CAST((NOW() + (INTERVAL \'-30 day\')) AS date) GROUP BY "public"."orders"."region"',
        7,
    ),
    "metabase-relative-months": (
        'SELECT "public"."orders"."region" AS "region", COUNT(*) AS "count" FROM "public"."orders" WHERE "public"."orders"."ordered_on" '
        '< DATE_TRUNC(\'month\', (NOW() + (INTERVAL \'-1 month\'))) GROUP BY "public"."orders"."region"',
        7,
    ),
    "metabase-moments": (
        'SELECT COUNT(*) AS "count" FROM "public"."orders" WHERE "public"."orders"."ordered_on" >= timestamp with time zone '
        '\'2025-02-01 00:00:00.000Z\' AND "public"."orders"."ordered_on" < timestamp with time zone \'2025-03-01 00:00:00.000Z\'',
        1,
    ),
    "metabase-contains": (
        'SELECT COUNT(*) FROM "public"."orders" WHERE (LOWER("public"."orders"."category") LIKE \'%oo%\')',
        1,
    ),
    "metabase-model": (
        'SELECT "source"."City__region" AS "City__region", SUM("source"."amount") AS "sum" FROM (SELECT "public"."orders"."amount" AS '
        '"amount", "public"."orders"."city" AS "city", "City"."city" AS "City__city", "City"."region" AS "City__region" FROM '
        '"public"."orders" LEFT JOIN "public"."city" AS "City" ON "public"."orders"."city" = "City"."city") AS "source" '
        'GROUP BY "source"."City__region"',
        8,
    ),
    "metabase-custom-column": (
        'SELECT "source"."big" AS "big", COUNT(*) FROM (SELECT "public"."orders"."amount" AS "amount", CASE WHEN "public"."orders"."amount" '
        '>= 100 THEN \'big\' ELSE \'small\' END AS "big" FROM "public"."orders") AS "source" GROUP BY "source"."big"',
        2,
    ),
    "tableau-joined": (
        'SELECT "city"."region" AS "region", SUM("orders"."amount") AS "sum:amount:ok" FROM "public"."orders" "orders" '
        'INNER JOIN "public"."city" "city" ON ("orders"."city" = "city"."city") GROUP BY 1',
        7,
    ),
    "tableau-months": (
        'SELECT DATE_TRUNC( \'MONTH\', CAST("orders"."ordered_on" AS TIMESTAMP WITHOUT TIME ZONE) ) AS "tmn:ordered_on:ok", '
        'COUNT(1) AS "cnt" FROM "public"."orders" "orders" GROUP BY 1',
        12,
    ),
    "tableau-having": (
        'SELECT "patient_data"."disease" AS "disease" FROM "public"."patient_data" "patient_data" GROUP BY 1 HAVING (COUNT(1) > 2500)',
        None,
    ),
    "tableau-distinct": (
        'SELECT COUNT(DISTINCT "orders"."customer_id") AS "ctd:customer_id:ok" FROM "public"."orders" "orders" HAVING (COUNT(1) > 0)',
        1,
    ),
    "tableau-ratio": (
        'SELECT "orders"."region" AS "region", (SUM("orders"."amount") / NULLIF(COUNT("orders"."order_id"),0)) AS "usr:Calculation:ok" '
        'FROM "public"."orders" "orders" GROUP BY 1',
        7,
    ),
    "tableau-fixed": (
        'SELECT "t0"."region" AS "region", AVG("t0"."s") AS "avg" FROM (SELECT "orders"."region" AS "region", "orders"."category" AS '
        '"category", SUM("orders"."amount") AS "s" FROM "public"."orders" "orders" GROUP BY 1, 2) "t0" GROUP BY 1',
        7,
    ),
    "tableau-exclude": (
        'SELECT "orders"."region" AS "region", COUNT(1) FROM "public"."orders" "orders" WHERE (NOT ("orders"."region" IN (\'south\')) '
        'OR ("orders"."region" IS NULL)) GROUP BY 1',
        6,
    ),
    "tableau-days-of-a-month": (
        'SELECT (CAST("orders"."ordered_on" AS DATE)) AS "tdy", COUNT(1) AS "n" FROM "public"."orders" "orders" WHERE '
        '(CAST(TRUNC(EXTRACT(MONTH FROM "orders"."ordered_on")) AS INTEGER) = 3) GROUP BY 1',
        31,
    ),
    "powerbi-several": (
        'select "_"."region", "_"."a0", "_"."a1" from (select "rows"."region" as "region", sum("rows"."amount") as "a0", '
        'avg("rows"."amount") as "a1" from (select "_"."region", "_"."amount" from "public"."orders" "_" where "_"."category" = \'food\' '
        'and "_"."category" is not null) "rows" group by "region") "_" where (not "_"."a0" is null or not "_"."a1" is null) limit 1000001',
        7,
    ),
    "powerbi-related": (
        'select "_"."region", "_"."a0" from (select "rows"."region" as "region", count(1) as "a0" from (select "$Outer"."order_id", '
        '"$Inner"."region" from (select "order_id", "city" from "public"."orders" "$Table") "$Outer" left outer join (select "city" as '
        '"city2", "region" from "public"."city" "$Table") "$Inner" on ("$Outer"."city" = "$Inner"."city2")) "rows" group by "region") "_" '
        'where not "_"."a0" is null limit 1000001',
        8,
    ),
    "powerbi-span": (
        'select "rows"."category" as "category", count(1) as "a0" from (select "_"."category" from "public"."orders" "_" where '
        '"_"."ordered_on" >= timestamp \'2025-01-01 00:00:00\' and "_"."ordered_on" < timestamp \'2025-02-01 00:00:00\') "rows" '
        'group by "category"',
        5,
    ),
    "powerbi-largest": (
        'select "rows"."city" as "city", sum("rows"."amount") as "a0" from (select "city", "amount" from "public"."orders" "$Table") "rows" '
        'group by "city" order by "a0" desc, "city" limit 10',
        10,
    ),
    "dbeaver-grouping": (
        "SELECT region, COUNT(*) FROM (SELECT * FROM public.orders) src GROUP BY region ORDER BY COUNT(*) DESC",
        7,
    ),
    "dbeaver-rows": ("SELECT COUNT(*) FROM ( SELECT * FROM public.orders x WHERE x.region = 'south' ) dbvrcnt", 1),
    "dbeaver-distinct": ("SELECT DISTINCT x.region FROM public.orders x ORDER BY 1 LIMIT 200", 7),
    "grafana-builder": ("SELECT COUNT(order_id), region FROM orders GROUP BY region LIMIT 50 ", 7),
    "grafana-milliseconds": (
        "SELECT extract(epoch from ordered_on)*1000 AS \"time\", count(*) FROM orders WHERE ordered_on BETWEEN '2025-01-01T00:00:00Z' "
        "AND '2025-01-20T00:00:00Z' GROUP BY ordered_on ORDER BY 1",
        20,
    ),
    "grafana-weeks": (
        "SELECT date_trunc('week', ordered_on::timestamptz) AS time, count(*) AS orders FROM orders WHERE ordered_on >= "
        "'2025-01-01T00:00:00Z'::timestamptz AND ordered_on < '2025-03-01T00:00:00Z'::timestamptz GROUP BY time ORDER BY time",
        9,
    ),
    "grafana-epochs": (
        "SELECT count(*) FROM orders WHERE extract(epoch from ordered_on) >= 1735689600 AND extract(epoch from ordered_on) <= 1738368000",
        1,
    ),
    "superset-rowcount": (
        "SELECT COUNT(*) AS rowcount FROM (SELECT region AS region, COUNT(*) AS count FROM public.orders GROUP BY region LIMIT 1000) "
        "AS rowcount_qry",
        1,
    ),
    "looker-ranked": (
        f"SELECT * FROM (SELECT *, DENSE_RANK() OVER (ORDER BY n DESC) AS z___rank FROM ({_BY_REGION}) ww) aa WHERE z___rank <= 3",
        3,
    ),
    "looker-distinct": (
        'SELECT COUNT(DISTINCT orders.customer_id) AS "orders.customers" FROM public.orders AS orders LIMIT 500',
        1,
    ),
}

# Rows: refused with 42501 and a sentence, whatever the wrapping.
ROWS = {
    "preview": "SELECT * FROM public.orders LIMIT 200",
    "metabase-fingerprint": 'SELECT "public"."orders"."city" AS "city" FROM "public"."orders" LIMIT 10000',
    "powerbi-navigator": 'select "$Table"."order_id" as "order_id", "$Table"."city" as "city" from "public"."orders" "$Table" limit 1000',
    "superset-samples": "SELECT * FROM (SELECT order_id, amount FROM public.orders) AS virtual_table LIMIT 1000",
    "superset-columns-of-virtual": "SELECT region, amount FROM orders WHERE amount > 1 LIMIT 1",
    "metabase-fingerprint-text": 'SELECT SUBSTRING("public"."orders"."city", 1, 1234) AS "city" FROM "public"."orders" LIMIT 10000',
    "dbeaver-data": "SELECT x.* FROM public.orders x LIMIT 200",
    "grafana-raw": 'SELECT ordered_on AS "time", amount FROM orders ORDER BY 1 LIMIT 50',
    "tableau-top": 'SELECT "orders"."order_id" AS "order_id" FROM "public"."orders" "orders" LIMIT 100',
}
