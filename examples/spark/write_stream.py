"""Write a folder of JSON lines to a stream, each line once, until all of them are there.

python write_stream.py tcp://127.0.0.1:7411 FOLDER CHECKPOINT"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from wukongs.adapters.spark import WukongsDataSource

STREAM = "http://example.org/trips"


def main(address: str, folder: str, checkpoint: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    spark.dataSource.register(WukongsDataSource)
    trips = spark.readStream.schema("id long, fare long, at timestamp").json(folder)
    triples = trips.select(
        f.format_string("<http://example.org/trip%d>", "id").alias("subject"),
        f.lit("<http://example.org/fare>").alias("predicate"),
        f.format_string('"%d"', "fare").alias("object"),
        f.col("at").alias("time"),
    )
    # Rows come to the same task whatever the size of the cluster, so a micro-batch may be run again on another one.
    query = (
        triples.repartition(4, "subject")
        .writeStream.format("wukongs")
        .options(address=address, stream=STREAM, partitions="4")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:4])
