-- TPC-H 14. Promotion effect: the percentage of a month's revenue that is of promoted parts.

SELECT 100.00 * SUM(CASE WHEN p_type LIKE 'PROMO%' THEN l_extendedprice * (1 - l_discount) ELSE 0 END)
    / SUM(l_extendedprice * (1 - l_discount))
FROM lineitem
JOIN part ON p_partkey = l_partkey
WHERE l_shipdate >= '1995-09-01' AND l_shipdate < '1995-10-01'
