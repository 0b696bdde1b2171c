// Runs before the first paint: a chosen theme must not flash the other one.
try {
  const chosen = localStorage.getItem("longshore-theme");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
} catch { /* storage may be off; the system's theme is used */ }
