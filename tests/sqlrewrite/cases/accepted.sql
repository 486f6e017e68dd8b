-- Each statement is answered, and without noise its rows are PostgreSQL's own.
-- A trailing "-- empty" says that groups of the public domain may be empty in the data: they are answered too.

-- seed 1 and 2: ProBE and MIDE, single atoms and trees
SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > 100;
SELECT disease, count(*) FROM patient_data GROUP BY disease HAVING count(*) >= 100;
SELECT disease FROM patient_data GROUP BY disease HAVING count(*) < 100;
SELECT disease FROM patient_data GROUP BY disease HAVING count(*) <= 100;
SELECT disease FROM patient_data WHERE disease_type = 'viral' GROUP BY disease HAVING count(*) > 20;
SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > 50 AND avg(age) > 48;
SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > 50 AND avg(age) < 52.5;
SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > 200 OR count(*) < 60;
SELECT disease FROM patient_data GROUP BY disease HAVING NOT (count(*) > 200 OR count(*) < 60);
SELECT disease FROM patient_data GROUP BY disease HAVING count(*) BETWEEN 60 AND 200;
SELECT disease FROM patient_data GROUP BY disease HAVING count(*) NOT BETWEEN 60 AND 200;
SELECT disease FROM patient_data GROUP BY disease HAVING (count(*) > 100 AND sum(age) > 6000) OR count(*) FILTER (WHERE gender = 'f') > 30;
SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > 100 AND count(*) > 100;
SELECT disease FROM patient_data GROUP BY disease HAVING 100 < count(*);
SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > 10 * 10 + 5;
SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > 99.5;
SELECT disease FROM patient_data GROUP BY disease HAVING sum(age) > 5000;
SELECT disease FROM patient_data GROUP BY disease HAVING sum(age) >= 5000 AND sum(age) <= 9000;
SELECT disease FROM patient_data GROUP BY disease HAVING count(*) FILTER (WHERE age > 65) > 20 AND count(*) FILTER (WHERE age < 18) > 10;
SELECT disease FROM patient_data GROUP BY disease HAVING count(weight) > 100;
SELECT disease FROM patient_data GROUP BY disease HAVING count(*) >= 30 AND avg(weight) > 79.5;
SELECT disease FROM patient_data GROUP BY disease HAVING count(*) FILTER (WHERE smoker) >= 30 AND avg(weight) FILTER (WHERE smoker) > 79;
SELECT disease FROM patient_data GROUP BY disease HAVING count(*) >= 30 AND sum(weight) / count(*) > 70;
SELECT disease FROM patient_data GROUP BY disease HAVING count(*) >= 30 AND 1.0 * count(*) FILTER (WHERE smoker) / count(*) > 0.25;
SELECT disease FROM patient_data GROUP BY disease HAVING count(*) >= 30 AND 100.0 * count(*) FILTER (WHERE gender = 'f') / count(*) > 33;
SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > 2 * count(*) FILTER (WHERE age > 50);
SELECT disease FROM patient_data GROUP BY disease HAVING count(*) FILTER (WHERE gender = 'm') - count(*) FILTER (WHERE gender = 'f') > 2;
SELECT disease, gender FROM patient_data GROUP BY disease, gender HAVING count(*) > 40;
SELECT disease, gender, count(*) AS n FROM patient_data GROUP BY 1, 2 HAVING count(*) > 40 ORDER BY n DESC, disease, gender;
SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > 50 AND count(*) < 250 AND sum(age) > 2000;
SELECT disease, count(*) FROM patient_data GROUP BY disease HAVING count(*) > 500 AND count(*) < 400;
SELECT disease, avg(age) FROM patient_data GROUP BY disease HAVING count(*) > 5 AND count(*) < 6;
SELECT disease FROM patient_data GROUP BY disease HAVING false;
SELECT count(*) FROM patient_data HAVING count(*) < 0;
SELECT count(*) FROM patient_data HAVING count(*) >= 0;
SELECT count(*) FROM patient_data WHERE false HAVING count(*) >= 0;
SELECT disease, count(*) FROM patient_data GROUP BY ROLLUP (disease) HAVING count(*) < 0;
SELECT disease, count(*) FROM patient_data GROUP BY disease HAVING count(*) > 5 OR count(*) <= 5;
SELECT disease FROM patient_data GROUP BY disease HAVING sum(weight) >= 0;
SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > 100 OR (avg(age) > 50 AND count(*) < 0);

