// What tools/print_book.py does to a page before it prints it. `anchors`: the elements that are to
// become destinations of the PDF, which Chromium makes only of those that the page itself links to.
async (anchors) => {
  document.documentElement.dataset.theme = document.documentElement.dataset.mode = "light";
  if (window.MathJax && MathJax.startup) await MathJax.startup.promise;
  for (const image of document.images) image.loading = "eager";
  await Promise.all([...document.images].map((image) => image.decode().catch(() => {})));
  await document.fonts.ready;
  for (const details of document.querySelectorAll("details")) {
    details.open = true;
    if (!details.matches(".hide")) continue;
    details.querySelector("summary").remove(); // "Hide code cell source"
    details.replaceWith(...details.childNodes);
  }
  const article = document.querySelector("article");
  const wide = article.getBoundingClientRect().width;
  for (const element of article.querySelectorAll("table, mjx-container, figure > *")) {
    const ratio = wide / element.scrollWidth;
    if (ratio < 1) element.style.zoom = 0.98 * ratio; // paper does not scroll
  }
  for (const name of anchors) {
    const link = document.createElement("a");
    link.href = `#${encodeURIComponent(name)}`;
    article.append(link);
  }
}
