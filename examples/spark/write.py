"""Write a DataFrame of triples to a stream.

python write.py tcp://127.0.0.1:7411"""

import sys

from pyspark.sql import SparkSession

from wukongs.adapters.spark import WukongsDataSource

STREAM = "http://example.org/trips"


def main(address: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    spark.dataSource.register(WukongsDataSource)
    rows = [
        (f"<http://example.org/trip{n}>", "<http://example.org/fare>", f'"{n % 7}"', 1_700_000_000_000 + n * 100)
        for n in range(1000)
    ]
    trips = spark.createDataFrame(rows, "subject string, predicate string, object string, time long")
    trips.write.format("wukongs").options(address=address, stream=STREAM, advance="all").mode("append").save()


if __name__ == "__main__":
    main(sys.argv[1])
