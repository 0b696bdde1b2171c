// The dashboard's one script: live fragments, forms without reload, keys, theme. Everything to read works without it.
import { drawCharts } from "./chart.js";

const csrf = document.querySelector('meta[name="csrf"]')?.content ?? "";
const badge = document.querySelector(".live");
const words = { live: "live", paused: "paused", reconnecting: "disconnected", off: "" };

// ---- live state: one event stream while the page is visible. Events only say that something changed; the page then asks
// for itself without its frame, at most every `data-every` seconds, and patches what differs, row by row.
const main = document.getElementById("main");
const every = Number(main?.dataset.every || 2) * 1000;
const watched = main?.dataset.job ?? "";
let source = null;
let lastEvent = "";
let timer = 0;
let again = false;
let busy = false;
let asked = 0; // when the page was last asked for
let took = 0;
let shownAt = new Date(); // as of when is what the page shows

export function setState(state, why = "") {
  if (!badge) return;
  badge.hidden = state === "off";
  badge.dataset.state = state;
  badge.textContent = (why || words[state]) + (state === "reconnecting" ? `, as of ${shownAt.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" })}` : "");
}

// Rows must not move under a hand that chooses: why nothing is refreshed now, or nothing.
function heldBy() {
  if (document.querySelector("[data-live] input:checked")) return "paused: rows are ticked";
  if (String(getSelection()).length > 0) return "paused: text is selected";
  return document.querySelector("dialog[open]") ? "paused" : "";
}

function held() {
  const why = heldBy();
  if (why && source?.readyState === EventSource.OPEN) setState("held", why);
  if (why) schedule(500, 0);
  return Boolean(why);
}

function address() {
  const url = new URL(location.href);
  url.searchParams.delete("doctor"); // asked for once, by the person
  url.hash = "";
  return url;
}

async function refresh() {
  timer = 0;
  if (busy || document.hidden) { again = true; return; }
  if (held()) return;
  busy = true;
  asked = performance.now();
  try {
    const answer = await fetch(address(), { headers: { "X-Fragment": "1" }, credentials: "same-origin" });
    if (answer.redirected && new URL(answer.url).pathname === "/sign-in") { location.assign(answer.url); return; }
    const text = await answer.text();
    took = performance.now() - asked;
    if (!held() && answer.ok) swap(new DOMParser().parseFromString(text, "text/html"));
  } catch { /* the stream's own state tells that the server is away */ } finally {
    busy = false;
    if (again) { again = false; schedule(0); }
  }
}

export function swap(fresh) {
  const focused = document.activeElement;
  for (const part of fresh.querySelectorAll("[data-live]")) {
    const old = document.querySelector(`[data-live="${CSS.escape(part.dataset.live)}"]`);
    if (old) patch(old, part);
  }
  if (document.activeElement !== focused && focused?.isConnected) focused.focus({ preventScroll: true });
  if (fresh.title) document.title = fresh.title;
  shownAt = new Date();
  if (source?.readyState === EventSource.OPEN) setState("live");
  drawCharts();
  tellTimes();
}

// What the reader changed stays: open details, ticks, half-typed numbers, the marked row, and whatever says data-keep.
const readers = new Set(["open", "aria-selected", "disabled"]);
const keyOf = (node) => (node.nodeType === 1 ? node.dataset.href || node.id || "" : "");

function patch(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  if (old.nodeType !== 1) { old.nodeValue = fresh.nodeValue; return; }
  if ("keep" in old.dataset) return;
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && !readers.has(name)) old.removeAttribute(name);
  patchChildren(old, fresh);
}

function patchChildren(old, fresh) {
  const keys = new Set([...fresh.childNodes].map(keyOf).filter(Boolean));
  const known = new Map();
  for (const child of [...old.childNodes]) {
    const key = keyOf(child);
    if (key && !keys.has(key)) child.remove();
    else if (key) known.set(key, child);
  }
  let at = old.firstChild;
  for (const child of [...fresh.childNodes]) {
    const key = keyOf(child);
    const same = key ? known.get(key) : at && !keyOf(at) && at.nodeName === child.nodeName ? at : null;
    if (!same) { old.insertBefore(document.importNode(child, true), at); continue; }
    if (same === at) at = at.nextSibling;
    else old.insertBefore(same, at);
    if (same.nodeName === child.nodeName) patch(same, child);
    else same.replaceWith(document.importNode(child, true));
  }
  while (at) { const next = at.nextSibling; at.remove(); at = next; }
}

function schedule(delay, limit = every) {
  const rest = asked ? asked + Math.max(limit, 10 * took) - performance.now() : 0; // a slow server is asked less often
  if (!timer) timer = setTimeout(refresh, Math.max(delay, rest));
}

