-- One statement that is refused, then its SQLSTATE and a part of what is said.

SELECT * FROM patient_data;
-- 42501: SELECT *

SELECT p.* FROM patient_data p;
-- 42501: SELECT *

TABLE patient_data;
-- 42501: SELECT *

SELECT disease FROM patient_data;
-- 42501: not grouped

SELECT disease, count(*) FROM patient_data;
-- 42501: not grouped

SELECT disease, age FROM patient_data GROUP BY disease;
-- 42501: "age"

SELECT patient_data FROM patient_data;
-- 42501: "patient_data"

SELECT p FROM patient_data p GROUP BY p;
-- 42501: "p"

SELECT ctid FROM patient_data;
-- 42501: "ctid"

SELECT xmin, count(*) FROM patient_data GROUP BY xmin;
-- 42501: "xmin"

SELECT tableoid FROM patient_data;
-- 42501: "tableoid"

SELECT count(*) FROM patient_data WHERE ctid = '(0,1)';
-- 42501: "ctid"

SELECT gender FROM patient_data GROUP BY gender ORDER BY age;
-- 42501: "age"

SELECT disease FROM patient_data ORDER BY 1 LIMIT 1;
-- 42501: not grouped

SELECT disease FROM patient_data HAVING count(*) > 5;
-- 42501: not grouped

INSERT INTO patient_data (patient_id) VALUES (1);
-- 25006: INSERT

INSERT INTO city SELECT disease, disease FROM patient_data;
-- 25006: INSERT

UPDATE patient_data SET age = 1;
-- 25006: UPDATE

DELETE FROM patient_data;
-- 25006: DELETE

MERGE INTO patient_data USING city ON true WHEN MATCHED THEN DELETE;
-- 25006: MERGE

TRUNCATE patient_data;
-- 25006: TRUNCATE

ALTER TABLE patient_data ADD x int;
-- 25006: ALTER

DROP TABLE patient_data;
-- 25006: DROP

COMMENT ON TABLE patient_data IS 'x';
-- 25006: COMMENT

COPY patient_data FROM STDIN;
-- 25006: COPY

WITH d AS (DELETE FROM patient_data RETURNING *) SELECT count(*) FROM d;
-- 25006: would change

COPY patient_data TO STDOUT;
-- 0A000: COPY

EXPLAIN SELECT count(*) FROM patient_data;
-- 0A000: EXPLAIN

EXPLAIN ANALYZE SELECT count(*) FROM patient_data;
-- 0A000: EXPLAIN

PREPARE q AS SELECT count(*) FROM patient_data;
-- 0A000: PREPARE

DECLARE c CURSOR FOR SELECT count(*) FROM patient_data;
-- 0A000: DECLARE

LOCK TABLE patient_data;
-- 0A000: LOCK

VACUUM patient_data;
-- 0A000: VACUUM

ANALYZE patient_data;
-- 0A000: not answered

CREATE TEMP TABLE x AS SELECT count(*) FROM patient_data;
-- 0A000: not answered

DO $$ BEGIN PERFORM count(*) FROM patient_data; END $$;
-- 0A000: dollar

SELECT count(*) INTO x FROM patient_data;
-- 0A000: SELECT INTO

SELECT DISTINCT disease FROM patient_data;
-- 0A000: DISTINCT

SELECT DISTINCT ON (disease) disease FROM patient_data GROUP BY disease;
-- 0A000: DISTINCT

SELECT count(DISTINCT disease) FROM patient_data;
-- 0A000: DISTINCT

SELECT count(disease) FROM patient_data;
-- 0A000: write count(*)

SELECT count(1) FROM patient_data;
-- 0A000: write count(*)

SELECT sum(age) FROM patient_data;
-- 0A000: function sum

SELECT min(age), max(age) FROM patient_data;
-- 0A000: function min

SELECT avg(age) FROM patient_data GROUP BY disease;
-- 0A000: function avg

SELECT string_agg(disease, ',') FROM patient_data;
-- 0A000: not answered

SELECT array_agg(disease) FROM patient_data;
-- 0A000: function array_agg

SELECT json_agg(p) FROM patient_data p;
-- 0A000: not answered

SELECT count(*) FILTER (WHERE age > 5) FROM patient_data;
-- 0A000: FILTER

SELECT count(*) OVER () FROM patient_data;
-- 0A000: window

SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY age) FROM patient_data;
-- 0A000: WITHIN GROUP

SELECT gender FROM patient_data GROUP BY gender WINDOW w AS ();
-- 0A000: WINDOW

SELECT count(*) FROM patient_data JOIN city ON city = disease;
-- 0A000: join

SELECT count(*) FROM patient_data, city;
-- 0A000: join

SELECT count(*) FROM patient_data NATURAL JOIN city;
-- 0A000: join

SELECT count(*) FROM patient_data JOIN city;
-- 0A000: join

SELECT count(*) FROM patient_data CROSS JOIN LATERAL (SELECT 1) x;
-- 0A000: join

SELECT count(*) FROM (SELECT * FROM patient_data) x;
-- 0A000: subquery

SELECT count(*) FROM patient_data WHERE age IN (SELECT 1);
-- 0A000: subquery

SELECT count(*) FROM patient_data WHERE age = (SELECT max(age) FROM patient_data);
-- 0A000: subquery

SELECT count(*) FROM patient_data WHERE EXISTS (SELECT 1 FROM city);
-- 0A000: EXISTS

SELECT (SELECT count(*) FROM patient_data);
-- 0A000: subquery

SELECT gender FROM patient_data GROUP BY gender LIMIT (SELECT 1);
-- 0A000: subquery

SELECT gender FROM patient_data GROUP BY gender ORDER BY (SELECT 1);
-- 0A000: subquery

WITH x AS (SELECT 1) SELECT count(*) FROM patient_data;
-- 0A000: WITH

WITH x AS (SELECT count(*) FROM patient_data) SELECT count FROM x;
-- 0A000: WITH

SELECT count(*) FROM patient_data UNION SELECT 1;
-- 0A000: UNION

SELECT gender FROM patient_data GROUP BY gender INTERSECT SELECT 'F';
-- 0A000: INTERSECT

SELECT gender FROM patient_data GROUP BY gender EXCEPT SELECT 'F';
-- 0A000: EXCEPT

(SELECT count(*) FROM patient_data);
-- 0A000: subquery

VALUES ((SELECT count(*) FROM patient_data));
-- 0A000: VALUES

SELECT count(*) FROM patient_data FOR UPDATE;
-- 0A000: FOR UPDATE

SELECT count(*) FROM patient_data TABLESAMPLE system (10);
-- 0A000: TABLESAMPLE

SELECT count(*) FROM ONLY patient_data;
-- 0A000: ONLY

SELECT count(*) FROM patient_data AS p (a, b);
-- 0A000: renames

SELECT count(*) FROM clinic.public.patient_data;
-- 0A000: database

SELECT gender FROM patient_data GROUP BY ROLLUP (gender);
-- 0A000: not answered

SELECT gender FROM patient_data GROUP BY CUBE (gender);
-- 0A000: not answered

SELECT gender FROM patient_data GROUP BY GROUPING SETS ((gender), ());
-- 0A000: not answered

SELECT gender FROM patient_data GROUP BY ALL;
-- 0A000: GROUP BY ALL

SELECT gender FROM patient_data GROUP BY (gender, disease);
-- 0A000: row of several

SELECT count(*) FROM patient_data GROUP BY ();
-- 0A000: row of several

SELECT age / 10, count(*) FROM patient_data GROUP BY 1;
-- 0A000: not answered

SELECT upper(gender), count(*) FROM patient_data GROUP BY 1;
-- 0A000: not answered

SELECT CASE WHEN age > 5 THEN 1 END, count(*) FROM patient_data GROUP BY 1;
-- 0A000: not answered

SELECT gender COLLATE "C", count(*) FROM patient_data GROUP BY 1;
-- 0A000: not answered

SELECT gender::text, count(*) FROM patient_data GROUP BY gender;
-- 0A000: neither

SELECT 1, count(*) FROM patient_data;
-- 0A000: neither

SELECT count(*) + 1 FROM patient_data;
-- 0A000: not answered

SELECT FROM patient_data;
-- 0A000: select list is empty

SELECT count(*) FROM patient_data GROUP BY 1;
-- 0A000: GROUP BY takes columns

SELECT gender FROM patient_data GROUP BY 2;
-- 0A000: position 2

SELECT gender FROM patient_data GROUP BY gender ORDER BY 0;
-- 0A000: position 0

