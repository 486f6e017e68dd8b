-- Each statement is refused with the SQLSTATE in front of it, and nothing is charged for it.

-- rows as they are
42501 SELECT * FROM patient_data;
42501 SELECT p.* FROM patient_data p;
42501 SELECT age FROM patient_data;
42501 SELECT age, disease FROM patient_data WHERE patient_id = 7;
42501 SELECT 1 FROM patient_data;
42501 SELECT patient_data FROM patient_data;
42501 TABLE patient_data;
42501 SELECT age FROM patient_data ORDER BY age LIMIT 1;
42501 SELECT row_number() OVER (ORDER BY age) FROM patient_data;
42501 SELECT upper(disease) FROM patient_data;
42501 SELECT * FROM (SELECT * FROM patient_data) t;
42501 SELECT t.age FROM (SELECT age FROM patient_data) t WHERE age > 5;
42501 SELECT t FROM (SELECT age FROM patient_data) t;
42501 SELECT count(*) FROM (SELECT age FROM patient_data LIMIT 10) t;
42501 SELECT count(*) FROM (SELECT age, row_number() OVER () FROM patient_data) t;
42501 SELECT count(t.ctid) FROM (SELECT ctid FROM patient_data) t;
42501 WITH t AS (SELECT * FROM patient_data) SELECT count(*) FROM t;
42501 SELECT EXISTS (SELECT 1 FROM patient_data WHERE age = 99);
42501 SELECT 1 WHERE EXISTS (SELECT 1 FROM patient_data WHERE patient_id = 7);
42501 SELECT 1 WHERE 50 IN (SELECT age FROM patient_data);
42501 SELECT ARRAY(SELECT age FROM patient_data);
42501 SELECT (SELECT age FROM patient_data LIMIT 1);
42501 SELECT ctid FROM patient_data;
42501 SELECT DISTINCT ON (gender) gender, age FROM patient_data;
42501 SELECT random() FROM patient_data;
42501 SELECT city.city FROM city, LATERAL (SELECT age FROM patient_data) p;
42501 VALUES ((SELECT age FROM patient_data LIMIT 1));

-- aggregates that show rows, or have no private form
0A000 SELECT min(age) FROM patient_data;
0A000 SELECT max(age) FROM patient_data;
0A000 SELECT disease, max(age) FROM patient_data GROUP BY disease;
42501 SELECT string_agg(disease, ',') FROM patient_data;
42501 SELECT array_agg(age) FROM patient_data;
42501 SELECT json_agg(age) FROM patient_data;
42501 SELECT jsonb_object_agg(patient_id, age) FROM patient_data;
0A000 SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY age) FROM patient_data;
42501 SELECT mode() WITHIN GROUP (ORDER BY age) FROM patient_data;
0A000 SELECT bool_and(smoker) FROM patient_data;
42501 SELECT bit_or(age) FROM patient_data;
0A000 SELECT corr(age, patient_id) FROM patient_data;
0A000 SELECT count(DISTINCT disease) FROM patient_data;
0A000 SELECT sum(DISTINCT age) FROM patient_data;
0A000 SELECT count(DISTINCT city) FROM orders;
42501 SELECT any_value(age) FROM patient_data;
0A000 SELECT disease FROM patient_data GROUP BY disease HAVING max(age) > 90;
0A000 SELECT disease FROM patient_data GROUP BY disease HAVING stddev(age) > 10;
0A000 SELECT disease FROM patient_data GROUP BY disease HAVING count(*) = 100;
0A000 SELECT disease FROM patient_data GROUP BY disease HAVING count(*) <> 100;
0A000 SELECT disease FROM patient_data GROUP BY disease HAVING sum(age) * sum(age) > 100;
42501 SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > 5 AND string_agg(gender, '') LIKE 'f%';
0A000 SELECT disease FROM patient_data GROUP BY disease HAVING bool_or(smoker);
0A000 SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > (SELECT avg(population) FROM city);

-- an average without a guard on the group's size
54000 SELECT disease FROM patient_data GROUP BY disease HAVING avg(age) > 50;
54000 SELECT disease FROM patient_data GROUP BY disease HAVING sum(weight) / count(*) > 70;
54000 SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > 50 OR avg(age) > 50;

-- missing metadata
0A000 SELECT sum(patient_id) FROM patient_data;
0A000 SELECT avg(patient_id) FROM patient_data;
0A000 SELECT gender, sum(age * patient_id) FROM patient_data GROUP BY gender;

