-- One statement, then what it was read as: keys | where | having | output columns.

SELECT count(*) FROM patient_data;
-- - | - | - | count

SELECT COUNT( * ) AS n FROM public.patient_data;
-- - | - | - | n

SELECT disease FROM patient_data GROUP BY disease;
-- disease | - | - | disease

SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > 500;
-- disease | - | count >= 501 | disease

SELECT disease FROM patient_data GROUP BY disease HAVING count(*) >= 500;
-- disease | - | count >= 500 | disease

SELECT disease FROM patient_data GROUP BY disease HAVING count(*) < 500;
-- disease | - | count <= 499 | disease

SELECT disease FROM patient_data GROUP BY disease HAVING count(*) <= 500;
-- disease | - | count <= 500 | disease

SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > 500.5;
-- disease | - | count >= 501 | disease

SELECT disease FROM patient_data GROUP BY disease HAVING count(*) >= 500.5;
-- disease | - | count >= 501 | disease

SELECT disease FROM patient_data GROUP BY disease HAVING count(*) < 500.5;
-- disease | - | count <= 500 | disease

SELECT disease FROM patient_data GROUP BY disease HAVING count(*) <= 500.5;
-- disease | - | count <= 500 | disease

SELECT disease FROM patient_data GROUP BY disease HAVING 500 < count(*);
-- disease | - | count >= 501 | disease

SELECT disease FROM patient_data GROUP BY disease HAVING (500) >= (count(*));
-- disease | - | count <= 500 | disease

SELECT disease FROM patient_data GROUP BY disease HAVING NOT count(*) > 500;
-- disease | - | count <= 500 | disease

SELECT disease FROM patient_data GROUP BY disease HAVING NOT (NOT (count(*) > 500));
-- disease | - | count >= 501 | disease

SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > -1;
-- disease | - | count >= 0 | disease

SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > 5e1;
-- disease | - | count >= 51 | disease

SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > .5;
-- disease | - | count >= 1 | disease

SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > '50'::bigint;
-- disease | - | count >= 51 | disease

SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > CAST(50.5 AS numeric);
-- disease | - | count >= 51 | disease

SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > 5 AND count(*) >= 6;
-- disease | - | count >= 6 | disease

SELECT disease, count(*) FROM patient_data GROUP BY disease;
-- disease | - | - | disease, count

SELECT count(*), disease FROM patient_data GROUP BY 2;
-- disease | - | - | count, disease

SELECT disease AS d, count(*) AS n FROM patient_data GROUP BY d HAVING count(*) > 1 ORDER BY n DESC, d LIMIT 3;
-- disease | - | count >= 2 | d, n

SELECT disease age, count(*) FROM patient_data GROUP BY disease ORDER BY age;
-- disease | - | - | age, count

SELECT count(*) FROM patient_data GROUP BY gender, disease;
-- gender disease | - | - | count

SELECT disease, gender FROM patient_data GROUP BY disease, gender, disease HAVING count(*) > 1;
-- gender disease | - | count >= 2 | disease, gender

SELECT gender FROM patient_data GROUP BY gender ORDER BY count(*) DESC NULLS LAST, gender;
-- gender | - | - | gender

SELECT count(*) FROM patient_data GROUP BY gender ORDER BY gender DESC;
-- gender | - | - | count

SELECT p.disease, count(*) FROM patient_data AS p WHERE p.age > 18 GROUP BY p.disease ORDER BY p.disease;
-- disease | age > 18::integer | - | disease, count

SELECT public.patient_data.gender FROM public.patient_data GROUP BY patient_data.gender;
-- gender | - | - | gender

SELECT "disease", Count(*) "How Many" FROM "patient_data" GROUP BY "disease";
-- disease | - | - | disease, How Many

SELECT "Odd ""Name", count(*) FROM patient_data GROUP BY "Odd ""Name" ORDER BY 1 NULLS FIRST;
-- Odd "Name | - | - | Odd "Name, count

SELECT count(*) FROM patient_data WHERE age >= 18 AND age <= 65;
-- - | (age <= 65::integer AND age >= 18::integer) | - | count

SELECT count(*) FROM patient_data WHERE age BETWEEN 18 AND 65;
-- - | (age <= 65::integer AND age >= 18::integer) | - | count

SELECT count(*) FROM patient_data WHERE age NOT BETWEEN 18 AND 65;
-- - | (age < 18::integer OR age > 65::integer) | - | count

