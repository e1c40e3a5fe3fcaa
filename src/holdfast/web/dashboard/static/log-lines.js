// One line of a log as elements. Text only ever becomes text: whatever a message holds, none of it is markup.

const ESCAPE = /\x1b(?:\[([0-9;:]*)([ -/]*[@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_]|)/g;
const CONTROL = /[\x00-\x08\x0b-\x1f\x7f-\x9f]/g;
const MESSAGE_STYLES = { 1: "a-bold", 2: "a-dim", 3: "a-italic", 4: "a-under", 9: "a-through" };

/** Control characters as the pictures that Unicode has for them. */
function visible(text) {
  return text.replace(CONTROL, (c) => {
    const code = c.charCodeAt(0);
    return code < 32 ? String.fromCharCode(0x2400 + code) : code === 127 ? "\u2421" : "\ufffd";
  });
}

/** The message with its colours as classes; other escape sequences are left out. */
export function messageInto(parent, text) {
  if (!text.includes("\x1b")) {
    parent.append(visible(text));
    return;
  }
  const style = { font: new Set(), fore: null, back: null };
  let from = 0;
  for (const found of text.matchAll(ESCAPE)) {
    piece(parent, text.slice(from, found.index), style);
    from = found.index + found[0].length;
    if (found[2] === "m") restyle(style, found[1]);
  }
  piece(parent, text.slice(from), style);
}

function piece(parent, text, style) {
  if (!text) return;
  const classes = [...style.font, style.fore, style.back].filter(Boolean);
  if (!classes.length) {
    parent.append(visible(text));
    return;
  }
  const span = document.createElement("span");
  span.className = classes.join(" ");
  span.textContent = visible(text);
  parent.append(span);
}

function restyle(style, numbers) {
  const codes = (numbers || "0").split(/[;:]/).map(Number);
  for (let i = 0; i < codes.length; i += 1) {
    const code = codes[i];
    if (code === 0) Object.assign(style, { fore: null, back: null, font: new Set() });
    else if (MESSAGE_STYLES[code]) style.font.add(MESSAGE_STYLES[code]);
    else if (code === 22) style.font = new Set([...style.font].filter((name) => name !== "a-bold" && name !== "a-dim"));
    else if (code === 23) style.font.delete("a-italic");
    else if (code === 24) style.font.delete("a-under");
    else if (code === 29) style.font.delete("a-through");
    else if (code >= 30 && code <= 37) style.fore = `a-f${code - 30}`;
    else if (code >= 90 && code <= 97) style.fore = `a-f${code - 82}`;
    else if (code >= 40 && code <= 47) style.back = `a-g${code - 40}`;
    else if (code >= 100 && code <= 107) style.back = `a-g${code - 100}`;
    else if (code === 39) style.fore = null;
    else if (code === 49) style.back = null;
    else if (code === 38 || code === 48) {
      const basic = codes[i + 1] === 5 && codes[i + 2] < 16 ? codes[i + 2] : null;
      if (basic !== null && code === 38) style.fore = `a-f${basic}`;
      if (basic !== null && code === 48) style.back = `a-g${basic % 8}`;
      i += codes[i + 1] === 5 ? 2 : 4;
    }
  }
}

function make(name, className, text) {
  const element = document.createElement(name);
  element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

const two = (number) => String(number).padStart(2, "0");

export function clock(moment) {
  return `${two(moment.getHours())}:${two(moment.getMinutes())}:${two(moment.getSeconds())}`;
}

export function duration(milliseconds) {
  if (milliseconds < 1000) return `${Math.round(milliseconds)} ms`;
  const seconds = milliseconds / 1000;
  if (seconds < 60) return `${seconds < 10 ? Math.round(seconds * 10) / 10 : Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${two(Math.floor(seconds % 60))} s`;
  return `${Math.floor(minutes / 60)} h ${two(minutes % 60)} min`;
}

export function lineElement(line) {
  const row = make("div", "lv-line");
  row.id = `L${line.no}`;
  row.dataset.level = line.level;
  row.tabIndex = -1;
  const number = make("a", "lv-no", line.no);
  number.href = `#L${line.no}`;
  number.tabIndex = -1;
  const time = make("time", "lv-time", line.created_at ? clock(new Date(line.created_at)) : "--:--:--");
  row.append(number, time, make("span", "lv-dot", line.level));
  const message = make("span", "lv-msg");
  if (line.step) message.append(make("span", "lv-step", visible(line.step)), " ");
  messageInto(message, line.message);
  row.append(message);
  if (line.metadata) row.append(make("span", "lv-more", "{}"));
  if (line.duration_ms !== null && line.duration_ms !== undefined) row.append(make("span", "lv-ms", duration(line.duration_ms)));
  return row;
}

/** What a click on a line opens. */
export function detailsElement(line) {
  const box = make("dl", "lv-meta");
  const add = (name, value) => {
    const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
    box.append(make("dt", "", visible(name)), make("dd", "", visible(text)));
  };
  add("line", String(line.no));
  if (line.created_at) add("time", line.created_at);
  add("level", line.level);
  if (line.step) add("step", line.step);
  if (line.duration_ms !== null && line.duration_ms !== undefined) add("duration", duration(line.duration_ms));
  for (const [name, value] of Object.entries(line.metadata ?? {})) add(name, value);
  return box;
}
