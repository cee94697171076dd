/* A formula that is wider than its column scrolls; let the keyboard reach it, too. */
document.addEventListener("DOMContentLoaded", async () => {
  if (!window.MathJax || !MathJax.startup) return;
  await MathJax.startup.promise;
  const mark = () => document.querySelectorAll("mjx-container[display='true']").forEach((box) => {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  });
  mark();
  window.addEventListener("resize", mark);
});