-- thresholds of a public table joined on the keys: capacity per ward
SELECT p.disease FROM patient_data p JOIN ward w ON w.disease = p.disease GROUP BY p.disease, w.capacity HAVING count(*) > w.capacity;
SELECT p.disease, w.capacity, count(*) FROM patient_data p JOIN ward w USING (disease) GROUP BY p.disease, w.capacity HAVING count(*) >= 2 * w.capacity;
SELECT w.wing, count(*) FROM patient_data p JOIN ward w ON p.disease = w.disease GROUP BY w.wing;
SELECT w.wing FROM patient_data p INNER JOIN ward w ON p.disease = w.disease WHERE p.age > 40 GROUP BY w.wing HAVING count(*) > 300;

-- set operations of decisions over the same keys (thesis, chapter 6), and the equivalent CTE and IN forms
SELECT disease FROM patient_data WHERE age > 50 GROUP BY disease HAVING count(*) > 50 INTERSECT SELECT disease FROM patient_data WHERE age <= 50 GROUP BY disease HAVING count(*) > 50;
SELECT disease FROM patient_data WHERE age > 50 GROUP BY disease HAVING count(*) > 100 UNION SELECT disease FROM patient_data WHERE age <= 50 GROUP BY disease HAVING count(*) > 100;
SELECT disease FROM patient_data WHERE age > 50 GROUP BY disease HAVING count(*) > 50 EXCEPT SELECT disease FROM patient_data WHERE gender = 'f' GROUP BY disease HAVING count(*) > 60;
WITH old AS (SELECT disease FROM patient_data WHERE age > 50 GROUP BY disease HAVING count(*) > 50), young AS (SELECT disease FROM patient_data WHERE age <= 50 GROUP BY disease HAVING count(*) > 50) SELECT old.disease FROM old JOIN young ON old.disease = young.disease;
WITH old AS (SELECT disease FROM patient_data WHERE age > 50 GROUP BY disease HAVING count(*) > 50) SELECT * FROM old WHERE disease IN (SELECT disease FROM patient_data WHERE age <= 50 GROUP BY disease HAVING count(*) > 50);
(SELECT city FROM orders WHERE category = 'food' GROUP BY city HAVING sum(amount) > 5000) INTERSECT (SELECT city FROM orders WHERE category = 'toys' GROUP BY city HAVING sum(amount) > 5000) ORDER BY 1;

-- quantiles
SELECT category FROM orders GROUP BY category HAVING count(*) >= 50 AND percentile_cont(0.5) WITHIN GROUP (ORDER BY amount) > 240;

-- numbers: counts
SELECT count(*) FROM patient_data;
SELECT count(*) AS n FROM patient_data WHERE age >= 65;
SELECT gender, count(*) FROM patient_data GROUP BY gender;
SELECT gender, smoker, count(*) FROM patient_data GROUP BY gender, smoker;
SELECT disease_type, count(weight) FROM patient_data GROUP BY disease_type;
SELECT count(*), count(weight) FROM patient_data;
SELECT disease, count(*) FILTER (WHERE smoker) AS smokers, count(*) AS everybody FROM patient_data GROUP BY disease;
SELECT count(DISTINCT customer_id) FROM orders;
SELECT city, count(DISTINCT customer_id) FROM orders GROUP BY city;
SELECT city, count(*), count(DISTINCT customer_id) AS customers FROM orders GROUP BY city;

-- numbers: sums, averages, spreads
SELECT sum(age) FROM patient_data;
SELECT disease, sum(age) FROM patient_data GROUP BY disease;
SELECT disease, avg(age) FROM patient_data GROUP BY disease;
SELECT disease, avg(weight) FROM patient_data GROUP BY disease;
SELECT city, sum(amount), avg(amount), count(*) FROM orders GROUP BY city;
SELECT category, sum(amount * quantity) FROM orders GROUP BY category;
SELECT category, sum(amount - 10) FROM orders GROUP BY category;
SELECT category, avg(quantity) FROM orders GROUP BY category;
SELECT category, sum(amount) FILTER (WHERE region = 'north') FROM orders GROUP BY category;
SELECT gender, variance(age), stddev(age) FROM patient_data GROUP BY gender;
SELECT gender, var_pop(age), stddev_pop(age), var_samp(age), stddev_samp(age) FROM patient_data GROUP BY gender;
SELECT stddev(amount) FROM orders;
SELECT avg(dep_delay), avg(arr_delay) FROM flights;
SELECT carrier, avg(arr_delay), count(arr_delay) FROM flights GROUP BY carrier;
SELECT sum(CASE WHEN dep_delay > 15 THEN 1 ELSE 0 END) AS late FROM flights;
SELECT origin, avg(CASE WHEN arr_delay > 0 THEN 1.0 ELSE 0 END) AS share FROM flights GROUP BY origin;
SELECT category, sum(coalesce(discount, 0)) FROM orders GROUP BY category;
SELECT sum(amount) / count(*) AS mean, sum(amount) / sum(quantity) AS per_piece FROM orders;
SELECT region, round(sum(amount) / count(DISTINCT customer_id), 2) AS per_customer FROM orders GROUP BY region;

