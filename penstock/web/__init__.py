"""The web page: jobs, checkpoints and state in a browser. Requires `penstock[web]`; see docs/run/web.md."""
