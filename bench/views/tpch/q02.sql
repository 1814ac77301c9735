-- TPC-H 2. Minimum cost supplier: for parts of a size and type, the cheapest suppliers of a region.

SELECT s_acctbal, s_name, n_name, p_partkey, p_mfgr, s_address, s_phone, s_comment
FROM part
JOIN partsupp ON ps_partkey = p_partkey
JOIN supplier ON s_suppkey = ps_suppkey
JOIN nation ON n_nationkey = s_nationkey
JOIN region ON r_regionkey = n_regionkey
JOIN (
    SELECT ps_partkey AS cheap_partkey, MIN(ps_supplycost) AS cheap_cost
    FROM partsupp
    JOIN supplier ON s_suppkey = ps_suppkey
    JOIN nation ON n_nationkey = s_nationkey
    JOIN region ON r_regionkey = n_regionkey
    WHERE r_name = 'EUROPE'
    GROUP BY ps_partkey
) AS cheap ON cheap_partkey = p_partkey AND cheap_cost = ps_supplycost
WHERE p_size = 15 AND p_type LIKE '%BRASS' AND r_name = 'EUROPE'
ORDER BY s_acctbal DESC, n_name, s_name, CAST(p_partkey AS VARCHAR)
LIMIT 100
