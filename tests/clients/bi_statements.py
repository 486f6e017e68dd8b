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
