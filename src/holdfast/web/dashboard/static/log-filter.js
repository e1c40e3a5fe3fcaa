// Search and levels: what is asked of the server, and what holds for lines that come live.

const SEARCH_MS = 300;
const LEVELS = ["info", "success", "warning", "error"];

export class Filter {
  #levels = new Set();
  #search = "";
  #buttons;
  #input;

  constructor(buttons, input, changed) {
    this.#buttons = buttons;
    this.#input = input;
    for (const level of LEVELS) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = level;
      button.dataset.level = level;
      button.setAttribute("aria-pressed", "false");
      buttons.append(button);
    }
    buttons.addEventListener("click", (event) => {
      const level = event.target.dataset.level;
      if (!level) return;
      if (!this.#levels.delete(level)) this.#levels.add(level);
      event.target.setAttribute("aria-pressed", String(this.#levels.has(level)));
      changed();
    });
    let typing = null;
    input.addEventListener("input", () => {
      clearTimeout(typing);
      typing = setTimeout(() => {
        this.#search = input.value;
        changed();
      }, SEARCH_MS);
    });
  }

  get on() {
    return this.#levels.size > 0 || this.#search !== "";
  }

  query(more) {
    const query = new URLSearchParams(more);
    for (const level of this.#levels) query.append("level", level);
    if (this.#search) query.set("search", this.#search);
    return query;
  }

  matches(line) {
    if (this.#levels.size && !this.#levels.has(line.level)) return false;
    return !this.#search || line.message.toLowerCase().includes(this.#search.toLowerCase());
  }

  clear() {
    this.#levels.clear();
    this.#search = this.#input.value = "";
    for (const button of this.#buttons.children) button.setAttribute("aria-pressed", "false");
  }
}
