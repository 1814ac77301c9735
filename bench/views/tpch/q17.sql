-- TPC-H 17. Small-quantity orders: yearly revenue lost if small orders of a brand's parts were not taken.

SELECT COALESCE(SUM(l_extendedprice), 0) / 7.0
FROM lineitem
JOIN part ON p_partkey = l_partkey
JOIN (SELECT l_partkey AS any_partkey, SUM(l_quantity) AS sum_quantity, COUNT(*) AS lines FROM lineitem GROUP BY l_partkey)
    AS any_line ON any_partkey = p_partkey
WHERE p_brand = 'Brand#23' AND p_container = 'MED BOX' AND 5 * l_quantity * lines < sum_quantity