-- derived keys, with their domain worked out from the column's
SELECT date_trunc('month', ordered_on), count(*) FROM orders GROUP BY date_trunc('month', ordered_on);
SELECT date_trunc('month', ordered_on) AS month, sum(amount) FROM orders GROUP BY month ORDER BY month;
SELECT extract(month FROM ordered_on) AS month, count(*) FROM orders GROUP BY 1 ORDER BY 1;
SELECT extract(hour FROM pickup), count(*) FROM trips GROUP BY 1; -- empty
SELECT extract(dow FROM seen) AS weekday, count(*) FROM patient_data GROUP BY weekday;
SELECT width_bucket(age, 0, 100, 10) AS decade, count(*) FROM patient_data GROUP BY decade; -- empty
SELECT width_bucket(amount, 0, 500, 5), count(*) FROM orders GROUP BY 1; -- empty
SELECT age / 10 AS decade, count(*) FROM patient_data GROUP BY 1;
SELECT age / 10 * 10 AS decade, count(*), avg(weight) FROM patient_data GROUP BY 1 ORDER BY 1;
SELECT age % 2 AS odd, count(*) FROM patient_data GROUP BY age % 2;
SELECT CASE WHEN age < 18 THEN 'child' WHEN age < 65 THEN 'adult' ELSE 'senior' END AS band, count(*) FROM patient_data GROUP BY band;
SELECT CASE WHEN amount > 250 THEN 'large' ELSE 'small' END AS size, count(*), sum(amount) FROM orders GROUP BY 1;
SELECT CASE gender WHEN 'f' THEN 'women' WHEN 'm' THEN 'men' ELSE 'others' END AS g, count(*) FROM patient_data GROUP BY g;
SELECT upper(disease), count(*) FROM patient_data GROUP BY upper(disease);
SELECT upper(disease) AS d, count(*) FROM patient_data GROUP BY disease;
SELECT age::text AS age, count(*) FROM patient_data WHERE age < 5 GROUP BY age::text; -- empty
SELECT smoker, age > 50 AS old, count(*) FROM patient_data GROUP BY 1, 2;
SELECT left(chapter, 1) AS letter, count(*) FROM encounters GROUP BY 1;
SELECT sold_at::date AS day, count(*) FROM transactions GROUP BY 1; -- empty
SELECT date_trunc('week', sold_at) AS week, sum(sales_value) FROM transactions GROUP BY 1; -- empty
SELECT quantity * 2 AS q, count(*) FROM transactions GROUP BY quantity * 2;
SELECT week, store_id, sum(quantity) FROM transactions GROUP BY week, store_id; -- empty

-- grouping sets
SELECT region, category, count(*) FROM orders GROUP BY ROLLUP (region, category);
SELECT region, category, sum(amount) FROM orders GROUP BY CUBE (region, category);
SELECT gender, smoker, count(*) FROM patient_data GROUP BY GROUPING SETS ((gender), (smoker), ());
SELECT gender, disease_type, count(*), grouping(gender, disease_type) AS g FROM patient_data GROUP BY ROLLUP (gender, disease_type) ORDER BY g, gender, disease_type;

-- SELECT DISTINCT and keys alone
SELECT DISTINCT gender FROM patient_data;
SELECT DISTINCT gender, smoker FROM patient_data ORDER BY 1, 2;
SELECT disease FROM patient_data GROUP BY disease ORDER BY disease DESC LIMIT 3;

