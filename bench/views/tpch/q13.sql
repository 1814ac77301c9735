-- TPC-H 13. Customer distribution: how many customers have how many orders, those with special requests left out.

SELECT c_count, COUNT(*)
FROM (
    SELECT c_custkey, COUNT(o_orderkey) AS c_count
    FROM customer
    LEFT JOIN orders ON o_custkey = c_custkey AND o_comment NOT LIKE '%special%requests%'
    GROUP BY c_custkey
) AS counted
GROUP BY c_count
