/* What is folded opens when a link leads into it, and on paper. */
(() => {
  const show = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    let folded = target && target.closest("details:not([open])");
    if (!folded) return;
    for (; folded; folded = target.closest("details:not([open])")) folded.open = true;
    target.scrollIntoView();
  };
  window.addEventListener("hashchange", show);
  show();
  /* Formulas that were hidden have a width now: which of them scroll is decided anew. */
  document.addEventListener("toggle", () => window.dispatchEvent(new Event("resize")), true);
  let opened = [];
  window.addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    opened.forEach((folded) => { folded.open = true; });
  });
  window.addEventListener("afterprint", () => opened.forEach((folded) => { folded.open = false; }));
})();
