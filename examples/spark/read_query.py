"""Print the rows of a one-shot query as a DataFrame.

python read_query.py tcp://127.0.0.1:7411"""

import sys

from pyspark.sql import SparkSession

from wukongs.adapters.spark import WukongsDataSource

QUERY = "SELECT ?zone (COUNT(*) AS ?trips) WHERE { ?trip <http://example.org/zone> ?zone } GROUP BY ?zone"


def main(address: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    spark.dataSource.register(WukongsDataSource)
    reader = spark.read.format("wukongs").options(address=address, query=QUERY)
    reader.schema("zone string, trips long").load().orderBy("zone").show(truncate=False)


if __name__ == "__main__":
    main(sys.argv[1])