-- WHERE
SELECT count(*) FROM patient_data WHERE gender IN ('f', 'm');
SELECT count(*) FROM patient_data WHERE gender NOT IN ('f', 'm');
SELECT count(*) FROM patient_data WHERE age BETWEEN 20 AND 30;
SELECT count(*) FROM patient_data WHERE age NOT BETWEEN 20 AND 30 AND gender <> 'x';
SELECT count(*) FROM patient_data WHERE disease LIKE 'd%';
SELECT count(*) FROM patient_data WHERE disease_type LIKE '%al' AND disease NOT LIKE 'd_%x';
SELECT count(*) FROM patient_data WHERE disease_type ILIKE 'VIR%';
SELECT count(*) FROM patient_data WHERE weight IS NULL;
SELECT count(*) FROM patient_data WHERE weight IS NOT NULL AND NOT smoker;
SELECT count(*) FROM patient_data WHERE smoker;
SELECT count(*) FROM patient_data WHERE smoker IS TRUE OR age > 90;
SELECT count(*) FROM patient_data WHERE seen >= date '2025-03-01' AND seen < date '2025-03-01' + interval '1 month';
SELECT count(*) FROM patient_data WHERE seen >= '2025-03-01' AND seen < '2025-06-01';
SELECT count(*) FROM patient_data WHERE age * 2 > 100;
SELECT count(*) FROM flights WHERE arr_delay > dep_delay;
SELECT count(*) FROM flights WHERE arr_delay - dep_delay > 10;
SELECT count(*) FROM trips WHERE tip > fare * 0.2;
SELECT count(*) FROM trips WHERE extract(hour FROM pickup) BETWEEN 7 AND 9;
SELECT count(*) FROM patient_data WHERE (age > 50 OR smoker) AND gender = 'f';
SELECT count(*) FROM patient_data WHERE gender = ANY (ARRAY['f', 'x']);
SELECT count(*) FROM patient_data WHERE weight > 70.5;
SELECT count(*) FROM patient_data WHERE weight > 70.5 IS TRUE;
SELECT count(*) FROM trips WHERE pickup >= timestamp '2020-01-15 00:00';
SELECT count(*) FROM patient_data WHERE 1 = 1 AND age > 10;

-- joins
SELECT c.region, sum(o.amount) FROM orders o JOIN city c ON o.city = c.city GROUP BY c.region;
SELECT c.region, count(*) FROM orders o LEFT JOIN city c ON o.city = c.city GROUP BY c.region; -- empty
SELECT p.department, sum(t.sales_value) FROM transactions t JOIN products p ON t.product_id = p.product_id GROUP BY p.department;
SELECT p.department, p.brand, count(*) FROM transactions t JOIN products p USING (product_id) GROUP BY p.department, p.brand; -- empty
SELECT pz.borough, dz.borough AS to_borough, count(*) FROM trips t JOIN zones pz ON t.pu_zone = pz.location_id JOIN zones dz ON t.do_zone = dz.location_id GROUP BY pz.borough, dz.borough; -- empty
SELECT a.name, avg(f.arr_delay) FROM flights f JOIN airlines a ON a.carrier = f.carrier GROUP BY a.name;
SELECT count(*) FROM orders o JOIN city c ON o.city = c.city WHERE c.population > 3000;
SELECT o.category, sum(i.price) FROM order_items i JOIN orders o ON i.order_id = o.order_id GROUP BY o.category;
SELECT i.product, count(*) FROM order_items i JOIN orders o ON o.order_id = i.order_id WHERE o.region = 'north' GROUP BY i.product;

