-- A least price of a scan that is a fraction of so large a limit would be above every price that is tested here.
-- Answers leave at once: thousands of questions are compared with PostgreSQL's answers.
UPDATE provenance.deployment SET epsilon = 1000000, scan_floor = 0, timing = 'immediate';
SELECT provenance.publish(t) FROM unnest(ARRAY['ward', 'city', 'products', 'zones', 'airlines']) t;
SELECT provenance.protect('patient_data', size_hint => 1500, changes => 'frozen');
SELECT provenance.protect('trips', changes => 'frozen');
SELECT provenance.protect('flights', changes => 'frozen');
-- Bounds that nobody exceeds, so that nothing is cut off and the noiseless answer is PostgreSQL's own.
SELECT provenance.protect('orders', 'customer_id', 500, 500, changes => 'frozen');
SELECT provenance.protect('order_items', max_groups => 500, max_rows => 500, changes => 'frozen', unit => 'order_id -> orders.customer_id');
SELECT provenance.protect('transactions', 'household_id', 500, 500, changes => 'frozen');
SELECT provenance.protect('encounters', 'patient_nbr', 500, 500, changes => 'frozen');

SELECT provenance.declare_attribute('patient_data', 'age', 0, 100, 1);
SELECT provenance.declare_attribute('patient_data', 'gender', members => ARRAY['f', 'm', 'x']);
SELECT provenance.declare_attribute('patient_data', 'disease', members_from => 'ward.disease');
SELECT provenance.declare_attribute('patient_data', 'disease_type', members => ARRAY['viral', 'bacterial', 'chronic', 'injury', 'other']);
SELECT provenance.declare_attribute('patient_data', 'weight', lower => '0', upper => '200');
SELECT provenance.declare_attribute('patient_data', 'smoker', members => ARRAY['true', 'false']);
SELECT provenance.declare_attribute('patient_data', 'seen', '2025-01-01', '2025-12-31', '1');

SELECT provenance.declare_attribute('orders', 'city', members_from => 'city.city');
SELECT provenance.declare_attribute('orders', 'region', members => ARRAY['north', 'south', 'east']);
SELECT provenance.declare_attribute('orders', 'category', members => ARRAY['food', 'toys', 'books', 'clothes', 'garden']);
SELECT provenance.declare_attribute('orders', 'amount', lower => '0', upper => '500');
SELECT provenance.declare_attribute('orders', 'quantity', 1, 9, 1);
SELECT provenance.declare_attribute('orders', 'discount', lower => '0', upper => '1');
SELECT provenance.declare_attribute('orders', 'ordered_on', '2025-01-01', '2025-03-31', '1');
SELECT provenance.declare_attribute('orders', 'tier', members => ARRAY['gold', 'silver', 'basic'], constant_per_unit => true);
SELECT provenance.declare_attribute('order_items', 'product', members => ARRAY['pen', 'lamp', 'soap']);
SELECT provenance.declare_attribute('order_items', 'price', lower => '0', upper => '90');

SELECT provenance.declare_attribute('transactions', 'store_id', 1, 12, 1);
SELECT provenance.declare_attribute('transactions', 'product_id', members_from => 'products.product_id');
SELECT provenance.declare_attribute('transactions', 'quantity', 1, 6, 1);
SELECT provenance.declare_attribute('transactions', 'sales_value', lower => '0', upper => '40');
SELECT provenance.declare_attribute('transactions', 'week', 1, 8, 1);
SELECT provenance.declare_attribute('transactions', 'sold_at', '2025-01-01 00:00', '2025-02-28 00:00', '1 hour');

SELECT provenance.declare_attribute('trips', 'pu_zone', members_from => 'zones.location_id');
SELECT provenance.declare_attribute('trips', 'do_zone', members_from => 'zones.location_id');
SELECT provenance.declare_attribute('trips', 'passengers', 0, 6, 1);
SELECT provenance.declare_attribute('trips', 'distance', lower => '0', upper => '30');
SELECT provenance.declare_attribute('trips', 'fare', lower => '0', upper => '100');
SELECT provenance.declare_attribute('trips', 'tip', lower => '0', upper => '20');
SELECT provenance.declare_attribute('trips', 'payment', 1, 4, 1);
SELECT provenance.declare_attribute('trips', 'pickup', '2020-01-01 00:00', '2020-02-29 23:00', '1 hour');

SELECT provenance.declare_attribute('flights', 'carrier', members_from => 'airlines.carrier');
SELECT provenance.declare_attribute('flights', 'origin', members => ARRAY['EWR', 'JFK', 'LGA']);
SELECT provenance.declare_attribute('flights', 'dest', members => ARRAY['ATL', 'BOS', 'LAX', 'ORD', 'SFO']);
SELECT provenance.declare_attribute('flights', 'month', 1, 12, 1);
SELECT provenance.declare_attribute('flights', 'day', 1, 31, 1);
SELECT provenance.declare_attribute('flights', 'dep_delay', lower => '-60', upper => '300');
SELECT provenance.declare_attribute('flights', 'arr_delay', lower => '-60', upper => '300');
SELECT provenance.declare_attribute('flights', 'air_time', lower => '0', upper => '700');
SELECT provenance.declare_attribute('flights', 'distance', lower => '0', upper => '5000');

SELECT provenance.declare_attribute('encounters', 'age_band', members => ARRAY['[0-10)', '[10-20)', '[20-30)', '[30-40)', '[40-50)', '[50-60)', '[60-70)', '[70-80)', '[80-90)', '[90-100)'], constant_per_unit => true);
SELECT provenance.declare_attribute('encounters', 'gender', members => ARRAY['Female', 'Male'], constant_per_unit => true);
SELECT provenance.declare_attribute('encounters', 'chapter', members => ARRAY['circulatory', 'respiratory', 'digestive', 'diabetes']);
SELECT provenance.declare_attribute('encounters', 'days', 1, 14, 1);
SELECT provenance.declare_attribute('encounters', 'medications', lower => '0', upper => '100');
SELECT provenance.declare_attribute('encounters', 'readmitted', members => ARRAY['NO', '<30', '>30']);
