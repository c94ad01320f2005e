// A filter above the ledger of claims: words, verdict, kind and source. Without this script the
// page still has every claim, one folded table for each chapter.
document.addEventListener("DOMContentLoaded", () => {
  for (const ledger of document.querySelectorAll("div.ledger")) {
    const rows = [...ledger.querySelectorAll("tr[data-verdict]")];
    const bar = document.createElement("form");
    const said = rows.flatMap((row) => row.dataset.said.split(", ").map(source));
    const controls = {
      words: element("input", "words"),
      verdict: choice("verdict", rows.map((row) => row.dataset.verdict)),
      kind: choice("kind", rows.map((row) => row.dataset.kind)),
      said: choice("said by", said),
    };
    const count = document.createElement("output");
    bar.className = "ledger-filter";
    bar.append(...Object.values(controls).map((control) => control.parentElement), count);
    ledger.prepend(bar);
    bar.addEventListener("submit", (event) => event.preventDefault());
    bar.addEventListener("input", filter);
    filter();

    function filter() {
      const wanted = Object.fromEntries(
        Object.entries(controls).map(([name, control]) => [name, control.value]));
      const words = wanted.words.toLowerCase().split(/\s+/);
      const active = Object.values(wanted).some(Boolean);
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !(words.every((word) => text.includes(word))
          && [row.dataset.verdict, ""].includes(wanted.verdict)
          && [row.dataset.kind, ""].includes(wanted.kind)
          && [...row.dataset.said.split(", ").map(source), ""].includes(wanted.said));
      }
      for (const chapter of ledger.querySelectorAll(":scope > details")) {
        chapter.hidden = !chapter.querySelector("tr[data-verdict]:not([hidden])");
        chapter.open = active && !chapter.hidden;
      }
      count.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} claims`;
    }
  }

  function source(said) {
    return said.startsWith("paper") ? "paper" : said;
  }

  function element(tag, title) {
    const label = document.createElement("label");
    const control = document.createElement(tag);
    label.append(`${title} `, control);
    return control;
  }

  function choice(title, values) {
    const control = element("select", title);
    control.append(new Option("all", ""), ...[...new Set(values)].sort().map((v) => new Option(v)));
    return control;
  }
});
