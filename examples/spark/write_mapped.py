"""Write a DataFrame of taxi trips to a stream, by the mapping that also reads their CSV file.

python write_mapped.py tcp://127.0.0.1:7411 ../taxi/trips.csv ../taxi/trips-mapping.toml"""

import sys

from pyspark.sql import SparkSession

from wukongs.adapters.spark import WukongsDataSource

STREAM = "http://example.org/taxi/trips"


def main(address: str, trips: str, mapping: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    spark.dataSource.register(WukongsDataSource)
    frame = spark.read.csv(trips, header=True)
    options = {"address": address, "stream": STREAM, "mapping": mapping, "advance": "all"}
    frame.repartition(4, "Zone").write.format("wukongs").options(**options).mode("append").save()


if __name__ == "__main__":
    main(*sys.argv[1:4])
