-- TPC-H 8. National market share: a nation's part of a region's revenue of one type of parts, by year.

SELECT CAST(SUBSTR(CAST(o_orderdate AS VARCHAR), 1, 4) AS INTEGER) AS o_year,
    SUM(CASE WHEN n2.n_name = 'BRAZIL' THEN l_extendedprice * (1 - l_discount) ELSE 0 END)
        / SUM(l_extendedprice * (1 - l_discount))
FROM part
JOIN lineitem ON l_partkey = p_partkey
JOIN supplier ON s_suppkey = l_suppkey
JOIN orders ON o_orderkey = l_orderkey
JOIN customer ON c_custkey = o_custkey
JOIN nation AS n1 ON n1.n_nationkey = c_nationkey
JOIN region ON r_regionkey = n1.n_regionkey
JOIN nation AS n2 ON n2.n_nationkey = s_nationkey
WHERE p_type = 'ECONOMY ANODIZED STEEL' AND r_name = 'AMERICA' AND o_orderdate >= '1995-01-01'
    AND o_orderdate <= '1996-12-31'
GROUP BY CAST(SUBSTR(CAST(o_orderdate AS VARCHAR), 1, 4) AS INTEGER)
