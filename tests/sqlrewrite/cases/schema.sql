-- Small tables in the shapes of the seed documents' and benches' data. Every group of every single-column domain is filled,
-- so that PostgreSQL's own answer has the same groups as the public domain.
CREATE TABLE ward (disease text PRIMARY KEY, capacity int NOT NULL, wing text NOT NULL);
INSERT INTO ward SELECT 'd' || i, 20 + 15 * i, CASE WHEN i % 2 = 0 THEN 'east' ELSE 'west' END FROM generate_series(0, 9) i;
CREATE TABLE patient_data (
  patient_id int PRIMARY KEY, age int NOT NULL, gender text NOT NULL, disease text NOT NULL REFERENCES ward,
  disease_type text NOT NULL, weight numeric(5,1), smoker boolean NOT NULL, seen date NOT NULL);
INSERT INTO patient_data
SELECT i, (i * 7919) % 101, CASE WHEN i % 3 = 0 THEN 'f' WHEN i % 3 = 1 THEN 'm' ELSE 'x' END,
       'd' || least(9, floor(sqrt((i * 31) % 100))::int), (ARRAY['viral', 'bacterial', 'chronic', 'injury', 'other'])[1 + (i * 13) % 5],
       CASE WHEN i % 11 = 0 THEN NULL ELSE 40 + ((i * 37) % 800) / 10.0 END, i % 4 = 0, date '2025-01-01' + (i * 17) % 365
FROM generate_series(1, 1500) i;

CREATE TABLE city (city text PRIMARY KEY, region text NOT NULL, population int NOT NULL);
INSERT INTO city SELECT 'c' || i, (ARRAY['north', 'south', 'east'])[1 + i % 3], 1000 * (i + 1) FROM generate_series(0, 7) i;
CREATE TABLE orders (
  order_id int PRIMARY KEY, customer_id int NOT NULL, city text NOT NULL REFERENCES city, region text NOT NULL,
  category text NOT NULL, amount numeric(8,2) NOT NULL, quantity int NOT NULL, discount numeric(4,2), ordered_on date NOT NULL,
  tier text NOT NULL);
INSERT INTO orders
SELECT i, 1 + (i * 53) % 300, c.city, c.region, (ARRAY['food', 'toys', 'books', 'clothes', 'garden'])[1 + (i * 7) % 5],
       ((i * 7877) % 50000) / 100.0, 1 + (i * 3) % 9, CASE WHEN i % 5 = 0 THEN NULL ELSE (i % 30) / 100.0 END,
       date '2025-01-01' + (i * 29) % 90, (ARRAY['gold', 'silver', 'basic'])[1 + ((i * 53) % 300) % 3]
FROM generate_series(1, 2000) i JOIN city c ON c.city = 'c' || floor(sqrt((i * 41) % 64))::int;
CREATE TABLE order_items (
  item_id int PRIMARY KEY, order_id int NOT NULL REFERENCES orders, product text NOT NULL, price numeric(7,2) NOT NULL);
INSERT INTO order_items
SELECT i, 1 + (i * 97) % 2000, (ARRAY['pen', 'lamp', 'soap'])[1 + i % 3], ((i * 331) % 9000) / 100.0 FROM generate_series(1, 3000) i;

CREATE TABLE products (product_id int PRIMARY KEY, department text NOT NULL, brand text NOT NULL);
INSERT INTO products SELECT i, (ARRAY['grocery', 'drug', 'produce'])[1 + i % 3], CASE WHEN i % 2 = 0 THEN 'national' ELSE 'private' END
FROM generate_series(1, 30) i;
CREATE TABLE transactions (
  transaction_id int PRIMARY KEY, household_id int NOT NULL, store_id int NOT NULL, product_id int NOT NULL REFERENCES products,
  quantity int NOT NULL, sales_value numeric(8,2) NOT NULL, week int NOT NULL, sold_at timestamp NOT NULL);