SELECT gender x, disease x FROM patient_data GROUP BY gender, disease ORDER BY x;
-- 0A000: two different

SELECT note, count(*) FROM patient_data GROUP BY note;
-- 0A000: no declared domain

SELECT patient_id FROM patient_data GROUP BY patient_id HAVING count(*) > 1;
-- 0A000: no declared domain

SELECT fever FROM patient_data GROUP BY fever;
-- 0A000: floating-point

SELECT count(*) FROM patient_data GROUP BY age, gender, disease, insured, weight, ward, feeling, admitted, "Odd ""Name";
-- 0A000: more than 1000000

SELECT gender FROM patient_data GROUP BY gender HAVING count(*) > 5 AND count(*) < 9;
-- 0A000: one condition

SELECT gender FROM patient_data GROUP BY gender HAVING count(*) BETWEEN 5 AND 9;
-- 0A000: one condition

SELECT gender FROM patient_data GROUP BY gender HAVING count(*) = 5;
-- 0A000: HAVING with =

SELECT gender FROM patient_data GROUP BY gender HAVING count(*) <> 5;
-- 0A000: HAVING with <>

SELECT gender FROM patient_data GROUP BY gender HAVING gender = 'F';
-- 0A000: HAVING compares

SELECT gender FROM patient_data GROUP BY gender HAVING count(*) > count(*);
-- 0A000: HAVING compares

SELECT gender FROM patient_data GROUP BY gender HAVING count(*) > NULL;
-- 0A000: finite number

SELECT gender FROM patient_data GROUP BY gender HAVING count(*) > 'NaN'::numeric;
-- 0A000: finite number

SELECT gender FROM patient_data GROUP BY gender HAVING count(*) > 500.5::int;
-- 0A000: cast of this constant

SELECT gender FROM patient_data GROUP BY gender HAVING count(*) > 2 + 3;
-- 0A000: not answered

SELECT gender FROM patient_data GROUP BY gender HAVING sum(age) > 5;
-- 0A000: function sum

SELECT gender FROM patient_data GROUP BY gender HAVING true;
-- 0A000: HAVING compares

SELECT count(*) FROM patient_data WHERE age = weight;
-- 0A000: WHERE compares

SELECT count(*) FROM patient_data WHERE age + 1 > 5;
-- 0A000: not answered

SELECT count(*) FROM patient_data WHERE 1 = 0;
-- 0A000: WHERE compares

SELECT count(*) FROM patient_data WHERE true;
-- 0A000: WHERE compares

SELECT count(*) FROM patient_data WHERE age;
-- 0A000: WHERE compares

SELECT count(*) FROM patient_data WHERE note LIKE 'a%';
-- 0A000: not answered

SELECT count(*) FROM patient_data WHERE note ~ 'a';
-- 0A000: not answered

SELECT count(*) FROM patient_data WHERE note ~~ 'b' || '%';
-- 0A000: not answered

SELECT count(*) FROM patient_data WHERE note::int = 5;
-- 0A000: WHERE compares

SELECT count(*) FROM patient_data WHERE 1 / age > 0;
-- 0A000: not answered

SELECT count(*) FROM patient_data WHERE age IS DISTINCT FROM 5;
-- 0A000: not answered

SELECT count(*) FROM patient_data WHERE insured IS UNKNOWN;
-- 0A000: UNKNOWN

SELECT count(*) FROM patient_data WHERE age BETWEEN SYMMETRIC 5 AND 1;
-- 0A000: SYMMETRIC

SELECT count(*) FROM patient_data WHERE age = ANY (ARRAY[1, 2]);
-- 0A000: not answered

SELECT count(*) FROM patient_data WHERE weight > '5'::float8;
-- 0A000: type numeric is not compared

SELECT count(*) FROM patient_data WHERE fever > 1e400;
-- 0A000: too large

SELECT count(*) FROM patient_data WHERE note = 5;
-- 0A000: type text is not compared

SELECT count(*) FROM patient_data WHERE age > '5'::text;
-- 0A000: type integer is not compared

SELECT count(*) FROM patient_data WHERE weight > '5'::numeric(3,1);
-- 0A000: length or precision

SELECT count(*) FROM patient_data WHERE feeling = 'sad'::public.mood;
-- 0A000: not answered

SELECT count(*) FROM patient_data WHERE note = E'a';
-- 0A000: prefix

