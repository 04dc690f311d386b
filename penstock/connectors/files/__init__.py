"""File sources and sinks: formats, part files, rolling policies and buckets."""
