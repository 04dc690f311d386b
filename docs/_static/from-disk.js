// A browser refuses to fetch pages from disk, which search does for the lines around a hit: show titles only.
if (location.protocol === "file:") {
  DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
}
