// The dashboard's one script: live fragments, forms without reload, keys, theme. Everything to read works without it.
import { drawCharts } from "./chart.js";

const csrf = document.querySelector('meta[name="csrf"]')?.content ?? "";
const badge = document.querySelector(".live");
const words = { live: "live", paused: "paused", reconnecting: "reconnecting", off: "not live" };

// ---- live state: one event stream while the page is visible; each burst of events swaps the fragments once.
let source = null;
let lastEvent = document.querySelector("main")?.dataset.seq ?? "";
let timer = 0;
let again = false;
let busy = false;

export function setState(state) {
  if (!badge) return;
  badge.dataset.state = state;
  badge.textContent = words[state];
}

function isHeld() {
  // Rows must not jump away under a selection, a half-typed number or an open dialog.
  const active = document.activeElement;
  return Boolean(
    document.querySelector("dialog[open], [data-live] input:checked") ||
      (active?.matches('input:not([type="checkbox"]), textarea, select') && active.closest("[data-live]")) ||
      String(getSelection()).length > 0,
  );
}

async function refresh() {
  timer = 0;
  if (busy || document.hidden) { again = true; return; }
  if (isHeld()) { schedule(1500); return; }
  busy = true;
  try {
    const answer = await fetch(location.href, { headers: { "X-Fragment": "1" }, credentials: "same-origin" });
    if (answer.redirected && new URL(answer.url).pathname === "/sign-in") { location.assign(answer.url); return; }
    const text = await answer.text();
    if (isHeld()) schedule(1500); // something was chosen while the answer was on its way
    else if (answer.ok) swap(new DOMParser().parseFromString(text, "text/html"));
  } catch { /* the stream's own state tells that the server is away */ } finally {
    busy = false;
    if (again) { again = false; schedule(500); }
  }
}

export function swap(fresh) {
  for (const part of fresh.querySelectorAll("[data-live]")) {
    const old = document.querySelector(`[data-live="${CSS.escape(part.dataset.live)}"]`);
    if (!old) continue;
    const row = old.querySelector('tr[aria-selected="true"]'); // the reader's place in the list outlives a swap
    row?.removeAttribute("aria-selected");
    const inside = old.contains(document.activeElement);
    const focus = inside ? document.activeElement.id : "";
    const same = old.outerHTML === part.outerHTML;
    if (!same) old.replaceWith(document.adoptNode(part));
    const place = same ? row : row && part.querySelector(`tr[data-href="${CSS.escape(row.dataset.href)}"]`);
    place?.setAttribute("aria-selected", "true");
    if (!same && inside) (focus ? document.getElementById(focus) : place?.querySelector("a"))?.focus();
  }
  if (fresh.title) document.title = fresh.title;
  drawCharts();
  tellTimes();
}

function schedule(delay) {
  if (!timer) timer = setTimeout(refresh, delay);
}

function connect() {
  if (source || document.hidden || !badge || !document.querySelector("[data-live]")) return;
  source = new EventSource("/api/v1/events?slim=1" + (lastEvent ? `&after=${encodeURIComponent(lastEvent)}` : ""));
  source.onopen = () => { setState("live"); schedule(50); };
  source.onerror = () => {
    setState("reconnecting");
    if (source?.readyState === EventSource.CLOSED) { source = null; setTimeout(connect, 3000); }
  };
  source.onmessage = (event) => { if (event.lastEventId) lastEvent = event.lastEventId; schedule(400); };
  source.addEventListener("tick", () => schedule(400)); // transfers under way: progress without a ledger event
}

function disconnect(state) {
  source?.close();
  source = null;
  setState(state);
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) disconnect("paused");
  else connect();
});
addEventListener("pagehide", () => disconnect("off"));
addEventListener("pageshow", (event) => { if (event.persisted) connect(); });

// ---- times that stay right while the page stays open
const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto", style: "short" });
const steps = [[60, "second"], [60, "minute"], [24, "hour"], [30, "day"], [12, "month"], [Infinity, "year"]];

export function ago(seconds) {
  let value = seconds;
  for (const [size, unit] of steps) {
    if (Math.abs(value) < size) return relative.format(Math.round(value), unit);
    value /= size;
  }
  return "";
}

function tellTimes() {
  for (const item of document.querySelectorAll("time[data-ago]")) {
    item.textContent = ago((Date.parse(item.dateTime) - Date.now()) / 1000);
  }
}