SELECT count(*) FROM patient_data WHERE NOT (age >= 18 AND age <= 65);
-- - | (age < 18::integer OR age > 65::integer) | - | count

SELECT count(*) FROM patient_data WHERE 18 < age;
-- - | age > 18::integer | - | count

SELECT count(*) FROM patient_data WHERE disease = 'flu' OR disease = 'cold';
-- - | disease IN (cold::text, flu::text) | - | count

SELECT count(*) FROM patient_data WHERE disease IN ('flu', 'cold', 'flu');
-- - | disease IN (cold::text, flu::text) | - | count

SELECT count(*) FROM patient_data WHERE disease NOT IN ('flu', 'cold');
-- - | NOT disease IN (cold::text, flu::text) | - | count

SELECT count(*) FROM patient_data WHERE disease IN ('it''s -- no /* comment */; "x"');
-- - | disease = it's -- no /* comment */; "x"::text | - | count

SELECT count(*) FROM patient_data WHERE note IS NULL;
-- - | note IS NULL | - | count

SELECT count(*) FROM patient_data WHERE note IS NOT NULL AND NOT note IS NULL;
-- - | NOT note IS NULL | - | count

SELECT count(*) FROM patient_data WHERE insured;
-- - | insured = true::boolean | - | count

SELECT count(*) FROM patient_data WHERE NOT insured;
-- - | insured <> true::boolean | - | count

SELECT count(*) FROM patient_data WHERE insured IS NOT TRUE;
-- - | (insured <> true::boolean OR insured IS NULL) | - | count

SELECT count(*) FROM patient_data WHERE insured = false;
-- - | insured = false::boolean | - | count

SELECT count(*) FROM patient_data WHERE age > 18.0 AND weight > 60.50;
-- - | (age > 18::integer AND weight > 60.5::numeric) | - | count

SELECT count(*) FROM patient_data WHERE age <> -5 AND age != 7;
-- - | (age <> -5::integer AND age <> 7::integer) | - | count

SELECT count(*) FROM patient_data WHERE fever >= 38.5;
-- - | fever >= 38.5::numeric | - | count

SELECT count(*) FROM patient_data WHERE ward = 'A' AND ward < 'B1';
-- - | (ward < B1::bpchar AND ward = A::bpchar) | - | count

SELECT feeling, count(*) FROM patient_data WHERE feeling > 'sad' GROUP BY feeling ORDER BY feeling DESC;
-- feeling | feeling > sad::public.mood | - | feeling, count

SELECT admitted, count(*) FROM patient_data WHERE admitted >= '2024-01-02' GROUP BY 1 ORDER BY 1;
-- admitted | admitted >= 2024-01-02::date | - | admitted, count

SELECT count(*) FROM patient_data WHERE admitted >= date '2024-01-02' AND admitted < '2024-01-04'::timestamp;
-- - | (admitted < 2024-01-04::timestamp without time zone AND admitted >= 2024-01-02::date) | - | count

SELECT weight, insured, ward FROM patient_data GROUP BY weight, insured, ward ORDER BY 1, 2, 3;
-- insured weight ward | - | - | weight, insured, ward

SELECT count(*) FROM patient_data WHERE age = NULL;
-- - | age = NULL::integer | - | count

SELECT count(*) FROM patient_data WHERE (age > 10 AND (insured OR gender = 'F')) OR age IS NULL;
-- - | ((age > 10::integer AND (gender = F::text OR insured = true::boolean)) OR age IS NULL) | - | count

SELECT count(*) FROM patient_data HAVING count(*) > 3;
-- - | - | count >= 4 | count

SELECT gender /* which */ FROM patient_data -- of whom
GROUP BY gender LIMIT 2 OFFSET 1;
-- gender | - | - | gender

SELECT gender FROM patient_data GROUP BY gender ORDER BY gender LIMIT ALL OFFSET 0;
-- gender | - | - | gender

SELECT gender FROM patient_data AS pivot GROUP BY gender;
-- gender | - | - | gender

SELECT city, count(*) FROM orders WHERE amount < 100 GROUP BY city HAVING count(*) >= 2;
-- city | amount < 100::integer | count >= 2 | city, count

SELECT region, ordered_on, count(*) FROM orders GROUP BY 1, 2 ORDER BY 2 DESC, 1;
-- region ordered_on | - | - | region, ordered_on, count