INSERT INTO transactions
SELECT i, 1 + (i * 71) % 150, 1 + (i * 11) % 12, 1 + (i * 17) % 30, 1 + i % 6, ((i * 613) % 4000) / 100.0, 1 + (i * 5) % 8,
       timestamp '2025-01-01 08:00' + (i * 37) % 56 * interval '1 day' + (i % 13) * interval '1 hour'
FROM generate_series(1, 2400) i;

CREATE TABLE zones (location_id int PRIMARY KEY, borough text NOT NULL, zone text NOT NULL);
INSERT INTO zones SELECT i, (ARRAY['Bronx', 'Queens', 'Manhattan'])[1 + i % 3], 'zone ' || i FROM generate_series(1, 12) i;
CREATE TABLE trips (
  trip_id int PRIMARY KEY, pu_zone int NOT NULL, do_zone int NOT NULL, passengers int, distance numeric(6,2) NOT NULL,
  fare numeric(8,2) NOT NULL, tip numeric(8,2) NOT NULL, payment int NOT NULL, pickup timestamp NOT NULL);
INSERT INTO trips
SELECT i, 1 + (i * 19) % 12, 1 + (i * 23) % 12, CASE WHEN i % 9 = 0 THEN NULL ELSE i % 6 END, ((i * 271) % 3000) / 100.0,
       3 + ((i * 457) % 9000) / 100.0, ((i * 61) % 2000) / 100.0, 1 + i % 4,
       timestamp '2020-01-01' + (i * 53) % 60 * interval '1 day' + (i * 7) % 24 * interval '1 hour'
FROM generate_series(1, 2000) i;

CREATE TABLE airlines (carrier text PRIMARY KEY, name text NOT NULL);
INSERT INTO airlines VALUES ('AA', 'American'), ('UA', 'United'), ('DL', 'Delta'), ('B6', 'JetBlue');
CREATE TABLE flights (
  flight_id int PRIMARY KEY, carrier text NOT NULL REFERENCES airlines, origin text NOT NULL, dest text NOT NULL, month int NOT NULL,
  day int NOT NULL, dep_delay int, arr_delay int, air_time int, distance int NOT NULL);
INSERT INTO flights
SELECT i, (ARRAY['AA', 'UA', 'DL', 'B6'])[1 + (i * 3) % 4], (ARRAY['EWR', 'JFK', 'LGA'])[1 + (i * 7) % 3],
       (ARRAY['ATL', 'BOS', 'LAX', 'ORD', 'SFO'])[1 + (i * 11) % 5], 1 + (i * 5) % 12, 1 + (i * 13) % 28,
       CASE WHEN i % 17 = 0 THEN NULL ELSE (i * 37) % 200 - 20 END, CASE WHEN i % 17 = 0 THEN NULL ELSE (i * 41) % 250 - 40 END,
       CASE WHEN i % 17 = 0 THEN NULL ELSE 40 + (i * 29) % 300 END, 150 + (i * 97) % 2400
FROM generate_series(1, 2000) i;

CREATE TABLE encounters (
  encounter_id int PRIMARY KEY, patient_nbr int NOT NULL, age_band text NOT NULL, gender text NOT NULL, chapter text NOT NULL,
  days int NOT NULL, medications int NOT NULL, readmitted text NOT NULL);
INSERT INTO encounters
SELECT i, 1 + (i * 67) % 700, '[' || 10 * ((i * 67) % 700 % 10) || '-' || 10 * ((i * 67) % 700 % 10) + 10 || ')',
       CASE WHEN (i * 67) % 700 % 2 = 0 THEN 'Female' ELSE 'Male' END,
       (ARRAY['circulatory', 'respiratory', 'digestive', 'diabetes'])[1 + (i * 19) % 4], 1 + (i * 23) % 14, 1 + (i * 31) % 60,
       (ARRAY['NO', '<30', '>30'])[1 + (i * 5) % 3]
FROM generate_series(1, 1800) i;