-- post-processing
SELECT t.city, sum(t.n) FROM (SELECT city, region, count(*) AS n FROM orders GROUP BY 1, 2) t WHERE t.region = 'north' GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 10; -- empty
SELECT disease, n, rank() OVER (ORDER BY n DESC, disease) FROM (SELECT disease, count(*) AS n FROM patient_data GROUP BY disease) q ORDER BY 3;
SELECT disease, count(*), rank() OVER (ORDER BY count(*) DESC) FROM patient_data GROUP BY disease;
SELECT disease, round(100.0 * count(*) / sum(count(*)) OVER (), 1) AS percent FROM patient_data GROUP BY disease;
WITH t AS (SELECT disease, count(*) AS n FROM patient_data GROUP BY disease) SELECT w.wing, sum(t.n) FROM t JOIN ward w USING (disease) GROUP BY w.wing ORDER BY 1;
SELECT disease, CASE WHEN count(*) > 150 THEN 'many' ELSE 'few' END AS how FROM patient_data GROUP BY disease;
SELECT disease, count(*)::numeric(10, 2) AS n, count(*) * 2 + 1 AS m FROM patient_data GROUP BY disease;
SELECT max(n), min(n), avg(n) FROM (SELECT disease, count(*) AS n FROM patient_data GROUP BY disease) t;
SELECT (SELECT count(*) FROM patient_data) AS patients, (SELECT count(*) FROM flights) AS flights;
SELECT a.gender, a.n, b.n AS smokers FROM (SELECT gender, count(*) n FROM patient_data GROUP BY gender) a JOIN (SELECT gender, count(*) n FROM patient_data WHERE smoker GROUP BY gender) b USING (gender);
SELECT c.city, c.population, q.n FROM city c LEFT JOIN (SELECT city, count(*) AS n FROM orders GROUP BY city) q ON q.city = c.city ORDER BY c.city;
SELECT gender, count(*) FROM patient_data GROUP BY gender UNION ALL SELECT 'total', count(*) FROM patient_data;
SELECT string_agg(disease, ', ' ORDER BY disease) FROM (SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > 100) t;
SELECT disease, lag(count(*)) OVER (ORDER BY disease) AS before FROM patient_data GROUP BY disease ORDER BY disease;
SELECT * FROM (SELECT disease, count(*) FROM patient_data GROUP BY disease) AS t WHERE 1 = 0;
SELECT disease, count(*) FROM patient_data GROUP BY disease LIMIT 0;
SELECT disease AS "Disease", count(*) AS "Number of Patients" FROM patient_data GROUP BY disease ORDER BY "Number of Patients" DESC, 1 OFFSET 2;
SELECT DISTINCT ON (gender) gender, disease_type, count(*) FROM patient_data GROUP BY gender, disease_type ORDER BY gender, disease_type;
SELECT "public"."patient_data"."disease" AS "disease", count(*) AS "count" FROM "public"."patient_data" GROUP BY "public"."patient_data"."disease" ORDER BY "count" DESC, "public"."patient_data"."disease" ASC;
SELECT coalesce(gender, 'all') AS g, count(*) FROM patient_data GROUP BY ROLLUP (gender) ORDER BY 1;
SELECT gender, sum(count(*)) OVER (ORDER BY gender) AS running FROM patient_data GROUP BY gender;
SELECT width_bucket(n, 0, 400, 4) AS b, count(*) FROM (SELECT disease, count(*) AS n FROM patient_data GROUP BY disease) t GROUP BY 1 ORDER BY 1;

