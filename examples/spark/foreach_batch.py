"""Write each micro-batch with foreachBatch: the stored graph gets what stays, the stream what passes.

python foreach_batch.py tcp://127.0.0.1:7411 FOLDER CHECKPOINT"""

import sys

from pyspark.sql import DataFrame, SparkSession

from wukongs.adapters.spark import WukongsDataSource

STREAM = "http://example.org/trips"


def main(address: str, folder: str, checkpoint: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    spark.dataSource.register(WukongsDataSource)

    def write(batch: DataFrame, number: int) -> None:
        triples = batch.repartition(4, "subject").persist()
        stored = triples.filter("predicate = '<http://example.org/zone>'")
        stored.write.format("wukongs").option("address", address).mode("append").save()
        passing = triples.filter("predicate <> '<http://example.org/zone>'")
        # The number makes it safe to run the micro-batch again. A second frame a batch needs another writer's name.
        options = {"address": address, "stream": STREAM, "writer": "trips", "batch": str(number)}
        passing.write.format("wukongs").options(**options).mode("append").save()
        triples.unpersist()

    lines = spark.readStream.schema("subject string, predicate string, object string, time long").json(folder)
    query = lines.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint).trigger(availableNow=True)
    query.start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:4])
