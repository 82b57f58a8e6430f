"use strict";
(() => {
  const all = (selector, root = document) => Array.from(root.querySelectorAll(selector));

  for (const button of all("button.copy")) {
    const text = button.parentNode.querySelector("code").textContent;
    button.hidden = false;
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(button.parentNode.querySelector("code"));
        button.textContent = "Selected";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
  }

  const form = document.querySelector("form.filter");
  if (form) {
    const rows = all("tr.probe");
    const articles = all("article[data-outcomes]");
    const shown = form.querySelector(".shown");
    const filter = () => {
      const wanted = all("input:checked", form).map((box) => box.value);
      const area = form.elements.area.value;
      const fits = (one) => (!area || one.dataset.area === area)
        && one.dataset.outcomes.split(" ").some((outcome) => wanted.includes(outcome));
      for (const one of [...rows, ...articles]) one.hidden = !fits(one);
      for (const body of all("table.matrix tbody")) body.hidden = !all("tr.probe:not([hidden])", body).length;
      const number = rows.filter((row) => !row.hidden).length;
      shown.textContent = `${number} of ${rows.length} probes are shown.`;
    };
    form.hidden = false;
    form.addEventListener("change", filter);
    form.addEventListener("submit", (event) => event.preventDefault());
    const details = all(".each .fold, .each article > details");
    const button = form.querySelector("button.all");
    button.addEventListener("click", () => {
      const open = button.textContent === "Open all";
      for (const one of details) one.open = open;
      button.textContent = open ? "Close all" : "Open all";
    });
    filter();
  }

  const follow = () => {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    if (target && target.tagName === "ARTICLE") {
      target.hidden = false;
      target.querySelector("details").open = true;
      for (let outer = target; outer; outer = outer.parentElement) if (outer.tagName === "DETAILS") outer.open = true;
      target.scrollIntoView();
    }
  };
  addEventListener("hashchange", follow);
  follow();

  addEventListener("beforeprint", () => {
    // Of the probes and of what is folded, what the reader has opened; all of the rest.
    for (const one of all("details:not([open], .each article > details, .figures, .fold)")) {
      one.open = true;
      one.dataset.printed = "";
    }
  });
  addEventListener("afterprint", () => {
    for (const one of all("details[data-printed]")) {
      one.open = false;
      delete one.dataset.printed;
    }
  });
})();