function connect() {
  if (source || document.hidden || !badge || !document.querySelector("[data-live]")) return;
  source = new EventSource("/api/v1/events?digest=1" + (lastEvent ? `&after=${encodeURIComponent(lastEvent)}` : ""));
  source.onopen = () => { setState("live"); schedule(50); };
  source.onerror = () => {
    setState("reconnecting");
    if (source?.readyState === EventSource.CLOSED) { source = null; setTimeout(connect, 3000); }
  };
  source.onmessage = (event) => {
    if (event.lastEventId) lastEvent = event.lastEventId;
    const { jobs } = JSON.parse(event.data);
    if (!watched || !jobs || jobs.includes(watched)) schedule(50);
  };
  source.addEventListener("tick", () => { // counters changed, or transfers moved: no event of a job
    if (!watched || document.querySelector("[data-moving]")) schedule(50);
  });
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
const TOLD_MS = 10_000;

function tell(text, tone = "good") {
  const place = document.getElementById("told");
  const note = document.createElement("div");
  note.className = `note ${tone}`;
  note.textContent = text;
  const close = document.createElement("button");
  close.type = "button";
  close.className = "quiet";
  close.setAttribute("aria-label", "Close this message");
  close.textContent = "✕";
  close.addEventListener("click", () => note.remove());
  note.append(close);
  place.replaceChildren(note);
  if (tone === "good") setTimeout(() => note.remove(), TOLD_MS);
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
    form.querySelectorAll("input").forEach((field) => { field.defaultValue = field.value; }); // saved: no longer half-typed
    schedule(10, 0);
  } else {
    tell(said.detail ?? `not done (${answer.status})`, "bad");
    if (said.reason === "count_changed") schedule(10, 0);
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
  if (event.target.matches('[data-live] input[type="checkbox"]')) schedule(0, 0); // says so at once, and when it is over
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
  const offer = drop.querySelector(".offer");

  async function isList(file) { // a list is text; a PDF, a picture or an archive is not
    const start = new Uint8Array(await file.slice(0, 4096).arrayBuffer());
    const head = String.fromCharCode(...start.slice(0, 5));
    if (head === "%PDF-" || start.includes(0)) return false;
    try { new TextDecoder("utf-8", { fatal: true }).decode(start, { stream: true }); return true; } catch { return false; }
  }

  async function upload(files) {
    for (const file of files) {
      tell(`uploading ${file.name} …`);
      const answer = await fetch(`/api/v1/artifacts?name=${encodeURIComponent(file.name)}`, {
        method: "POST", body: file, credentials: "same-origin",
        headers: { "X-CSRF-Token": csrf, "Content-Type": file.type || "application/octet-stream" },
      });
      const said = await answer.json().catch(() => ({}));
      if (!answer.ok) { tell(`${file.name}: ${said.detail ?? `not uploaded (${answer.status})`}`, "bad"); return; }
      tell(answer.status === 201 ? `${file.name} is stored` : `${file.name} was stored before`);
    }
    schedule(10, 0);
  }

  function offerUpload(files) {
    const text = document.createElement("p");
    text.textContent = `${files.map((file) => file.name).join(", ")}: ${files.length === 1 ? "this is not a list of URLs" : "these are not lists of URLs"}. Store ${files.length === 1 ? "the file" : "the files"} as ${files.length === 1 ? "an artifact" : "artifacts"}?`;
    const yes = document.createElement("button");
    yes.type = "button";
    yes.className = "main";
    yes.textContent = files.length === 1 ? "Upload it" : `Upload ${files.length} files`;
    const no = document.createElement("button");
    no.type = "button";
    no.textContent = "No";
    const close = () => { offer.hidden = true; offer.replaceChildren(); };
    yes.addEventListener("click", () => { close(); upload(files).catch(() => tell("the server does not answer", "bad")); });
    no.addEventListener("click", close);
    const buttons = document.createElement("div");
    buttons.className = "actions";
    buttons.append(yes, no);
    offer.replaceChildren(text, buttons);
    offer.hidden = false;
    yes.focus();
  }

  drop.addEventListener("drop", async (event) => {
    event.preventDefault();
    const files = [...event.dataTransfer.files];
    const link = event.dataTransfer.getData("text/uri-list") || event.dataTransfer.getData("text/plain");
    const lists = await Promise.all(files.map(isList));
    const others = files.filter((_, index) => !lists[index]);
    const texts = files.length ? await Promise.all(files.filter((_, index) => lists[index]).map((file) => file.text())) : [link];
    if (texts.length) {
      area.value = [area.value.trim(), ...texts.map((text) => text.trim())].filter(Boolean).join("\n") + "\n";
      area.focus();
    }
    if (others.length) offerUpload(others);
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
  if ((event.ctrlKey || event.metaKey) && event.key === "k") {
    const box = document.querySelector("[data-find]");
    if (box) { event.preventDefault(); box.focus(); box.select(); }
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea, select")) return;
  if (prefix && goto[event.key]) { location.assign(goto[event.key]); return; }
  prefix = event.key === "g";
  if (event.key === "j") moveRow(1);
  else if (event.key === "k") moveRow(-1);
  else if (event.key === "?") document.getElementById("keys")?.showModal();
  else if (event.key === "/") {
    const field = document.querySelector("[data-search]") ?? document.querySelector("[data-find]");
    if (field) { event.preventDefault(); field.focus(); field.select?.(); }
  }
});

drawCharts();
tellTimes();
setInterval(tellTimes, 5000);
if (badge) { setState("off"); connect(); }
