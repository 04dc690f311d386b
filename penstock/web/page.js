(() => {
  // Times in the viewer's zone. The title has UTC.
  const zone = () => document.querySelectorAll('time[data-ms]:not([data-done])').forEach(each => {
    const ms = Number(each.dataset.ms);
    if (ms >= 0) each.textContent = new Date(ms).toLocaleString();
    each.dataset.done = '1';
  });
  // A refresh replaces elements. Keep the focus, and what the viewer has opened or closed.
  let focused = '';
  const opened = new Map();
  document.addEventListener('focusin', event => { focused = event.target.id || ''; });
  document.addEventListener('toggle', event => { if (event.target.id) opened.set(event.target.id, event.target.open); }, true);
  const restore = () => {
    zone();
    for (const [id, open] of opened) {
      const found = document.getElementById(id);
      if (found && found.open !== open) found.open = open;
    }
    if (focused && document.activeElement === document.body) document.getElementById(focused)?.focus();
  };
  document.addEventListener('DOMContentLoaded', () => {
    restore();
    document.querySelector('.sections [aria-current]')?.scrollIntoView({ inline: 'center', block: 'nearest' });
    new MutationObserver(restore).observe(document.body, { childList: true, subtree: true });
  });
})();