// ---- forms: sent in place; the answer is told, the fragments follow. Without script they are plain posts.
function tell(text, tone = "good") {
  const place = document.getElementById("told");
  place.replaceChildren();
  const note = document.createElement("div");
  note.className = `note ${tone}`;
  note.textContent = text;
  place.append(note);
}

async function send(form, body) {
  const answer = await fetch(form.action, {
    method: "POST", body, headers: { "X-CSRF-Token": csrf, Accept: "application/json" }, credentials: "same-origin",
  });
  const said = await answer.json().catch(() => ({}));
  if (answer.ok && said.ask) { // how many it concerns was counted just now
    if (!confirm(said.ask)) return;
    body.set("confirmed", "1");
    body.set("expected_count", said.expected_count);
    await send(form, body);
  } else if (answer.ok) {
    tell(said.told ?? "done", said.tone);
    if (said.goto) { location.assign(said.goto); return; }
    form.querySelectorAll("textarea").forEach((area) => { area.value = ""; });
    document.querySelectorAll("[data-live] input:checked").forEach((box) => { box.checked = false; });
    schedule(10);
  } else {
    tell(said.detail ?? `not done (${answer.status})`, "bad");
    if (said.reason === "count_changed") schedule(10);
  }
}

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (!form.matches("form[data-send]")) return;
  event.preventDefault();
  if (form.dataset.ask && !confirm(form.dataset.ask)) return;
  const button = event.submitter;
  const body = new URLSearchParams(new FormData(form, button)); // before the button is disabled: it carries a value
  if (button) button.disabled = true;
  send(form, body).catch(() => tell("the server does not answer", "bad")).finally(() => { if (button) button.disabled = false; });
});

// ---- copy, select, theme
document.addEventListener("click", async (event) => {
  const copy = event.target.closest("[data-copy]");
  if (copy) {
    await navigator.clipboard.writeText(document.getElementById(copy.dataset.copy).textContent).catch(() => {});
    copy.textContent = "copied";
    setTimeout(() => { copy.textContent = "copy"; }, 1500);
  }
  if (event.target.closest("[data-theme-switch]")) {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    try { localStorage.setItem("longshore-theme", root.dataset.theme); } catch { /* lasts for this page only */ }
    drawCharts(true);
  }
  if (event.target.closest("[data-close]")) event.target.closest("dialog").close();
});

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-all]")) {
    for (const box of document.querySelectorAll('input[name="job_id"]')) box.checked = event.target.checked;
  }
});

// ---- add by drop: a file's lines or a dragged link are put into the box, so that the user can review them before sending
const drop = document.querySelector(".drop");
if (drop) {
  const area = drop.querySelector("textarea");
  for (const name of ["dragenter", "dragover"]) {
    drop.addEventListener(name, (event) => { event.preventDefault(); drop.classList.add("over"); });
  }
  for (const name of ["dragleave", "drop"]) drop.addEventListener(name, () => drop.classList.remove("over"));
  drop.addEventListener("drop", async (event) => {
    event.preventDefault();
    const files = [...event.dataTransfer.files];
    const texts = files.length ? await Promise.all(files.map((file) => file.text())) : [event.dataTransfer.getData("text/uri-list") || event.dataTransfer.getData("text/plain")];
    area.value = [area.value.trim(), ...texts.map((text) => text.trim())].filter(Boolean).join("\n") + "\n";
    area.focus();
  });
}

// ---- keys
const goto = { o: "/", j: "/jobs", f: "/failures", h: "/hosts", a: "/artifacts", t: "/torrents", s: "/system" };
let prefix = false;

function moveRow(step) {
  const rows = [...document.querySelectorAll("tr[data-href]")];
  if (!rows.length) return;
  const at = rows.findIndex((row) => row.getAttribute("aria-selected") === "true");
  const next = rows[Math.min(rows.length - 1, Math.max(0, at + step))];
  rows[at]?.removeAttribute("aria-selected");
  next.setAttribute("aria-selected", "true");
  next.querySelector("a")?.focus();
  next.scrollIntoView({ block: "nearest" });
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea, select")) return;
  if (prefix && goto[event.key]) { location.assign(goto[event.key]); return; }
  prefix = event.key === "g";
  if (event.key === "j") moveRow(1);
  else if (event.key === "k") moveRow(-1);
  else if (event.key === "?") document.getElementById("keys")?.showModal();
  else if (event.key === "/") {
    const field = document.querySelector("[data-search]");
    if (field) { event.preventDefault(); field.focus(); field.select?.(); }
  }
});

drawCharts();
tellTimes();
setInterval(tellTimes, 5000);
if (badge) { setState("off"); connect(); }
