-- TPC-H 9. Product type profit: profit on parts of a colour by nation and year.

SELECT n_name, CAST(SUBSTR(CAST(o_orderdate AS VARCHAR), 1, 4) AS INTEGER) AS o_year,
    SUM(l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity)
FROM part
JOIN lineitem ON l_partkey = p_partkey
JOIN partsupp ON ps_partkey = l_partkey AND ps_suppkey = l_suppkey
JOIN orders ON o_orderkey = l_orderkey
JOIN supplier ON s_suppkey = l_suppkey
JOIN nation ON n_nationkey = s_nationkey
WHERE p_name LIKE '%green%'
GROUP BY n_name, CAST(SUBSTR(CAST(o_orderdate AS VARCHAR), 1, 4) AS INTEGER)
