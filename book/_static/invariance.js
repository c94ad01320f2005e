// The sliders of layernorm/lab/invariance_figure.py: the same formulas, computed in the reader's browser.
// tests/browser compares every output with the Python definitions in float64.
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const LIMIT = 3.2; // outputs beyond it are drawn at the edge, as triangles
  const width = 156, height = 132, left = 8, top = 8, bottom = 20;
  const mean = (v) => v.reduce((s, e) => s + e, 0) / v.length;
  const transpose = (m) => m[0].map((_, i) => m.map((row) => row[i]));
  const rootMeanSquare = (v) => Math.sqrt(mean(v.map((e) => e * e)));
  const standardize = (v) => {
    const mu = mean(v), sigma = rootMeanSquare(v.map((e) => e - mu));
    return v.map((e) => (e - mu) / sigma);
  };

  // moved: a number for each slider that is not at rest. Returns {method: rows of outputs}.
  function outputs({ x, w, case: n, unit: i, rest }, moved) {
    const s = { ...rest, ...moved };
    const cases = x.map((row, k) =>
      row.map((e) => (k === n ? s.case_scale : 1) * (s.data_scale * e + s.data_shift)));
    const weights = w.map((row, j) =>
      row.map((e) => (j === i ? s.unit_scale : 1) * (s.weights_scale * e + s.weights_shift)));
    const a = cases.map((row, k) => weights.map((v, j) =>
      v.reduce((sum, e, d) => sum + e * row[d], 0)
        + (k === n ? s.case_shift : 0) + (j === i ? s.unit_shift : 0)));
    return {
      none: a,
      batch: transpose(transpose(a).map(standardize)),
      weight: a.map((row) => row.map((e, j) => e / Math.hypot(...weights[j]))),
      layer: a.map(standardize),
      rms: a.map((row) => row.map((e) => e / rootMeanSquare(row))),
    };
  }

  function verdict(before, after) {
    const changes = after.flatMap((row, n) => row.map((e, i) => Math.abs(e - before[n][i])));
    const change = Math.max(...changes);
    return change < 1e-9 ? "unchanged" : `changed by up to ${change.toFixed(2)}`;
  }

  const element = (tag, attributes = {}, children = []) => {
    const node = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  };
  const shape = (tag, attributes) => {
    const node = document.createElementNS(SVG, tag);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    return node;
  };
  const toX = (i, units) => left + ((i + 0.5) / units) * (width - 2 * left);
  const toY = (value) => top + ((LIMIT - value) / (2 * LIMIT)) * (height - top - bottom);

  // One method: rings where the outputs stood, dots where they are. Returns its element and update.
  function panel(specification, method, before) {
    const units = specification.w.length;
    const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
    const band = (width - 2 * left) / units;
    svg.append(shape("rect", {
      class: "unit", x: left + specification.unit * band, y: 2, width: band, height: height - bottom,
    }));
    svg.append(shape("line", { class: "zero", x1: 0, x2: width, y1: toY(0), y2: toY(0) }));
    for (let i = 0; i < units; i++) {
      const label = shape("text", { x: toX(i, units), y: height - 5 });
      label.textContent = i + 1;
      svg.append(label);
    }
    const dots = [];
    before.forEach((row, n) => row.forEach((value, i) => svg.append(
      shape("circle", { class: "ring", cx: toX(i, units), cy: toY(value), r: 5 }))));
    before.forEach((row, n) => row.forEach((_, i) => {
      const chosen = n === specification.case;
      const dot = shape("path", { class: chosen ? "dot chosen" : "dot" });
      if (chosen) dot.style.fill = method.color;
      svg.append(dot);
      dots.push({ dot, n, i, r: chosen ? 4 : 2.2 });
    }));
    const result = element("p", { class: "verdict" });
    const update = (after) => {
      const text = verdict(before, after);
      result.textContent = text;
      result.classList.toggle("unchanged", text === "unchanged");
      svg.setAttribute("aria-label",
        `${method.title}: the outputs of ${before.length} cases and ${units} units, ${text}`);
      for (const { dot, n, i, r } of dots) {
        const value = after[n][i], beyond = Math.abs(value) > LIMIT;
        dot.setAttribute("d", beyond
          ? `M${-r - 1} ${r}L${r + 1} ${r}L0 ${-r}Z`
          : n === specification.case ? `M${-r} 0L0 ${r}L${r} 0L0 ${-r}Z`
          : `M${-r} 0a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`);
        const y = toY(Math.max(-LIMIT, Math.min(LIMIT, value)));
        dot.style.transform =
          `translate(${toX(i, units)}px, ${y}px)${value < -LIMIT ? " rotate(180deg)" : ""}`;
      }
      return text;
    };
    const title = element("p", { class: "title" }, [method.title]);
    return { node: element("div", { class: "method", "data-method": method.name }, [title, svg, result]), update };
  }

  function build(container) {
    const specification = JSON.parse(container.dataset.specification);
    const rest = Object.fromEntries(specification.sliders.map(({ name, rest }) => [name, rest]));
    const before = outputs(specification, rest);
    specification.methods = specification.methods.filter(({ name }) => name in before);
    const panels = specification.methods.map((method) => panel(specification, method, before[method.name]));
    const status = element("p", { class: "spoken", role: "status" });
    const inputs = specification.sliders.map(({ name, values, rest }) => element("input", {
      type: "range", id: `invariance-${name}`, name, min: 0, max: values.length - 1,
      value: values.indexOf(rest), "aria-describedby": `invariance-meaning-${name}`,
    }));
    const shown = specification.sliders.map(() => element("span", { class: "value", "aria-hidden": "true" }));

    const update = () => {
      const s = {};
      specification.sliders.forEach(({ name, kind, values }, k) => {
        const value = s[name] = values[inputs[k].valueAsNumber];
        const scale = kind === "scale", sign = value < 0 ? "−" : "";
        shown[k].textContent = scale ? `× ${sign}${Math.abs(value)}` : `${sign || "+"} ${Math.abs(value)}`;
        inputs[k].setAttribute("aria-valuetext", `${scale ? "times" : "plus"} ${value}`);
        inputs[k].closest(".slider").classList.toggle("moved", value !== rest[name]);
      });
      const after = outputs(specification, s);
      return specification.methods.map((method, k) => `${method.title} ${panels[k].update(after[method.name])}`);
    };
    const speak = () => { status.textContent = update().join("; "); };
    const reset = element("button", { type: "button" }, ["Reset all sliders"]);
    reset.addEventListener("click", () => {
      specification.sliders.forEach(({ values, rest }, k) => { inputs[k].value = values.indexOf(rest); });
      speak();
    });
    inputs.forEach((input) => {
      input.addEventListener("input", update);
      input.addEventListener("change", speak); // once, when the slider comes to rest
    });
    const control = ({ name, kind, meaning }, k) => element("div", { class: "slider" }, [
      element("label", { for: inputs[k].id }, [kind]), shown[k], inputs[k],
      element("span", { class: "meaning", id: `invariance-meaning-${name}` }, [meaning]),
    ]);
    const things = [...new Set(specification.sliders.map(({ thing }) => thing))];
    const controls = element("div", { class: "things" }, things.map((thing) => element("fieldset", {}, [
      element("legend", {}, [thing]),
      ...specification.sliders.flatMap((slider, k) => slider.thing === thing ? [control(slider, k)] : []),
    ])));
    container.setAttribute("role", "group");
    container.setAttribute("aria-label", "Interactive figure: which normalization does not care?");
    const legend = element("p", { class: "legend" }, [
      `○ before · ● after · ◆ after, case ${specification.case + 1} · ▲▼ beyond the frame · `
        + `gray band: unit ${specification.unit + 1}. ${specification.note}`]);
    container.replaceChildren(
      controls, reset, element("div", { class: "methods" }, panels.map(({ node }) => node)), legend, status);
    update();
  }

  window.layernormInvariance = { outputs };
  document.addEventListener("DOMContentLoaded",
    () => document.querySelectorAll("div.invariance").forEach(build));
})();
