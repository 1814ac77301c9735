-- TPC-H 20. Potential part promotion: suppliers of a nation that have more of a colour's parts than half a year's need.

SELECT s_name, s_address
FROM supplier
JOIN nation ON n_nationkey = s_nationkey
WHERE n_name = 'CANADA' AND s_suppkey IN (
    SELECT ps_suppkey
    FROM partsupp
    JOIN part ON p_partkey = ps_partkey
    WHERE p_name LIKE 'forest%' AND ps_availqty > (
        SELECT 0.5 * SUM(l_quantity)
        FROM lineitem
        WHERE l_partkey = ps_partkey AND l_suppkey = ps_suppkey AND l_shipdate >= '1994-01-01'
            AND l_shipdate < '1995-01-01'
    )
)
