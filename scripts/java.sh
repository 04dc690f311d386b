#!/bin/sh
# Make sure that Spark finds Java 17 or later. Prints nothing if it does.
# If Java is missing, install Debian's headless JRE if permitted, otherwise print the command to run.
set -eu

NEEDED=17

say() { printf '%s\n' "$*" >&2; }

# Print the version of a java command, such as 17.0.15 or 1.8.0_392. Empty if the command fails.
version_of() { "$1" -version 2>&1 | sed -n 's/.* version "\([^"]*\)".*/\1/p' | head -n 1; }

new_enough() {
    major=${1%%[!0-9]*}
    [ -n "$major" ] && [ "$major" -ge "$NEEDED" ]
}

# Spark prefers JAVA_HOME to PATH, so installing Java would not help if it is wrong.
if [ -n "${JAVA_HOME:-}" ]; then
    found=$(version_of "$JAVA_HOME/bin/java")
    new_enough "$found" && exit 0
    say "JAVA_HOME is $JAVA_HOME, which has ${found:+Java }${found:-no working Java}. Spark needs Java $NEEDED or later."
    say "Point JAVA_HOME at one, or run: unset JAVA_HOME"
    exit 1
fi

found=$(version_of java)
new_enough "$found" && exit 0
say "Spark needs Java $NEEDED or later; PATH has ${found:+Java }${found:-none}."

if ! command -v apt-get >/dev/null 2>&1; then
    say "Install it with your package manager, for example: sudo dnf install java-21-openjdk-headless"
    exit 1
fi

# Debian 13 has no Java 17; its default is newer. An empty package list has neither.
package() {
    if apt-cache show openjdk-17-jre-headless >/dev/null 2>&1; then
        echo openjdk-17-jre-headless
    else
        echo default-jre-headless
    fi
}

if [ "$(id -u)" = 0 ]; then
    as_root="env"
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    as_root="sudo -n env"
else
    say "Run: sudo apt-get update && sudo apt-get install -y --no-install-recommends $(package)"
    exit 1
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() { $as_root DEBIAN_FRONTEND=noninteractive apt-get -qq "$@" >>"$log" 2>&1 </dev/null; }

say "Installing Debian's headless JRE (download about 50 MB)."
# A broken package source fails the update, but the installation can still succeed.
apt update || true
if ! apt install -y --no-install-recommends "$(package)"; then
    cat "$log" >&2
    say "Installing $(package) failed; see the output of apt-get above."
    exit 1
fi

found=$(version_of java)
if ! new_enough "$found"; then
    say "$(package) is installed, but PATH still has ${found:+Java }${found:-no java}."
    say "Set JAVA_HOME to the new one; it is below /usr/lib/jvm."
    exit 1
fi
say "Java $found is ready."
