"use strict";
(() => {
  const sieve = document.getElementById("sieve");
  if (!sieve) return;
  const MOST = 500;
  const rows = Array.from(document.querySelectorAll("#list tbody tr"));
  const find = document.getElementById("find");
  const boxes = Array.from(sieve.querySelectorAll("input[type=checkbox]"));
  const shown = sieve.querySelector(".shown");
  const button = document.getElementById("all");
  const texts = rows.map((row) => row.textContent.toLowerCase());
  let most = MOST;

  const filter = () => {
    const wanted = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    let fit = 0;
    rows.forEach((row, at) => {
      const fits = wanted.has(row.className) && words.every((word) => texts[at].includes(word));
      fit += fits;
      row.hidden = !fits || fit > most;
    });
    const number = (value) => value.toLocaleString("en");
    shown.textContent = `${number(Math.min(fit, most))} of ${number(rows.length)} nodes are shown`
      + (fit > most ? `; ${number(fit)} fit.` : ".");
    button.hidden = fit <= most;
  };
  let waiting;
  find.addEventListener("input", () => { most = MOST; clearTimeout(waiting); waiting = setTimeout(filter, 120); });
  sieve.addEventListener("change", () => { most = MOST; filter(); });
  button.addEventListener("click", () => { most = Infinity; filter(); find.focus(); });
  sieve.hidden = false;
  filter();

  const map = document.getElementById("squares");
  const readout = document.getElementById("readout");
  const squares = Array.from(map.querySelectorAll("i"));
  const named = new Map(rows.map((row) => [row.cells[0].textContent, row]));
  const nodeOf = (square) => square.className[0] === "p" ? square.title : square.title.split(": ")[0];
  let current = -1;

  const say = (at) => {
    if (current >= 0) squares[current].classList.remove("at");
    current = at;
    squares[at].classList.add("at");
    const row = named.get(nodeOf(squares[at]));
    const cells = row ? Array.from(row.cells, (cell) => cell.textContent.trim()).filter(Boolean) : [squares[at].title];
    readout.textContent = cells.join(" · ");
    readout.hidden = false;
  };
  const list = (at) => {
    find.value = nodeOf(squares[at]);
    for (const box of boxes) box.checked = true;
    most = MOST;
    filter();
    find.focus();
    sieve.scrollIntoView();
  };
  const bad = (from, step) => {
    let at = from + step;
    while (at >= 0 && at < squares.length && squares[at].classList.contains("p")) at += step;
    return at;
  };
  map.tabIndex = 0;
  document.getElementById("map-keys").hidden = false;
  map.addEventListener("mouseover", (event) => {
    if (event.target.tagName === "I") say(squares.indexOf(event.target));
  });
  map.addEventListener("click", (event) => {
    if (event.target.tagName === "I") list(squares.indexOf(event.target));
  });
  map.addEventListener("keydown", (event) => {
    const to = {
      ArrowRight: current + 1, ArrowLeft: current - 1, ArrowDown: bad(current, 1), ArrowUp: bad(current, -1),
      Home: 0, End: squares.length - 1,
    }[event.key];
    if (to !== undefined) {
      event.preventDefault();
      if (to >= 0 && to < squares.length) {
        say(to);
        squares[to].scrollIntoView({ block: "nearest" });
      }
    } else if (event.key === "Enter" && current >= 0) {
      event.preventDefault();
      list(current);
    }
  });
})();
