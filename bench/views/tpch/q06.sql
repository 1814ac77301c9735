-- TPC-H 6. Forecasting revenue change: what discounts of a year's small orders amount to.

SELECT COALESCE(SUM(l_extendedprice * l_discount), 0)
FROM lineitem
WHERE l_shipdate >= '1994-01-01' AND l_shipdate < '1995-01-01' AND l_discount >= 0.05 AND l_discount <= 0.07
    AND l_quantity < 24
