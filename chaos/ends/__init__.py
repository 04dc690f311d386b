"""Sources and sinks of the job: files, or servers that can also be killed."""
