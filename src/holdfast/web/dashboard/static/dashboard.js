// What makes the pages live: they can be read and used without it.
// Refreshing leaves alone what somebody is busy with; confirmations open in a dialog; keys move and act.

const $ = (selector, inside = document) => inside.querySelector(selector);
const $$ = (selector, inside = document) => [...inside.querySelectorAll(selector)];
const prefix = document.body.dataset.prefix;
const ask = $("#ask");

// -- the pill: whether what is shown is fresh ---------------------------------------------------------------------------

const pill = $("#pill");
const PILLS = { live: "live", held: "held while you are busy", offline: "offline, trying again" };

function tell(state) {
  if (!pill || pill.dataset.state === state) return;
  pill.dataset.state = state;
  pill.textContent = PILLS[state];
  pill.hidden = false;
}
if ($("#live")) tell("live");

// -- refreshing ---------------------------------------------------------------------------------------------------------

function busy() {
  const live = $("#live");
  if (!live) return false;
  if ($("dialog[open]") || $("[name=id]:checked", live)) return true;
  const focused = document.activeElement;
  if (focused && live.contains(focused) && focused.matches("select, input:not([type=checkbox]), textarea")) return true;
  const selection = document.getSelection();
  return selection && !selection.isCollapsed && live.contains(selection.anchorNode);
}

// Where the keyboard is, in a page that is about to be written anew: rows that have a name are found again by it, others by their place.
const REACHABLE = "a, button, input, select, summary, [tabindex]";

function placeOf(element) {
  const live = $("#live");
  if (!element || element === live || !live.contains(element)) return null;
  const row = element.closest("[data-row][id]");
  const inside = row ?? live;
  return { row: row?.id, at: [inside, ...$$(REACHABLE, inside)].indexOf(element) };
}

function focusOn({ row, at }) {
  const inside = row ? document.getElementById(row) : $("#live");
  if (inside && at >= 0) [inside, ...$$(REACHABLE, inside)][at]?.focus({ preventScroll: true });
}

const isLive = (event) => event.detail.elt?.id === "live";
let before = null;
let kept = null;

document.addEventListener("htmx:beforeRequest", (event) => {
  if (!isLive(event)) return;
  const held = busy();
  if (held || document.hidden) {
    event.preventDefault();
    tell(held ? "held" : "live");
  }
});

document.addEventListener("htmx:beforeSwap", (event) => {
  const answer = event.detail.xhr;
  if (event.detail.target?.id === "ask") {
    event.detail.shouldSwap = true; // also a refusal is something to read
    event.detail.isError = false;
    return;
  }
  if (!isLive(event)) return;
  if (answer.responseURL && new URL(answer.responseURL).pathname === `${prefix}/login`) {
    location.reload(); // the session has ended
    event.detail.shouldSwap = false;
    return;
  }
  const fresh = answer.status === 200 && answer.responseText.includes('id="live"');
  tell(fresh ? "live" : "offline");
  if (!fresh || answer.responseText === before || busy()) {
    event.detail.shouldSwap = false;
    return;
  }
  before = answer.responseText;
  const live = $("#live");
  kept = {
    focus: placeOf(document.activeElement),
    scroll: scrollY,
    details: Object.fromEntries($$("details[id]").map((each) => [each.id, each.open])),
    state: live.dataset.state,
  };
});

document.addEventListener("htmx:afterSwap", (event) => {
  if (event.detail.target?.id === "ask") return openQuestion();
  if (!kept || !$("#live")) return;
  for (const [id, open] of Object.entries(kept.details)) {
    const each = document.getElementById(id);
    if (each) each.open = open;
  }
  if (kept.focus) focusOn(kept.focus);
  if (scrollY !== kept.scroll) scrollTo({ top: kept.scroll, behavior: "instant" });
  if ($("#live").dataset.state !== kept.state) tellPanel($("#live").dataset.state);
  kept = null;
});

document.addEventListener("htmx:sendError", (event) => isLive(event) && tell("offline"));
for (const name of ["log-end", "log-state"]) document.addEventListener(name, () => window.htmx?.trigger("#live", "refresh"), true);
document.addEventListener("visibilitychange", () => !document.hidden && $("#live") && window.htmx?.trigger("#live", "refresh"));

// The panel's own buttons ask as those of the page do. Where the page has none yet, it is behind, and reads itself again.
document.addEventListener("log-act", (event) => {
  event.preventDefault();
  const button = $(`#live [data-key="${event.detail.verb[0]}"]`);
  if (button) button.click();
  else window.htmx?.trigger("#live", "refresh");
});

// The panel follows runs by itself once it is told that the job's state has changed.
function tellPanel(state) {
  const panel = $("log-view");
  if (panel && state !== undefined && !new URLSearchParams(location.search).has("run")) panel.setAttribute("state", state);
}

// -- confirmations ------------------------------------------------------------------------------------------------------

function openQuestion() {
  $("h1", ask)?.setAttribute("id", "ask-title");
  ask.setAttribute("aria-labelledby", "ask-title");
  if (!ask.open) ask.showModal();
  $("[autofocus]", ask)?.focus();
}