SELECT count(*) FROM patient_data WHERE note = U&'a';
-- 0A000: prefix

SELECT count(*) FROM patient_data WHERE note = $$a$$;
-- 0A000: dollar

SELECT count(*) FROM patient_data WHERE note = 'a\b';
-- 0A000: backslash

SELECT count(*) FROM patient_data WHERE note = 'a' 'b';
-- 0A000: not answered

SELECT count(*) FROM patient_data WHERE age = :x;
-- 0A000: not answered

SELECT count(*) FROM patient_data WHERE age = @x;
-- 0A000: not answered

SELECT count(*) FROM patient_data WHERE age = ?;
-- 0A000: not answered

SELECT count(*) FROM patient_data WHERE admitted > now();
-- 0A000: not answered

SELECT count(*) FROM patient_data WHERE admitted > current_timestamp(0);
-- 0A000: not answered

SELECT count(*) FROM patient_data WHERE admitted > interval(0) '1.7 seconds';
-- 0A000: not answered

SELECT count(*) FROM patient_data WHERE age = |/ 16 + 9;
-- 0A000: not answered

SELECT count(*) FROM patient_data WHERE age = ~ 5 + 1;
-- 0A000: not answered

SELECT pg_catalog.count(*) FROM patient_data;
-- 0A000: qualified function

SELECT pg_sleep(1) FROM patient_data;
-- 0A000: function

SELECT query_to_xml('select 1', true, true, '') FROM patient_data;
-- 0A000: function

SELECT gender FROM patient_data GROUP BY gender FETCH FIRST 5 ROWS ONLY;
-- 0A000: FETCH

SELECT gender FROM patient_data GROUP BY gender LIMIT 1 + 1;
-- 0A000: not answered

SELECT gender FROM patient_data GROUP BY gender LIMIT -1;
-- 0A000: whole number

SELECT gender FROM patient_data GROUP BY gender LIMIT 99999999999999999999;
-- 0A000: 64-bit

SELECT count(*) FROM patient_data PIVOT (sum(age) FOR gender IN ('F'));
-- 0A000: PIVOT

SELECT count(*) FROM ROWS FROM (generate_series(1, 2));
-- 0A000: not answered

SELECT count(*) FROM generate_series(1, 2);
-- 0A000: not answered

SELECT count(*) FROM city;
-- 0A000: public

SELECT abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklm FROM patient_data;
-- 0A000: longer than 63

SELECT count(*) FROM nowhere;
-- 42P01: "nowhere"

SELECT count(*) FROM other.patient_data;
-- 42P01: "other.patient_data"

SELECT count(*) FROM "Patient_Data";
-- 42P01: "Patient_Data"

SELECT q.gender FROM patient_data p GROUP BY gender;
-- 42P01: "q"

SELECT patient_data.gender FROM patient_data p GROUP BY gender;
-- 42P01: "patient_data"

SELECT salary FROM patient_data GROUP BY salary;
-- 42703: "salary"

SELECT "Disease" FROM patient_data GROUP BY 1;
-- 42703: "Disease"

SELECT count(*) AS c FROM patient_data HAVING c > 5;
-- 0A000: HAVING compares

SELECT count(*) FROM patient_data WHERE p.x = 1;
-- 42P01: "p"

SELECT patient_data.count FROM patient_data;
-- 42703: "count"

FROM patient_data;
-- 42501: SELECT *

FROM patient_data SELECT count(*);
-- 42601: begins with SELECT

SELECT count(*) FROM patient_data {# hidden #};
-- 42601: U+007B

SELECT 1_000 FROM patient_data;
-- 42601: a number is followed

SELECT count(*) FROM patient_data WHERE age > 1_000;
-- 42601: a number is followed

SELECT count(*) FROM patient_data WHERE age > 0x10;
-- 42601: a number is followed

SELECT count(*) FROM patient_data WHERE note = 'open
-- 42601: quote

SELECT count(*) FROM patient_data /* open
-- 42601: comment

SELECT count(*) FROM patient_data /* a /* b */ c */;
-- 42601: comment

SELECT count(*) FROM `patient_data`;
-- 42601: U+0060

SELECT count(*) FROM patient_data; SELECT 1;
-- 42601: one statement

SELECT count(*) FROM patient_data WHERE;
-- 42601: could not be read

SELECT count(*) FROM patient_data ORDER BY count USING <;
-- 42601: could not be read
