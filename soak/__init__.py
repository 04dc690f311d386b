"""A job of many short epochs, measured as it runs: heap, metaspace, processes and disk must stay where they are."""