-- SELECTs in FROM that only pick and rename: Power BI's folding, Metabase's joins, virtual datasets
select "rows"."city" as "city", count(1) as "a0" from (select "city","amount" from "public"."orders" "$Table") "rows" group by "city";
select "rows"."city" as "city", sum("rows"."amount") as "a0" from (select "_"."city", "_"."amount" from "public"."orders" "_" where "_"."region" = 'north' and "_"."region" is not null) "rows" group by "city"; -- empty
select "_"."category", "_"."a0" from (select "rows"."category" as "category", sum("rows"."amount") as "a0" from (select "category", "amount" from "public"."orders" "$Table") "rows" group by "category") "_" where not "_"."a0" is null limit 1000001;
select "_"."c" as "c", count(*) from (select "$Table"."city" as "c", "$Table"."amount" as "a" from "public"."orders" "$Table") "_" where "_"."a" > 250 group by "_"."c" order by 1 limit 1000001;
select "region" from (select "region" from "public"."orders" "$Table") "rows" group by "region" order by "region" limit 1001;
select distinct "region" from (select "region" from "public"."orders" "$Table") "rows";
select "$Outer"."region", sum("$Outer"."amount") as "a" from (select "amount", "city", "city" as "k", c."region" from "public"."orders" join city c using (city)) "$Outer" where "$Outer"."k" <> 'c7' group by "$Outer"."region";
SELECT count(*) FROM (SELECT age FROM patient_data) t;
SELECT count(*) FROM (SELECT * FROM patient_data);
SELECT count(*), sum(t.age) FROM ((SELECT * FROM patient_data WHERE gender = 'f')) AS t WHERE t.age < 50 AND smoker;
SELECT region AS region, COUNT(*) AS count FROM (SELECT * FROM orders ORDER BY order_id) AS virtual_table GROUP BY region HAVING COUNT(*) > 20 ORDER BY count DESC LIMIT 1000;
SELECT t.decade, count(*), avg(t.w) FROM (SELECT age / 10 AS decade, weight * 2 AS w, smoker AS s FROM patient_data) t WHERE s GROUP BY t.decade ORDER BY t.decade;
SELECT upper(t.d) AS disease, count(*) FROM (SELECT disease AS d FROM patient_data) t GROUP BY t.d;
SELECT old, count(*) FROM (SELECT age >= 65 AS old FROM patient_data) t GROUP BY old;
SELECT sum(one), count(*) FROM (SELECT 1 AS one, p.* FROM patient_data p) t WHERE disease = 'd1';
SELECT "source"."gender" AS "gender", COUNT(*) AS "count" FROM (SELECT "public"."patient_data"."gender" AS "gender", "public"."patient_data"."age" AS "age" FROM "public"."patient_data" WHERE "public"."patient_data"."age" > 30) AS "source" WHERE "source"."age" < 60 GROUP BY "source"."gender" ORDER BY "source"."gender" ASC;
SELECT a, count(*) FROM (SELECT x AS a FROM (SELECT y AS x, age FROM (SELECT gender AS y, age, smoker FROM patient_data WHERE smoker) u) v WHERE age > 20) w GROUP BY a ORDER BY a;
SELECT "City"."region" AS "City__region", COUNT(*) AS "count" FROM "public"."orders" LEFT JOIN (SELECT "public"."city"."city" AS "city", "public"."city"."region" AS "region" FROM "public"."city") AS "City" ON "public"."orders"."city" = "City"."city" GROUP BY "City"."region"; -- empty
SELECT c.r, sum(o.amount) FROM (SELECT city, amount FROM orders WHERE quantity > 2) o JOIN (SELECT city AS k, region AS r FROM city WHERE population > 2000) c ON o.city = c.k GROUP BY c.r;
SELECT w.wing, count(*) FROM (SELECT disease, age FROM patient_data) p JOIN (SELECT * FROM ward) w USING (disease) WHERE p.age > 10 GROUP BY w.wing;
SELECT count(*) FROM (SELECT DISTINCT gender FROM patient_data) t;
SELECT extract(month FROM t.at) AS m, count(*) FROM (SELECT ordered_on AS at, extract(year FROM ordered_on) AS y FROM orders) t WHERE y = 2025 GROUP BY 1 ORDER BY 1;
SELECT disease FROM (SELECT disease, age FROM patient_data) t GROUP BY disease HAVING count(*) > 100 AND avg(age) > 40;
SELECT count(DISTINCT c) FROM (SELECT customer_id AS c FROM orders WHERE region = 'north') t;
SELECT gender, count(*) FROM (SELECT age AS gender_age, gender FROM patient_data) t WHERE gender_age BETWEEN 20 AND 30 GROUP BY gender ORDER BY gender;

-- tables with a comma between them
SELECT count(*) FROM orders o, city c WHERE o.city = c.city AND c.population > 3000;
SELECT c.region, sum(o.amount) FROM city c, orders o WHERE c.city = o.city GROUP BY c.region;
SELECT p.department, count(*) FROM transactions t, products p WHERE (t.product_id = p.product_id) AND t.quantity > 2 GROUP BY p.department;
SELECT o.category, sum(i.price) FROM order_items i, orders o WHERE i.order_id = o.order_id GROUP BY o.category;
SELECT r, count(*) FROM (SELECT c.region AS r FROM orders, city c WHERE orders.city = c.city AND orders.quantity > 1) t GROUP BY r;

-- moments as tools write them
SELECT count(*) FROM orders WHERE ordered_on >= TO_DATE('2025-01-10', 'YYYY-MM-DD') AND ordered_on < TO_DATE('2025-02-01', 'yyyy-mm-dd');
SELECT count(*) FROM orders WHERE ordered_on >= to_date('20250110', 'YYYYMMDD') AND ordered_on < to_date('02/01/2025', 'MM/DD/YYYY');
SELECT count(*) FROM trips WHERE pickup >= TO_TIMESTAMP('2020-01-05 12:30:00.000000', 'YYYY-MM-DD HH24:MI:SS.US') AND pickup < TO_TIMESTAMP('2020-02-01 00:00:00', 'YYYY-MM-DD HH24:MI:SS');
SELECT count(*) FROM trips WHERE pickup >= to_timestamp('2020-01-05T12:30:00', 'YYYY-MM-DD"T"HH24:MI:SS');
SELECT count(*) FROM trips WHERE pickup >= CAST('2020-01-05 12:30:00.000' AS TIMESTAMP) AND pickup < TIMESTAMP '2020-02-01 00:00:00';
SELECT count(*) FROM trips WHERE pickup >= to_timestamp(1578227400) AND pickup < to_timestamp(1580000000.5);
SELECT count(*) FROM orders WHERE ordered_on BETWEEN make_date(2025, 1, 10) AND (DATE '2025-02-10');
SELECT count(*) FROM trips WHERE pickup < make_timestamp(2020, 1, 10, 6, 30, 0.5);
SELECT count(*) FROM orders WHERE ordered_on > to_date('2025-01-10 13:00:00', 'YYYY-MM-DD HH24:MI:SS') + 7;

