// From line to line: clicks, keys, links to a line, and what else a line knows.

export class Rows {
  #scroll;
  #window;
  #follow;
  #reader;
  #told;

  /** `told`: {goTo, followEnd, said}; `goTo(no)` brings a line into the page and calls `mark`. */
  constructor(scroll, window, follow, reader, told) {
    this.#scroll = scroll;
    this.#window = window;
    this.#follow = follow;
    this.#reader = reader;
    this.#told = told;
    scroll.addEventListener("keydown", (event) => this.#onKey(event));
    scroll.addEventListener("click", (event) => this.#onClick(event));
  }

  /** The line that a link leads to. */
  mark(no) {
    for (const marked of this.#scroll.querySelectorAll(".lv-target")) marked.classList.remove("lv-target");
    const row = this.#window.element(no);
    if (!row) return;
    row.classList.add("lv-target");
    this.#current(row);
    this.#follow.center(row);
  }

  #current(row) {
    for (const other of this.#scroll.querySelectorAll('.lv-line[tabindex="0"]')) other.tabIndex = -1;
    row.tabIndex = 0;
  }

  #onClick(event) {
    const row = event.target.closest(".lv-line");
    if (!row) return;
    if (event.target.closest(".lv-no")) {
      event.preventDefault();
      history.replaceState(history.state, "", `#${row.id}`);
      this.#told.goTo(numberOf(row));
      return;
    }
    if (!getSelection().isCollapsed) return; // somebody copies
    this.#current(row);
    this.#toggle(row);
  }

  #toggle(row) {
    const open = this.#window.toggle(row);
    this.#told.said(open ? "Details opened" : "Details closed");
    if (open && this.#follow.on) this.#follow.set(false);
  }

  #onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const row = event.target.closest(".lv-line");
    const act = {
      ArrowDown: () => this.#step(row, 1),
      ArrowUp: () => this.#step(row, -1),
      j: () => this.#step(row, 1),
      k: () => this.#step(row, -1),
      Enter: () => row && this.#toggle(row),
      Escape: () => row && this.#window.isOpen(row) && this.#toggle(row),
      End: () => this.#told.followEnd(),
      Home: () => this.#told.goTo(1),
      f: () => this.#told.followEnd(),
      e: () => this.#nextError(row),
    }[event.key];
    if (!act || event.target.closest("button")) return;
    event.preventDefault();
    event.stopPropagation(); // the page has keys of its own
    act();
  }

  #step(row, step) {
    const frame = this.#scroll.getBoundingClientRect();
    let next = row && this.#window.neighbour(row, step);
    if (!row) {
      const edge = step > 0 ? frame.top + 12 : frame.bottom - 12;
      const there = document.elementFromPoint(frame.left + frame.width / 2, edge)?.closest(".lv-line");
      next = there ?? this.#scroll.querySelector(".lv-line");
    }
    if (!next) return;
    this.#follow.set(false);
    this.#current(next);
    next.focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest" });
  }

  async #nextError(row) {
    const [found] = await this.#reader.firstAfter(row ? numberOf(row) : 0, "error");
    if (!found) return this.#told.said("No further error");
    await this.#told.goTo(found.no);
    this.#window.element(found.no)?.focus({ preventScroll: true });
  }
}

const numberOf = (row) => Number(row.id.slice(1));

/** The line that the address names: #L137. */
export function lineOfHash() {
  const found = /^#L([1-9][0-9]{0,14})$/.exec(location.hash);
  return found ? Number(found[1]) : null;
}
