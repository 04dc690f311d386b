"""What the job reads from and writes to: files, or servers that can be killed as well."""