-- KPI queries over the retail, taxi, flights and diabetes shapes
SELECT store_id, sum(sales_value) AS revenue FROM transactions GROUP BY store_id ORDER BY revenue DESC, store_id LIMIT 5;
SELECT store_id FROM transactions WHERE week BETWEEN 1 AND 4 GROUP BY store_id HAVING sum(sales_value) > 1900;
SELECT store_id, week FROM transactions GROUP BY store_id, week HAVING count(*) > 20 AND sum(quantity) > 60;
SELECT week, count(DISTINCT household_id) AS households, sum(sales_value) FROM transactions GROUP BY week ORDER BY week;
SELECT store_id, sum(sales_value) / count(DISTINCT household_id) AS per_household FROM transactions GROUP BY store_id;
SELECT pu_zone FROM trips GROUP BY pu_zone HAVING count(*) > 160 AND avg(fare) > 45;
SELECT pu_zone, avg(tip), avg(fare), avg(distance) FROM trips GROUP BY pu_zone;
SELECT payment, count(*), sum(fare + tip) AS paid FROM trips GROUP BY payment;
SELECT payment FROM trips GROUP BY payment HAVING count(*) >= 100 AND sum(tip) / sum(fare) > 0.18;
SELECT carrier, origin, count(*), avg(dep_delay) FROM flights GROUP BY carrier, origin;
SELECT carrier FROM flights GROUP BY carrier HAVING count(*) > 100 AND avg(arr_delay) > 80;
SELECT month, count(*) FILTER (WHERE dep_delay > 60) AS very_late, count(*) AS flights FROM flights GROUP BY month ORDER BY month;
SELECT dest, sum(distance) AS miles FROM flights WHERE origin = 'JFK' GROUP BY dest;
SELECT age_band, gender, count(*) FROM encounters GROUP BY age_band, gender; -- empty
SELECT chapter, avg(days), avg(medications) FROM encounters GROUP BY chapter;
SELECT chapter FROM encounters WHERE readmitted = '<30' GROUP BY chapter HAVING count(*) > 140;
SELECT chapter, readmitted, count(DISTINCT patient_nbr) FROM encounters GROUP BY chapter, readmitted; -- empty
SELECT chapter, 100.0 * count(*) FILTER (WHERE readmitted = '<30') / count(*) AS rate FROM encounters GROUP BY chapter;
SELECT category FROM orders GROUP BY category HAVING count(*) / count(DISTINCT customer_id) >= 1 AND count(*) >= 100;
SELECT tier, count(*), sum(amount) FROM orders GROUP BY tier;
SELECT city, ordered_on, count(*), avg(amount) FROM orders WHERE ordered_on < date '2025-01-15' GROUP BY 1, 2; -- empty

-- seeds 3 to 5: counting queries over ranges and sets (DProvDB's random range queries and BFS, parallel composition, relaxation)
SELECT count(*) FROM patient_data WHERE age >= 20 AND age < 40;
SELECT count(*) FROM patient_data WHERE age BETWEEN 20 AND 40 AND gender = 'f' AND disease IN ('d1', 'd2', 'd3');
SELECT count(*) FROM flights WHERE month BETWEEN 3 AND 5 AND distance BETWEEN 500 AND 1500 AND origin <> 'LGA';
SELECT count(*) FROM orders WHERE amount > 100 AND amount <= 200 AND (region = 'north' OR category = 'food');
SELECT age, count(*) FROM patient_data GROUP BY age ORDER BY age;
SELECT sum(amount) FROM orders WHERE ordered_on BETWEEN '2025-01-10' AND '2025-02-10' AND quantity >= 5;
