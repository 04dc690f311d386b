from penstock.datastream import StreamExecutionEnvironment


class SparkSession:
    """Refuses to be pickled, like Spark's session."""

    def __reduce__(self):
        raise RuntimeError("CONTEXT_ONLY_VALID_ON_DRIVER")


SparkSession.__module__ = "pyspark.sql.session"
spark = SparkSession()


def price(word):
    return spark.table("prices").where(f"word = '{word}'").first()


env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection(["tea", "milk"]).map(price).uid("price").print()
env.execute()
