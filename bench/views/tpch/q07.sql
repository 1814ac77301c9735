-- TPC-H 7. Volume shipping: revenue between two nations by year.

SELECT n1.n_name, n2.n_name, CAST(SUBSTR(CAST(l_shipdate AS VARCHAR), 1, 4) AS INTEGER) AS l_year,
    SUM(l_extendedprice * (1 - l_discount))
FROM supplier
JOIN lineitem ON l_suppkey = s_suppkey
JOIN orders ON o_orderkey = l_orderkey
JOIN customer ON c_custkey = o_custkey
JOIN nation AS n1 ON n1.n_nationkey = s_nationkey
JOIN nation AS n2 ON n2.n_nationkey = c_nationkey
WHERE ((n1.n_name = 'FRANCE' AND n2.n_name = 'GERMANY') OR (n1.n_name = 'GERMANY' AND n2.n_name = 'FRANCE'))
    AND l_shipdate >= '1995-01-01' AND l_shipdate <= '1996-12-31'
GROUP BY n1.n_name, n2.n_name, CAST(SUBSTR(CAST(l_shipdate AS VARCHAR), 1, 4) AS INTEGER)
