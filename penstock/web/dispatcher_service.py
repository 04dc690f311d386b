"""The process of a Dispatcher with its REST interface and its page.

    python -m penstock.web.dispatcher_service

runs it in the background. Its settings arrive as JSON on standard input, as in `penstock.rest.dispatcher_service`.
"""

from __future__ import annotations

from penstock.rest.dispatcher_service import main
from penstock.web.mount import add_page

if __name__ == "__main__":
    main(add_page)
