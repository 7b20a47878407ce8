// Keys and live updates. Every screen works without this file.
"use strict";

// The rows of a screen: those that it names, or else those with a link.
const rows = () => {
  const named = [...document.querySelectorAll("[data-row]")];
  return named.length ? named : [...document.querySelectorAll("main tr, main li")].filter((row) => row.querySelector("a"));
};
const branches = () => [...document.querySelectorAll("[data-branch]")];
let current = -1;

// Marks a row and brings it into view.
function select(list, at) {
  if (!list.length) return;
  document.querySelectorAll(".on").forEach((row) => row.classList.remove("on"));
  at = Math.max(0, Math.min(list.length - 1, at));
  list[at].classList.add("on");
  list[at].scrollIntoView({ block: "nearest" });
  const link = list[at].querySelector("a, summary");
  if (link) link.focus({ preventScroll: true });
  return at;
}

function tab(name) {
  const link = document.querySelector(`a[data-key="${name}"]`);
  if (link) location.assign(link.getAttribute("href"));
}

const keys = {
  "/": () => document.getElementById("search").focus(),
  "j": () => { current = select(rows(), current + 1) ?? current; },
  "k": () => { current = select(rows(), current - 1) ?? current; },
  "h": () => { const at = branches().findIndex((row) => row.classList.contains("on")); select(branches(), at - 1); },
  "l": () => { const at = branches().findIndex((row) => row.classList.contains("on")); select(branches(), at + 1); },
  "d": () => {
    const row = document.querySelector(".on[data-diff]");
    if (row && row.dataset.diff) location.assign(row.dataset.diff); else tab("diff");
  },
  "b": () => {
    const row = document.querySelector(".on") ?? document.getElementById("main");
    const link = row.querySelector("a[data-blame]");
    if (link) location.assign(link.getAttribute("href"));
  },
  "s": () => tab("state"),
  "t": () => tab("talk"),
  "f": () => tab("fork"),
  "g": () => location.assign("/"),
  "?": () => { const help = document.getElementById("keys"); help.open = !help.open; help.querySelector("summary").focus(); },
};

document.addEventListener("keydown", (event) => {
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
  if (event.key === "Escape" && typing) { event.target.blur(); return; }
  if (typing || event.ctrlKey || event.altKey || event.metaKey) return;
  const action = keys[event.key];
  if (action) { event.preventDefault(); action(); }
});

// Copies: a button holds a text, or the address of one. Without this file the text is read at its address.
document.documentElement.classList.add("scripted");
document.addEventListener("click", async (event) => {
  const button = event.target.closest("button.copy");
  if (!button) return;
  const news = document.getElementById("news");
  try {
    const from = button.dataset.copyFrom;
    const response = from && await fetch(from);
    if (response && !response.ok) throw new Error(`status ${response.status}`);
    const text = response ? await response.text() : button.dataset.copy;
    await navigator.clipboard.writeText(text);
    news.textContent = `copied: ${text.length} characters`;
  } catch (error) {
    news.textContent = `not copied: ${error.message}`;
  }
  news.hidden = false;
});

// Live updates: the content of the screen is fetched again when its thread or the store has changed.
let source = null;
let position = "";
let waiting = false;
// The event that came while the content was fetched, or in the pause after it.
let later = null;
// The content as it was fetched last, to know whether it differs.
let shown = document.getElementById("main")?.innerHTML;

// Returns whether a field was filled since the screen came. The first option of a choice stands for none.
function filled(field) {
  if (field.type === "hidden") return false;
  if (field.type === "checkbox") return field.checked !== field.defaultChecked;
  if (field.tagName === "SELECT") return field.selectedIndex > 0 && !field.options[field.selectedIndex].defaultSelected;
  return field.value !== field.defaultValue;
}

// Returns whether somebody is typing in the content or has filled a form.
function edited(main) {
  const typing = main.contains(document.activeElement) && /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName);
  return typing || [...main.querySelectorAll("input, select, textarea")].some(filled);
}

// Returns what a row has in each version of the content.
const identity = (row) => row.querySelector("a")?.getAttribute("href") ?? row.textContent;

// Replaces the content. The selected row and open parts stay as they are.
function replace(main, fresh) {
  const row = main.querySelector(".on");
  const selected = row && identity(row);
  const focused = row && row.contains(document.activeElement);
  const opened = [...main.querySelectorAll("details")].map((part) => part.open);
  main.replaceChildren(...document.importNode(fresh, true).childNodes);
  const parts = [...main.querySelectorAll("details")];
  if (parts.length === opened.length) parts.forEach((part, at) => { part.open = opened[at]; });
  const again = row && [...rows(), ...branches()].find((other) => identity(other) === selected);
  current = again ? rows().indexOf(again) : -1;
  if (!again) return;
  again.classList.add("on");
  if (focused) again.querySelector("a")?.focus({ preventScroll: true });
}

// Shows what has changed, unless an edit would be lost.
async function refresh(event) {
  const main = document.getElementById("main");
  const news = document.getElementById("news");
  if (waiting) {
    later = event;
    return;
  }
  waiting = true;
  try {
    const response = edited(main) ? null : await fetch(location.href, { headers: { "accept": "text/html" } });
    const text = response && response.ok ? await response.text() : "";
    if (edited(main)) {
      news.hidden = false;
      news.textContent = "there are changes: load the page again to see them";
    } else if (text) {
      const fresh = new DOMParser().parseFromString(text, "text/html");
      const [nav, top] = [document, fresh].map((of) => of.querySelector(".top nav"));
      const content = fresh.getElementById("main");
      if (top && nav && top.innerHTML !== nav.innerHTML && !nav.contains(document.activeElement)) {
        nav.replaceWith(document.importNode(top, true));
      }
      if (content.innerHTML !== shown) {
        shown = content.innerHTML;
        replace(main, content);
        news.hidden = false;
        news.textContent = ["live:", event.thread ?? "the store", event.new ? `step ${event.step}` : "has changed"].join(" ");
      }
    }
  } finally {
    setTimeout(() => {
      waiting = false;
      const next = later;
      later = null;
      if (next) refresh(next);
    }, 500);
  }
}

function follow() {
  const thread = document.getElementById("main")?.dataset.live;
  if (thread === undefined || source || document.hidden) return;
  const query = new URLSearchParams();
  if (thread) query.set("thread", thread);
  query.set("after", position || document.getElementById("main").dataset.position);
  source = new EventSource(`/live?${query}`);
  source.onmessage = (message) => {
    position = message.lastEventId || position;
    refresh(JSON.parse(message.data));
  };
}

function pause() {
  if (source) source.close();
  source = null;
}

document.addEventListener("visibilitychange", () => { if (document.hidden) pause(); else follow(); });
window.addEventListener("pagehide", pause);
follow();
