"""Register a query and keep the windows that it has reported by now, as JSON lines. Run it again for the next ones.

python read_windows.py tcp://127.0.0.1:7411 FOLDER CHECKPOINT"""

import sys

from pyspark.sql import SparkSession

from wukongs.adapters.spark import WukongsDataSource

QUERY = """REGISTER QUERY fares AS
SELECT ?fare (COUNT(*) AS ?trips)
FROM STREAM <http://example.org/trips> [RANGE 10s STEP 10s]
WHERE { ?trip <http://example.org/fare> ?fare } GROUP BY ?fare"""


def main(address: str, folder: str, checkpoint: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    spark.dataSource.register(WukongsDataSource)
    reader = spark.readStream.format("wukongs").options(address=address, query=QUERY)
    windows = reader.schema("window_start timestamp, window_end timestamp, fare string, trips long").load()
    writer = windows.writeStream.format("json").option("path", folder).option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()  # without the trigger it goes on for ever


if __name__ == "__main__":
    main(*sys.argv[1:4])
