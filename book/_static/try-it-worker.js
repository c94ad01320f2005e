// Python of the page "Try it in the page", in a worker: the page stays usable and can stop it.
import { loadPyodide } from "./pyodide/pyodide.mjs";

const address = (path) => new URL(path, import.meta.url).href;

async function start() {
  const [python, program] = await Promise.all([
    loadPyodide({ indexURL: address("pyodide/"), packages: ["numpy"] }),
    fetch(address("run_cells.py")).then((response) => response.text()),
  ]);
  python.runPython(program);
  return python.globals.get("run");
}

const started = start();

onmessage = async ({ data: cells }) => {
  try {
    const [outputs, failed] = (await started)(cells).toJs();
    postMessage({ outputs, failed });
  } catch (error) {
    postMessage({ error: String(error) });
  }
};
