#!/bin/sh
# Make sure the browser tests find Chromium. Silent when they do.
# Where it is missing, install Debian's package if we can, else print the command to run.
set -eu

say() { printf '%s\n' "$*" >&2; }

found() { command -v "${CHROMIUM:-chromium}" >/dev/null 2>&1; }

found && exit 0
if [ -n "${CHROMIUM:-}" ]; then
    say "CHROMIUM is $CHROMIUM, which does not exist. Point it at a Chromium or Chrome, or run: unset CHROMIUM"
    exit 1
fi
say "The browser tests need Chromium; PATH has none."

if ! command -v apt-get >/dev/null 2>&1; then
    say "Install it with your package manager, for example: sudo dnf install chromium"
    say "Or point CHROMIUM at a Chromium or Chrome that you have."
    exit 1
fi

if [ "$(id -u)" = 0 ]; then
    as_root="env"
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    as_root="sudo -n env"
else
    say "Run: sudo apt-get update && sudo apt-get install -y --no-install-recommends chromium"
    exit 1
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() { $as_root DEBIAN_FRONTEND=noninteractive apt-get -qq "$@" >>"$log" 2>&1 </dev/null; }

say "Installing Debian's Chromium (download about 90 MB)."
# One broken package source fails the update but need not stop us: the installation decides.
apt update || true
if ! apt install -y --no-install-recommends chromium || ! found; then
    cat "$log" >&2
    say "The installation of chromium failed; the output of apt-get is above."
    exit 1
fi
