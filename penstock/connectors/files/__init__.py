"""Files as sources and sinks: formats, part files, rolling, buckets."""
