// What a page looks like to a reader: each function returns a list of problems, in words.
window.inspection = (() => {
  const article = () => document.querySelector("article, #search-results") || document.body;
  const name = (element) => {
    const text = (element.textContent || "").trim().replace(/\s+/g, " ").slice(0, 40);
    const kind = element.getAttribute("class");
    return `<${element.tagName.toLowerCase()}${kind ? ` class="${kind}"` : ""}> ${text}`;
  };
  const visible = (element) => element.checkVisibility({ visibilityProperty: true, opacityProperty: true })
    && element.getBoundingClientRect().width > 1;

  // The words of a picture, and where it stands: pictures of the text need more of them.
  async function pictures() {
    const problems = [];
    const images = [...document.images];
    for (const image of images) image.loading = "eager";
    await Promise.all(images.map((i) => i.complete || new Promise((done) => { i.onload = i.onerror = done; })));
    for (const image of document.querySelectorAll("img, [role=img], object, canvas")) {
      const icon = image.closest("svg") && image.closest("button, a, label");
      if (image.closest("[aria-hidden=true]") && !article().contains(image)) continue; // the theme's decoration
      if (icon && (icon.textContent.trim() || icon.title || icon.ariaLabel)) continue; // named by its control
      const source = image.getAttribute("src") || "";
      const title = image.querySelector("title");
      const words = (image.getAttribute("alt") || image.getAttribute("aria-label")
        || (title && title.textContent) || "").trim();
      const least = article().contains(image) ? 5 : 2;
      const which = source.slice(0, 60) || name(image);
      if (!words) problems.push(`picture without alt text: ${which}`);
      else if (/\.(png|svg|jpe?g|gif|webp)$/i.test(words)) problems.push(`alt text is a file name: ${words}`);
      else if (words.split(/\s+/).length < least) problems.push(`alt text says too little: "${words}" (${which})`);
      if (image.tagName === "IMG" && !(image.complete && image.naturalWidth)) problems.push(`picture not shown: ${which}`);
    }
    for (const drawing of document.querySelectorAll("svg:not([role=img])")) {
      const hidden = drawing.closest("[aria-hidden=true], [role=img], mjx-container") || !visible(drawing);
      const control = drawing.closest("button, a, label, summary");
      if (!hidden && !control) problems.push(`drawing that is neither described nor hidden: ${name(drawing.parentElement)}`);
    }
    return problems;
  }

  async function math() {
    const written = [...document.querySelectorAll(".math")];
    if (written.length && !(window.MathJax && MathJax.startup && MathJax.startup.promise)) return ["math on the page, but MathJax did not start"];
    if (window.MathJax && MathJax.startup) await MathJax.startup.promise;
    const problems = written.filter((element) => !element.querySelector("mjx-container"))
      .map((element) => `math not rendered: ${name(element)}`);
    for (const error of document.querySelectorAll("mjx-merror, merror, mtext[mathcolor=red]")) { // red: an unknown macro
      problems.push(`math error: ${error.getAttribute("data-mjx-error") || name(error)}`);
    }
    const walker = document.createTreeWalker(article(), NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      if (node.parentElement.closest("pre, code, script, style, textarea, mjx-container")) continue;
      const raw = node.data.match(/\\[([]|\$\$|\$[^$\n]*\\[a-z]+[^$\n]*\$|\\(frac|sigma|mu|bar|tag|begin|mathbf)\b|\{(math|eq|ref|cite|numref)[a-z:]*\}`?/);
      if (raw) problems.push(`raw markup in the text: ${node.data.trim().slice(0, 60)}`);
    }
    return problems;
  }

  // Wider than the window, or cut off without a way to scroll there.
  function width() {
    const problems = [];
    const room = document.documentElement.clientWidth;
    const page = Math.max(document.documentElement.scrollWidth, document.body.scrollWidth);
    if (page > room) problems.push(`the page is ${page} px wide in a window of ${room} px`);
    const cut = (element) => {
      const { left, right } = element.getBoundingClientRect();
      for (let box = element.parentElement; box !== document.body; box = box.parentElement) {
        const overflow = getComputedStyle(box).overflowX;
        if (overflow === "visible") continue;
        const edges = box.getBoundingClientRect();
        if (["auto", "scroll"].includes(overflow)) return left + box.scrollLeft < edges.left - 1;
        if (left < edges.left - 1 || right > edges.right + 1) return true;
      }
      return left < -1 || right > room + 1;
    };
    for (const element of article().querySelectorAll("*")) {
      if (element.closest("mjx-assistive-mml, mjx-math *") || !visible(element) || !cut(element)) continue;
      problems.push(`cut off in a window of ${room} px: ${name(element)}`);
      if (problems.length > 3) break;
    }
    return problems;
  }

  const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const paint = (grounds, color = "transparent", opacity = 1) => { // one over the other, whatever CSS calls them
    context.clearRect(0, 0, 1, 1);
    context.globalAlpha = 1;
    for (const ground of grounds) { context.fillStyle = ground; context.fillRect(0, 0, 1, 1); }
    context.globalAlpha = opacity;
    context.fillStyle = color;
    context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data];
  };
  const luminance = (rgb) => {
    const [r, g, b] = rgb.slice(0, 3).map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  function backgrounds(element) {
    const layers = [];
    for (let e = element; e; e = e.parentElement) layers.unshift(getComputedStyle(e).backgroundColor);
    return ["white", ...layers];
  }

  // WCAG 2 AA: 4.5 : 1, for large text 3 : 1. One line for each pair of colors that fails.
  function contrast() {
    const problems = new Map();
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const element = node.parentElement;
      if (!node.data.trim() || !visible(element) || element.closest("svg, mjx-assistive-mml, script, style, noscript")) continue;
      const style = getComputedStyle(element);
      const under = backgrounds(element);
      let opacity = 1;
      for (let e = element; e; e = e.parentElement) opacity *= getComputedStyle(e).opacity;
      const text = luminance(paint(under, style.color, opacity)), ground = luminance(paint(under));
      const ratio = (Math.max(text, ground) + 0.05) / (Math.min(text, ground) + 0.05);
      const size = parseFloat(style.fontSize);
      const large = size >= 24 || (size >= 18.66 && parseInt(style.fontWeight) >= 700);
      if (ratio < (large ? 3 : 4.5)) {
        problems.set(`${style.color} on ${under.at(-1)}`, `contrast ${ratio.toFixed(2)} : 1 (${style.color}): ${name(element)}`);
      }
    }
    return [...problems.values()];
  }

  const theme = () => document.documentElement.dataset.theme;
  const links = () => [...document.querySelectorAll("a[href]")].map((a) => a.getAttribute("href"));
  const asks = () => [...document.querySelectorAll("link[rel~=preconnect], link[rel~=dns-prefetch], link[rel~=prefetch]")].map((l) => l.href);
  return { pictures, math, width, contrast, theme, links, asks };
})();
