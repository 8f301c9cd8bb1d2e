-- A table in memory: filled, changed in part, thinned. Each phase begins with a mark: SIGURG from a shell to sqlite3.
-- ROWS is replaced by the number of rows.
PRAGMA journal_mode = OFF;
.system kill -URG $PPID
CREATE TABLE goods (id INTEGER PRIMARY KEY, name TEXT, price REAL, stock INTEGER);
CREATE INDEX goods_by_stock ON goods (stock);
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ROWS)
INSERT INTO goods SELECT n, printf('article %07d of the catalogue', n), n * 0.25, n % 100 FROM numbers;
.system kill -URG $PPID
UPDATE goods SET price = price * 1.1 WHERE id BETWEEN ROWS / 2 AND ROWS / 2 + ROWS / 10;
.system kill -URG $PPID
DELETE FROM goods WHERE stock = 7;
.system kill -URG $PPID
SELECT count(*) FROM goods;