-- unknown names
42703 SELECT nosuch, count(*) FROM patient_data GROUP BY nosuch;
42703 SELECT count(*) FROM patient_data WHERE nosuch = 1;
42P01 SELECT count(*) FROM patient_data WHERE o.age = 1;
42P01 SELECT count(*) FROM patient_data p WHERE patient_data.age = 1;
42P01 SELECT count(*) FROM nosuch;
42883 SELECT nosuch(count(*)) FROM patient_data;
42803 SELECT age, count(*) FROM patient_data;
42803 SELECT age, count(*) FROM patient_data GROUP BY disease;
42803 SELECT count(count(*)) FROM patient_data;
42803 SELECT count(*) FROM patient_data WHERE count(*) > 5;
42804 SELECT count(*) FROM patient_data WHERE age;
22P02 SELECT count(*) FROM patient_data WHERE age = 'old';
42601 SELECT count(* FROM patient_data;
42601 SELECT FROM WHERE patient_data;
42601 SELECT count(*) FROM patient_data GROUP BY;
42P10 SELECT disease, count(*) FROM patient_data GROUP BY 5;

-- writes
25006 INSERT INTO patient_data (patient_id) VALUES (1);
25006 UPDATE patient_data SET age = 1;
25006 DELETE FROM patient_data;
25006 TRUNCATE patient_data;
25006 DELETE FROM patient_data WHERE age = 50 RETURNING age;
25006 MERGE INTO patient_data p USING city c ON false WHEN MATCHED THEN DELETE;
42501 DROP TABLE patient_data;
42501 ALTER TABLE patient_data ADD x int;
25P01 LOCK TABLE patient_data;
42501 CREATE INDEX ON patient_data (age);

-- answers that cannot be kept where the statement says
42501 CREATE TABLE t AS SELECT count(*) FROM patient_data;
42501 CREATE TABLE public.t AS SELECT gender, count(*) FROM patient_data GROUP BY gender WITH NO DATA;
42501 SELECT count(*) INTO t FROM patient_data;
42501 SELECT n INTO UNLOGGED t FROM (SELECT count(*) AS n FROM patient_data) q;
0A000 SELECT count(*) INTO TEMP t FROM patient_data;

-- statements around it
42501 COPY patient_data TO STDOUT;
25006 COPY patient_data FROM STDIN;
42501 COPY (SELECT * FROM patient_data) TO STDOUT;
42501 COPY patient_data (age) TO STDOUT;
0A000 EXPLAIN DECLARE c CURSOR FOR SELECT count(*) FROM patient_data;
25P01 DECLARE c CURSOR FOR SELECT count(*) FROM patient_data;
42501 DECLARE c CURSOR WITH HOLD FOR SELECT * FROM patient_data;
0A000 EXPLAIN ANALYZE SELECT count(*) FROM patient_data;
0A000 EXPLAIN (ANALYZE) SELECT count(*) FROM patient_data;
0A000 EXPLAIN (FORMAT XML) SELECT count(*) FROM patient_data;
42501 EXPLAIN SELECT * FROM patient_data;

-- questions inside questions
0A000 SELECT count(*) FROM patient_data WHERE age > (SELECT avg(age) FROM patient_data);
0A000 SELECT count(*) FROM patient_data WHERE disease IN (SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > 100);
0A000 SELECT count(*) FROM orders WHERE EXISTS (SELECT 1 FROM patient_data);
0A000 SELECT count(*) FILTER (WHERE age > (SELECT avg(age) FROM patient_data)) FROM patient_data;
0A000 SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > (SELECT count(*) / 10 FROM patient_data);
0A000 SELECT count(*) FROM patient_data WHERE disease IN (SELECT disease FROM ward WHERE capacity > 50);

-- SELECTs in FROM that cannot be read as a part of it
0A000 SELECT count(*) FROM (SELECT disease FROM patient_data) p JOIN (SELECT disease, sum(capacity) FROM ward GROUP BY disease) w USING (disease);
0A000 SELECT count(*) FROM (SELECT disease FROM patient_data) p LEFT JOIN (SELECT disease, coalesce(capacity, 5) AS n FROM ward) w ON p.disease = w.disease WHERE w.n > 5;
0A000 SELECT count(*) FROM patient_data p LEFT JOIN (SELECT disease FROM ward WHERE capacity > 50) w ON p.disease = w.disease;
0A000 SELECT count(*) FROM (SELECT age FROM patient_data) t(a);
0A000 SELECT count(*) FROM (SELECT age, md5(gender) AS m FROM patient_data) t;
0A000 SELECT count(*) FROM (SELECT age AS a FROM patient_data) x JOIN (SELECT age AS b FROM patient_data) y ON x.a = y.b;
0A000 SELECT count(*) FROM (SELECT age FROM patient_data WHERE age > (SELECT avg(age) FROM patient_data)) t;
0A000 SELECT sum(t.a) FROM (SELECT patient_id AS a FROM patient_data) t;
42702 SELECT count(a) FROM (SELECT age AS a, patient_id AS a FROM patient_data) t;
0A000 SELECT count(*) FROM orders o, city c WHERE o.region = c.region;
0A000 SELECT count(*) FROM orders o, city c WHERE o.city = c.city OR true;
0A000 SELECT count(*) FROM orders WHERE ordered_on > to_date('January', 'Month');
0A000 SELECT count(*) FROM orders WHERE ordered_on > to_date('2025-1-5', 'YYYY-MM-DD');
0A000 SELECT count(*) FROM orders WHERE ordered_on > to_date(category, 'YYYY-MM-DD');
0A000 SELECT count(*) FROM orders WHERE ordered_on > make_date(quantity, 1, 1);
0A000 SELECT count(*) FROM orders WHERE ordered_on > make_time(1, 2, 3) + date '2025-01-01';

-- joins that would multiply or mix people
0A000 SELECT count(*) FROM patient_data a JOIN patient_data b ON a.disease = b.disease;
0A000 SELECT count(*) FROM patient_data, orders;
0A000 SELECT count(*) FROM patient_data CROSS JOIN city;
0A000 SELECT count(*) FROM patient_data, city;
0A000 SELECT count(*) FROM orders o JOIN city c ON o.region = c.region;
0A000 SELECT count(*) FROM orders o RIGHT JOIN city c ON o.city = c.city;
0A000 SELECT count(*) FROM orders o FULL JOIN city c ON o.city = c.city;
0A000 SELECT count(*) FROM orders NATURAL JOIN city;
0A000 SELECT count(*) FROM orders o JOIN city c ON o.city < c.city;
0A000 SELECT count(*) FROM orders o JOIN city c ON o.city = c.city OR true;
0A000 SELECT count(*) FROM patient_data p JOIN orders o ON p.patient_id = o.customer_id;
0A000 SELECT count(*) FROM orders o JOIN generate_series(1, 10) g ON true;
0A000 SELECT count(*) FROM orders o JOIN (VALUES (1), (2)) v(x) ON true;
0A000 SELECT count(*) FROM orders o, unnest(ARRAY[1, 2, 3]) u;
0A000 SELECT count(*) FROM orders TABLESAMPLE SYSTEM (10);
0A000 SELECT count(*) FROM ONLY orders;
0A000 SELECT disease FROM patient_data GROUP BY disease OFFSET 1 FOR UPDATE;

-- expressions that can raise on data, or that nobody has thought about
0A000 SELECT count(*) FROM patient_data WHERE 1 / age > 0;
0A000 SELECT count(*) FROM patient_data WHERE 100 / (age - 50) > 0;
0A000 SELECT count(*) FROM patient_data WHERE disease::int > 5;
0A000 SELECT count(*) FROM patient_data WHERE disease ~ '^d[0-9]';
0A000 SELECT count(*) FROM patient_data WHERE disease SIMILAR TO 'd%';
0A000 SELECT count(*) FROM patient_data WHERE sqrt(age - 50) > 1;
0A000 SELECT count(*) FROM patient_data WHERE ln(age) > 1;
0A000 SELECT count(*) FROM patient_data WHERE pg_sleep(1) IS NULL;
0A000 SELECT count(*) FROM patient_data WHERE random() < 0.5;
0A000 SELECT sum(age / patient_id) FROM patient_data;
0A000 SELECT sum(disease::smallint) FROM patient_data;
0A000 SELECT sum(power(age, 100)) FROM patient_data;
0A000 SELECT md5(disease), count(*) FROM patient_data GROUP BY md5(disease);
0A000 SELECT count(*) FROM patient_data WHERE disease LIKE gender;
0A000 SELECT count(*) FROM patient_data WHERE (age, gender) = (1, 'f');
0A000 SELECT count(*) FROM patient_data WHERE age = ALL (ARRAY[1]);
0A000 SELECT count(*) FROM patient_data WHERE age > |/ 16 + 9;
0A000 SELECT count(*) FROM patient_data WHERE age > ||/ 19 + 8;
0A000 SELECT count(*) FROM patient_data WHERE age > ~ 5 + 1;
42804 SELECT count(*) FROM patient_data WHERE disease ~~ 'b' || '%';
0A000 SELECT count(*) FROM patient_data WHERE seen < now();
0A000 SELECT count(*) FROM patient_data WHERE disease = E'd1';
0A000 SELECT count(*) FROM patient_data WHERE disease = $$d1$$;
0A000 SELECT count(*) FROM patient_data WHERE disease = U&'d1';
0A000 SELECT count(*) FROM patient_data WHERE disease COLLATE "C" < 'd5';
0A000 SELECT count(*) FROM patient_data WHERE age BETWEEN SYMMETRIC 5 AND 3;
0A000 SELECT count(*) FROM patient_data WHERE age IN (gender::int);
0A000 SELECT count(*) FROM patient_data WHERE to_char(seen, 'YYYY') = '2025';
0A000 SELECT count(*) FROM patient_data WHERE query_to_xml('select 1', true, true, '') IS NULL;
42601 SELECT disease FROM patient_data GROUP BY ALL;
0A000 SELECT veil.low(age), count(*) FROM patient_data GROUP BY age;
0A000 SELECT veil.high(count(*) * 2) FROM patient_data;
0A000 SELECT veil.stddev(n) FROM (SELECT count(*) AS n FROM patient_data) t;
0A000 SELECT disease FROM patient_data GROUP BY disease HAVING veil.low(count(*)) > 50;
0A000 SELECT veil.low(3);
42883 SELECT veil.low(min(disease)) FROM patient_data;
42883 SELECT veil.middle(count(*)) FROM patient_data;

-- keys that PostgreSQL takes for one, in several grouping sets
0A000 SELECT ordered_on, ordered_on::date, count(*) FROM orders GROUP BY ROLLUP (ordered_on, ordered_on::date);