ask?.addEventListener("click", (event) => {
  if (event.target === ask || event.target.closest("[data-close]")) {
    event.preventDefault();
    ask.close();
  }
});

// -- ticking rows -------------------------------------------------------------------------------------------------------

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-all]")) {
    for (const box of $$("[name=id]")) box.checked = event.target.checked;
  }
  if (event.target.matches("[data-all], [name=id]")) {
    const ticked = $$("[name=id]:checked").length;
    const said = $("#ticked");
    if (said) said.textContent = ticked ? `${ticked} ticked; the list holds still` : "";
    tell(ticked ? "held" : "live");
  }
});

// -- theme, copying, the sheet of keys ----------------------------------------------------------------------------------

const themes = $$("[data-theme-button]");
const label = () => themes.forEach((button) => (button.textContent = `Theme: ${document.documentElement.dataset.theme ?? "system"}`));
label();
for (const theme of themes) {
  const order = ["system", "light", "dark"];
  const now = () => document.documentElement.dataset.theme ?? "system";
  theme.hidden = false;
  theme.addEventListener("click", () => {
    const next = order[(order.indexOf(now()) + 1) % order.length];
    if (next === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    try {
      localStorage.setItem("holdfast-theme", next);
    } catch {
      // Then it holds for this page.
    }
    label();
  });
}

for (const button of $$("[data-copy]")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const source = document.getElementById(button.dataset.copy);
    try {
      await navigator.clipboard.writeText(source.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(source); // over plain HTTP there is no clipboard: one Ctrl+C is left
      button.textContent = "Selected";
    }
  });
}

// On a phone filters are folded, and the entry of this page may lie beside the screen.
for (const button of $$("[data-unfold]")) {
  button.addEventListener("click", () => {
    const open = button.getAttribute("aria-expanded") !== "true";
    button.setAttribute("aria-expanded", String(open));
    if (open) $("input:not([type=hidden])", document.getElementById(button.dataset.unfold))?.focus();
  });
}
const nav = $(".side");
const current = nav && $("[aria-current]", nav);
if (current && nav.scrollWidth > nav.clientWidth) nav.scrollLeft = current.offsetLeft - nav.clientWidth / 2 + current.clientWidth / 2;

const sheet = $("#sheet");
const help = $("#help");
if (help) {
  help.hidden = false;
  help.addEventListener("click", () => sheet.showModal());
}

if (new URLSearchParams(location.search).has("done")) {
  const clean = new URL(location.href);
  clean.searchParams.delete("done");
  clean.searchParams.delete("n");
  history.replaceState(null, "", clean); // said once; a reload does not say it again
}

// -- keys ---------------------------------------------------------------------------------------------------------------

const GO = { o: "/", j: "/jobs", d: "/dead", q: "/queues", w: "/workers", t: "/tenants" };
let going = false;

function move(by) {
  const rows = $$("[data-row]");
  const at = rows.indexOf(document.activeElement?.closest?.("[data-row]"));
  const next = rows[Math.max(0, Math.min(rows.length - 1, at + by))] ?? rows[0];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

function act(key) {
  const row = document.activeElement?.closest?.("[data-row]");
  const button = $(`#live [data-key="${key}"]`);
  if (button) return button.click();
  const bulk = $("#bulk");
  if (!row || !bulk || !$("[name=id]", row)) return;
  const choice = bulk.elements.verb;
  const offered = choice.options ? [...choice.options].map((option) => option.value) : [choice.value];
  const verb = { r: ["retry", "replay"], c: ["cancel"] }[key].find((each) => offered.includes(each));
  if (!verb) return;
  for (const box of $$("[name=id]:checked")) box.checked = false;
  $("[name=id]", row).checked = true;
  choice.value = verb;
  bulk.elements.scope.value = "selected";
  bulk.requestSubmit();
}

const KEYS = {
  "/": () => $("#jump")?.focus(),
  "?": () => sheet && !sheet.open && sheet.showModal(),
  j: () => move(1),
  k: () => move(-1),
  o: () => $("[data-open]", document.activeElement?.closest?.("[data-row]") ?? document.createElement("p"))?.click(),
  x: () => $("[name=id]", document.activeElement?.closest?.("[data-row]") ?? document.createElement("p"))?.click(),
  r: () => act("r"),
  c: () => act("c"),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  const at = event.composedPath()[0];
  if (at instanceof Element && at.matches("input:not([type=checkbox]), textarea, select, [contenteditable]")) {
    if (event.key === "Escape") at.blur();
    return;
  }
  if ($("dialog[open]")) return;
  if (going) {
    going = false;
    const link = GO[event.key] !== undefined && $$(".side a").find((each) => new URL(each.href).pathname === prefix + GO[event.key]);
    if (link) link.click();
    return;
  }
  if (event.key === "g") {
    going = true;
    setTimeout(() => (going = false), 1500);
    return;
  }
  const does = KEYS[event.key];
  if (does) {
    event.preventDefault();
    does();
  }
});
