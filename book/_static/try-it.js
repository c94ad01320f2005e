// Makes the cells of `{try-it}` editable and gives each a Run button (book/_ext/try_it.py loads this
// on pages with such cells). Python is loaded on the first click, never before.
(() => {
  const { src, dataset } = document.currentScript;
  if (location.protocol === "file:") return; // from there no browser lets a page start a worker
  document.addEventListener("DOMContentLoaded", () => {
    const cells = [...document.querySelectorAll("div.try-it")].map(prepare);
    const missing = document.querySelector("div.try-it-missing");
    if (missing) missing.hidden = true;
    let worker = null;
    let running = null;
    rest();

    function prepare(element, index) {
      const code = element.querySelector(".cell_input pre");
      const output = element.querySelector(".cell_output pre");
      const button = document.createElement("button");
      const attributes = {
        contenteditable: "plaintext-only", role: "textbox", "aria-multiline": "true",
        "aria-label": `code of cell ${index + 1}`, spellcheck: "false", autocapitalize: "off",
      };
      for (const [name, value] of Object.entries(attributes)) code.setAttribute(name, value);
      if (!code.isContentEditable) code.contentEditable = "true"; // a browser without plaintext-only
      output.setAttribute("aria-live", "polite");
      button.type = "button";
      button.addEventListener("click", () => (running === null ? run(index) : stop()));
      code.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" || !(event.shiftKey || event.ctrlKey)) return;
        event.preventDefault();
        if (running === null) run(index);
      });
      element.querySelector(".cell_input").after(button);
      return { element, code, output, button };
    }

    function run(index) {
      running = index;
      const { output, button } = cells[index];
      output.textContent = worker ? "Running …" : `Loading Python and NumPy, ${dataset.size} …`;
      cells.forEach((cell) => { cell.button.disabled = cell.button !== button; });
      cells[index].element.setAttribute("aria-busy", "true");
      button.textContent = "Stop";
      worker ??= start();
      worker.postMessage(cells.slice(0, index + 1).map(({ code }) => code.innerText));
    }

    function start() {
      const started = new Worker(new URL("try-it-worker.js", src), { type: "module" });
      started.onmessage = ({ data }) => (data.error ? stop(`Python failed: ${data.error}`) : show(data));
      started.onerror = (event) => stop(`Python could not be loaded: ${event.message || "no answer"}`);
      return started;
    }

    function show({ outputs, failed }) {
      outputs.forEach((text, index) => { cells[index].output.textContent = text; });
      if (outputs.length <= running) {
        cells[running].output.textContent = `Not run: cell ${outputs.length} above raised an error.`;
      }
      cells.forEach(({ element }, index) => {
        element.classList.toggle("failed", failed && index === outputs.length - 1);
      });
      rest();
    }

    function stop(reason = "Stopped.") {
      worker.terminate();
      worker = null;
      cells[running].output.textContent = reason;
      rest();
    }

    function rest() {
      running = null;
      for (const { element, button } of cells) {
        element.setAttribute("aria-busy", "false");
        button.disabled = false;
        button.textContent = worker ? "Run" : `Run (loads Python, ${dataset.size})`;
      }
    }
  });
})();
