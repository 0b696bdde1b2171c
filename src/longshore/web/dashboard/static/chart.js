// The throughput chart: uPlot (from its wheel) over the numbers that the page carries as a table.
const charts = new Map();

function numbers(figure) {
  const rows = [...figure.querySelectorAll("tbody tr")];
  return ["t", "b", "n"].map((key) => rows.map((row) => Number(row.dataset[key])));
}

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function bytes(value) {
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return `${value >= 100 || unit === 0 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

function options(width) {
  const axis = { stroke: css("--dim"), grid: { stroke: css("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
  return {
    width, height: 230, cursor: { y: false }, legend: { live: true }, padding: [10, 0, 0, 0],
    scales: { b: { range: (_, low, high) => [0, Math.max(1024, high * 1.1)] }, n: { range: (_, low, high) => [0, Math.max(5, high * 1.1)] } },
    axes: [
      { ...axis, space: 70, size: 30, values: [[3600 * 24, "{YYYY}-{MM}-{DD}", null, null, null, null, null, null, 1], [60, "{HH}:{mm}", null, null, null, null, null, null, 1], [1, "{HH}:{mm}:{ss}", null, null, null, null, null, null, 1]] },
      { ...axis, scale: "b", size: 82, incrs: Array.from({ length: 50 }, (_, power) => 2 ** power), values: (_, ticks) => ticks.map((tick) => `${bytes(tick)}/s`) },
      { ...axis, scale: "n", side: 1, size: 62, grid: { show: false }, values: (_, ticks) => ticks.map((tick) => `${tick}/min`) },
    ],
    series: [
      { value: (_, at) => (at === null ? "" : new Date(at * 1000).toLocaleTimeString()) },
      { label: "bytes per second", scale: "b", stroke: css("--accent"), width: 2, fill: `${css("--accent")}26`, value: (_, v) => (v === null ? "" : `${bytes(v)}/s`) },
      { label: "files per minute", scale: "n", stroke: css("--pending"), width: 1.5, dash: [4, 3], value: (_, v) => (v === null ? "" : String(v)) },
    ],
  };
}

export function drawCharts(afresh = false) {
  if (typeof uPlot === "undefined") return;
  for (const place of document.querySelectorAll("[data-chart]")) {
    const figure = document.getElementById(place.dataset.chart);
    if (!figure) continue;
    const data = numbers(figure);
    const known = charts.get(place);
    if (known && !afresh) { known.setData(data); continue; }
    known?.destroy();
    place.replaceChildren();
    charts.set(place, new uPlot(options(place.clientWidth), data, place));
  }
}

addEventListener("resize", () => {
  for (const [place, chart] of charts) if (place.isConnected) chart.setSize({ width: place.clientWidth, height: 230 });
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawCharts(true));
